"""The page of the audit log: filters in its address, pages of it, and the file."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from runs.models import AuditEntry
from runs.pages import audit_log
from tests.runs.builders import make_run
from tests.runs.pages.reading import get_page, read_words

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


@pytest.fixture
def auditor(client: Client) -> Client:
    user = User.objects.create_user("olga")
    user.user_permissions.add(Permission.objects.get(codename="view_trailentry"))
    client.force_login(user)
    return client


def make_entries(count: int, **values: Any) -> None:
    defaults = {"action": "run_started", "actor_name": "ada", "object_kind": "run", "address": "192.0.2.1"}
    AuditEntry.objects.bulk_create(
        AuditEntry(**{**defaults, "object_id": str(number), "object_label": f"Flow #{number}", **values})
        for number in range(count)
    )


def list_labels(answer: Any) -> list[str]:
    return [row["entry"].object_label for row in answer.context["rows"]]


def test_an_entry_shows_who_did_what_when_and_from_where(auditor: Client) -> None:
    run = make_run()
    AuditEntry.objects.create(
        action="run_cancelled", actor_name="ada", token_name="nightly", address="192.0.2.1", object_kind="run",
        object_id=str(run.pk), object_label=str(run), request_id="req-12345678",
        details={"flow": "tea", "keep days": {"from": 30, "to": 1}, "note": "<b>\u202e"},
    )  # fmt: skip
    page = get_page(auditor, "/trail/")
    words = read_words(page)
    for text in ("ada with token “nightly”", f"{run} Run {run.pk}", "flow tea", "keep days 30 → 1", "192.0.2.1"):
        assert text in words
    assert f'href="/runs/{run.pk}/"' in page and "req-12345678" in page
    assert "&lt;b&gt;\\u202e" in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("actor=ada", ["Flow #2", "Flow #1", "Flow #0"]),
        ("action=token_made", ["Flow #1", "Flow #0"]),
        ("kind=run&id=1", ["Flow #1"]),
        ("id=%231&to=2026-01-09", ["Flow #1", "Flow #1"]),
        ("from=2026-01-02&to=2026-01-05", ["Flow #0", "Flow #1", "Flow #0"]),
        ("from=2026-01-02&to=2026-01-02", []),
        ("actor=ada&action=token_made", []),
    ],
)
def test_filters_stand_in_the_address(auditor: Client, query: str, found: list[str]) -> None:
    make_entries(3, at=datetime(2026, 1, 1, 12, tzinfo=UTC))
    make_entries(2, at=datetime(2026, 1, 3, tzinfo=UTC), action="token_made", actor_name="olga", object_kind="apitoken")
    make_entries(1, at=datetime(2026, 1, 5, tzinfo=UTC), action="user_added", actor_name="paul", object_kind="user")
    assert list_labels(auditor.get(f"/trail/?{query}")) == found
    file: Any = auditor.get(f"/trail/export.csv?{query}")
    rows = list(csv.DictReader(io.StringIO(file.getvalue().decode())))
    assert [row["object"] for row in rows if row["action"] != "trail_exported"] == found


def test_pages_lead_back_and_forth(
    auditor: Client, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr(audit_log, "PAGE_SIZE", 5)
    make_entries(13, action="token_made")
    with django_assert_num_queries(5):
        # The session, the user, its permissions, and the entries.
        newest = auditor.get("/trail/?action=token_made")
    older = auditor.get(newest.context["page"].older_url)
    oldest = auditor.get(older.context["page"].older_url)
    labels = [label for answer in (newest, older, oldest) for label in list_labels(answer)]
    assert labels == [f"Flow #{number}" for number in reversed(range(13))]
    assert oldest.context["page"].older_url == ""
    back = auditor.get(oldest.context["page"].newer_url)
    assert list_labels(back) == list_labels(older)
    assert list_labels(auditor.get(back.context["page"].newer_url)) == list_labels(newest)


def test_the_file_is_written_in_batches_and_holds_no_formula(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "BATCH_SIZE", 2)
    make_entries(5, actor_name="=cmd|' /C calc'!A0", object_label="@SUM(A1)", details={"note": "=1+1"})
    answer: Any = auditor.get("/trail/export.csv?action=run_started")
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [row["object_id"] for row in rows] == ["4", "3", "2", "1", "0"]
    assert {(row["actor"], row["object"], row["details"]) for row in rows} == {
        ("'=cmd|' /C calc'!A0", "'@SUM(A1)", '{"note":"=1+1"}')
    }
    assert answer["Content-Disposition"].startswith('attachment; filename="toolflow-trail-')
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.details) == ("trail_exported", {"filters": {"action": "run_started"}})


def test_list_and_file_mean_the_days_of_the_viewer(auditor: Client) -> None:
    # Still the 1st in Greenwich, and the 2nd in Auckland.
    make_entries(1, at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    auditor.cookies["toolflow_time_zone"] = "Pacific/Auckland"
    for day, count in (("2026-03-01", 0), ("2026-03-02", 1)):
        query = f"action=run_started&from={day}&to={day}"
        file: Any = auditor.get(f"/trail/export.csv?{query}")
        assert len(list_labels(auditor.get(f"/trail/?{query}"))) == count
        assert file.getvalue().count(b"run_started") == count
