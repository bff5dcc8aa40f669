"""The trail as a script reads it that keeps a copy elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from runs.models import TrailEntry
from tests.api.asking import Script, read_problem
from tests.api.documents import SIGN_IN_QUERIES, read, settle

pytestmark = pytest.mark.django_db


def make_entry(**values: Any) -> int:
    defaults = {"action": "run_started", "actor_name": "ada", "object_kind": "run", "object_id": "7"}
    return TrailEntry.objects.create(**{**defaults, **values}).pk


def list_ids(script: Script, query: str = "actor=ada") -> list[int]:
    return [item["id"] for item in read(script, f"trail?{query}")["items"]]


def test_an_entry_says_who_did_what_when_and_from_where(administrator: Script) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    key = make_entry(
        at=at,
        token_name="nightly",
        address="192.0.2.1",
        object_label="Tea #7",
        details={"flow": "tea"},
        request_id="r1",
    )
    make_entry(actor_name="", object_kind="", object_id="", action="trail_purged")
    last, first = (
        item for item in read(administrator, "trail")["items"] if item["action"] in ("run_started", "trail_purged")
    )
    assert first == {
        "id": key,
        "at": "2026-03-01T12:00:00Z",
        "actor": "ada",
        "token": "nightly",
        "ip_address": "192.0.2.1",
        "action": "run_started",
        "object_kind": "run",
        "object_id": "7",
        "object_label": "Tea #7",
        "details": {"flow": "tea"},
        "request_id": "r1",
    }
    assert [name for name, value in last.items() if value is None] == [
        "actor", "token", "ip_address", "object_kind", "object_id", "object_label", "request_id",
    ]  # fmt: skip


def test_it_is_filtered_by_actor_action_object_and_day(administrator: Script) -> None:
    one = make_entry(at=datetime(2026, 3, 1, 23, 59, tzinfo=UTC))
    two = make_entry(at=datetime(2026, 3, 2, tzinfo=UTC), action="run_cancelled", object_id="8")
    three = make_entry(at=datetime(2026, 3, 3, tzinfo=UTC), object_kind="flow", action="flow_changed")
    make_entry(actor_name="olga")
    assert list_ids(administrator) == [three, two, one]
    assert list_ids(administrator, "actor=ada&action=run_started,flow_changed") == [three, one]
    assert list_ids(administrator, "kind=run&id=8") == [two]
    assert list_ids(administrator, "kind=flow") == [three]
    assert list_ids(administrator, "from=2026-03-02&to=2026-03-02") == [two]
    assert list_ids(administrator, "to=2026-03-01") == [one]


def test_filters_find_the_same_however_little_is_looked_at_for_a_page(
    administrator: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.paging.FIRST_LOOK", 1)
    monkeypatch.setattr("runs.paging.WINDOW", 3)
    entries = [
        {"object_kind": kind, "object_id": str(number % 2), "action": action, "at": datetime(2026, 3, day, tzinfo=UTC)}
        for day in (1, 2, 3)
        for number, (kind, action) in enumerate(
            [("run", "run_started"), ("flow", "flow_changed"), ("run", "run_cancelled")]
        )
    ]
    made = [(make_entry(**values), values) for values in entries]

    def expect(query: str, **wanted: Any) -> None:
        keys = [
            key for key, values in reversed(made) if all(values[name] in allowed for name, allowed in wanted.items())
        ]
        found: list[int] = []
        address: str | None = f"trail?{query}&limit=1"
        while address:
            page = read(administrator, address)
            found += [item["id"] for item in page["items"]]
            address = page["next"]
        assert (query, [key for key in found if key in dict(made)]) == (query, keys)

    days = {day: datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3)}
    expect("kind=flow", object_kind=["flow"])
    expect("kind=run&id=0&from=2026-03-02", object_kind=["run"], object_id=["0"], at=[days[2], days[3]])
    expect("actor=ada&kind=run&to=2026-03-02", object_kind=["run"], at=[days[1], days[2]])
    expect(
        "action=run_started,flow_changed&from=2026-03-02&to=2026-03-02",
        action=["run_started", "flow_changed"],
        at=[days[2]],
    )
    expect("to=2026-03-02", at=[days[1], days[2]])
    expect("actor=ada&from=2026-03-05&to=2026-03-06", at=[])


def test_entries_are_in_the_order_of_time_whatever_their_numbers(administrator: Script) -> None:
    later = make_entry(at=datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC))
    last = make_entry(at=datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC))
    first = make_entry(at=datetime(2026, 3, 2, tzinfo=UTC))
    earlier = make_entry(at=datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC))
    assert list_ids(administrator, "actor=ada&from=2026-03-02") == [later, first]
    assert list_ids(administrator, "actor=ada&to=2026-03-01") == [last, earlier]
    assert list_ids(administrator, f"actor=ada&before={first}") == [last, earlier]
    assert list_ids(administrator, f"actor=ada&after={last}") == [later, first]


def test_a_day_long_ago_is_found_without_going_through_all_that_came_later(
    administrator: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.paging.FIRST_LOOK", 1)
    monkeypatch.setattr("runs.paging.WINDOW", 3)
    keys = [make_entry(at=datetime(2026, 3, day, tzinfo=UTC)) for day in range(1, 21)]
    assert list_ids(administrator, "to=2026-03-02&limit=1") == keys[1:2]
    assert list_ids(administrator, f"from=2026-03-18&to=2026-03-18&limit=1&after={keys[0]}") == keys[17:18]


def test_a_script_reads_on_from_the_entry_that_it_has(
    administrator: Script, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    ids = [make_entry() for _ in range(5)]
    settle(administrator)
    # The time of the entry, and the page.
    with django_assert_num_queries(SIGN_IN_QUERIES + 3):
        page = read(administrator, f"trail?actor=ada&limit=2&after={ids[0]}")
    assert [item["id"] for item in page["items"]] == [ids[2], ids[1]]
    newer = read(administrator, page["previous"])
    assert [item["id"] for item in newer["items"]] == [ids[4], ids[3]]
    assert newer["previous"] is None


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("action=danced", ["action"]),
        ("kind=teapot", ["kind"]),
        ("id=7", ["id"]),
        ("from=yesterday", ["from"]),
        ("from=2026-1-1", ["from"]),
        ("to=0001-01-01", ["to"]),
        ("from=2026-03-02&to=2026-03-01", ["to"]),
        ("actor=%00", ["actor"]),
        ("before=1&after=2&colour=red", ["colour"]),
    ],
)
def test_what_makes_no_sense_is_told_by_its_name(administrator: Script, query: str, names: list[str]) -> None:
    answer = administrator.get(f"trail?{query}")
    assert answer.status_code == 400
    assert [error["parameter"] for error in read_problem(answer)["errors"]] == names


def test_it_is_for_those_who_may_see_it(editor: Script) -> None:
    assert read_problem(editor.get("trail"))["detail"] == "Your account lacks the permission “runs.view_trailentry”."
