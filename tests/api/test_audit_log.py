"""The audit log as a script reads it that keeps a copy elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runs.models import AuditEntry
from tests.api.asking import SIGN_IN_QUERIES, Script, list_ids, read, settle

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def make_entry(**values: Any) -> int:
    defaults = {"action": "run_started", "actor_name": "ada", "object_kind": "run", "object_id": "7"}
    return AuditEntry.objects.create(**{**defaults, **values}).pk


def test_an_entry_says_who_did_what_when_and_from_where(administrator: Script) -> None:
    values = {"object_label": "Tea #7", "details": {"flow": "tea"}, "request_id": "r1"}
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    key = make_entry(at=at, token_name="nightly", address="192.0.2.1", **values)
    make_entry(actor_name="", object_kind="", object_id="", action="trail_purged")
    (first,) = read(administrator, "trail?to=2026-03-01")["items"]
    by = {"actor": "ada", "token": "nightly", "ip_address": "192.0.2.1"}
    what = {"action": "run_started", "object_kind": "run", "object_id": "7"}
    assert first == {"id": key, "at": "2026-03-01T12:00:00Z", **by, **what, **values}
    (last,) = read(administrator, "trail?action=trail_purged")["items"]
    assert [name for name, value in last.items() if value is None] == [
        "actor", "token", "ip_address", "object_kind", "object_id", "object_label", "request_id",
    ]  # fmt: skip


def test_it_is_filtered_by_actor_action_object_and_day(administrator: Script) -> None:
    ids = [
        make_entry(at=datetime(2026, 3, 1, 23, 59, tzinfo=UTC)),
        make_entry(at=datetime(2026, 3, 2, tzinfo=UTC), action="run_cancelled", object_id="8"),
        make_entry(at=datetime(2026, 3, 3, tzinfo=UTC), object_kind="flow", action="flow_changed"),
        make_entry(actor_name="olga", object_kind="group"),
    ]
    for query, found in (
        ("actor=ada&action=run_started,flow_changed", [2, 0]),
        ("actor=ada&action=run_started&action=flow_changed", [2, 0]),
        ("kind=run&id=8", [1]),
        ("from=2026-03-02&to=2026-03-02", [1]),
    ):
        assert list_ids(administrator, f"trail?{query}") == [ids[index] for index in found], query


def test_entries_are_in_the_order_of_time_whatever_their_numbers(administrator: Script) -> None:
    second = datetime(2026, 3, 2, tzinfo=UTC)
    last, first, third, same = (make_entry(at=second + timedelta(milliseconds=after)) for after in (9, 0, 5, 5))
    assert list_ids(administrator, "trail?actor=ada") == [last, same, third, first]
    assert list_ids(administrator, f"trail?actor=ada&before={same}") == [third, first]
    assert list_ids(administrator, f"trail?actor=ada&after={first}") == [last, same, third]


def test_a_script_reads_on_from_the_entry_that_it_has(
    administrator: Script, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    # Their times are the database's own.
    ids = [make_entry() for _ in range(5)]
    settle(administrator)
    with django_assert_num_queries(SIGN_IN_QUERIES + 1):
        page = read(administrator, f"trail?actor=ada&limit=2&after={ids[0]}")
    assert [item["id"] for item in page["items"]] == [ids[2], ids[1]]
    assert list_ids(administrator, page["previous"]) == [ids[4], ids[3]]


def test_a_script_reads_on_from_an_entry_that_was_purged(administrator: Script) -> None:
    now = timezone.now()
    gone = make_entry(at=now - timedelta(days=90))
    kept = make_entry()
    AuditEntry.objects.all().purge(before=now - timedelta(days=60), limit=9)
    assert list_ids(administrator, f"trail?actor=ada&after={gone}") == [kept]
    assert list_ids(administrator, f"trail?actor=ada&before={gone}") == []
