"""The page of the trail: filters in its address, pages of it, and the file."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import AsyncClient, Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runs import paging
from runs.models import TrailEntry
from runs.pages import trail, trail_query
from runs.pages.trail_query import PAGE_SIZE
from tests.runs.builders import make_run
from tests.runs.pages.reading import count_queries, read_words

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


@pytest.fixture
def auditor(client: Client) -> Client:
    user = User.objects.create_user("olga")
    user.user_permissions.add(Permission.objects.get(codename="view_trailentry"))
    client.force_login(user)
    return client


def make_entries(count: int, **values: Any) -> list[TrailEntry]:
    defaults = {"action": "run_started", "actor_name": "ada", "object_kind": "run", "address": "192.0.2.1"}
    return TrailEntry.objects.bulk_create(
        TrailEntry(**{**defaults, "object_id": str(number), "object_label": f"Flow #{number}", **values})
        for number in range(count)
    )


def list_labels(answer: Any) -> list[str]:
    return [row.entry.object_label for row in answer.context["rows"]]


def test_it_tells_who_did_what_when_and_from_where(auditor: Client) -> None:
    run = make_run()
    TrailEntry.objects.create(
        action="run_cancelled", actor_name="ada", token_name="nightly", address="192.0.2.1", object_kind="run",
        object_id=str(run.pk), object_label=str(run), details={"flow": "tea", "runs": 3}, request_id="req-12345678",
    )  # fmt: skip
    page = auditor.get("/trail/").content.decode()
    assert f"ada by the token “nightly” Cancelled a run {run} Run {run.pk} flow tea runs 3 192.0.2.1" in read_words(
        page
    )
    assert f'href="/runs/{run.pk}/"' in page and "req-12345678" in page


def test_it_is_for_those_who_may_see_it_and_linked_for_them(auditor: Client) -> None:
    assert 'href="/trail/"' in auditor.get("/account/").content.decode()
    other = Client()
    other.force_login(User.objects.create_user("paul"))
    assert 'href="/trail/"' not in other.get("/account/").content.decode()
    answer = other.get("/trail/")
    assert answer.status_code == 403
    assert "You may not see the trail: your account lacks “runs.view_trailentry”" in read_words(answer.content.decode())


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", 6),
        ("?actor=ada", 3),
        ("?action=token_made", 2),
        ("?kind=run&id=1", 1),
        ("?kind=run&id=%231", 1),
        ("?from=2026-01-02", 3),
        ("?to=2026-01-02", 3),
        ("?from=2026-01-02&to=2026-01-02", 0),
        ("?actor=ada&action=token_made", 0),
    ],
)
def test_filters_stand_in_the_address(client: Client, query: str, found: int) -> None:
    client.force_login(User.objects.create_superuser("root"))
    TrailEntry.objects.all()
    first = TrailEntry.objects.latest("pk").pk
    make_entries(3, at=datetime(2026, 1, 1, 12, tzinfo=UTC))
    make_entries(2, at=datetime(2026, 1, 3, tzinfo=UTC), action="token_made", actor_name="olga", object_kind="apitoken")
    make_entries(1, at=datetime(2026, 1, 5, tzinfo=UTC), action="user_added", actor_name="paul", object_kind="user")
    answer = client.get(f"/trail/{query}")
    assert len([row for row in answer.context["rows"] if row.entry.pk > first]) == found


def test_what_makes_no_sense_is_said_and_left_out(auditor: Client) -> None:
    page = read_words(
        auditor.get("/trail/?action=dance&kind=cat&from=yesterday&to=0001-01-01&before=x").content.decode()
    )
    for sentence in (
        "There is no action “dance”",
        "Nothing of the kind “cat” is told of",
        "“yesterday” is no day; write “from” as 2026-03-31",
        "“x” is no number of an entry",
    ):
        assert sentence in page
    assert auditor.get("/trail/?actor=%00&id=%00&to=9999-12-31&from=0001-01-01").status_code == 200


def test_pages_lead_back_and_forth_without_gaps(
    auditor: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_entries(2 * PAGE_SIZE + 5, action="token_made")
    with django_assert_num_queries(5):
        # The session, the user, its permissions, the numbers of the entries, and the entries.
        newest = auditor.get("/trail/?action=token_made")
    older = auditor.get(newest.context["page"].older_url)
    oldest = auditor.get(older.context["page"].older_url)
    assert len(list_labels(oldest)) == 5
    assert oldest.context["page"].older_url == ""
    back = auditor.get(oldest.context["page"].newer_url)
    assert list_labels(back) == list_labels(older)
    assert list_labels(auditor.get(back.context["page"].newer_url)) == list_labels(newest)
    labels = [label for answer in (newest, older, oldest) for label in list_labels(answer)]
    assert labels == [f"Flow #{number}" for number in reversed(range(2 * PAGE_SIZE + 5))]


def test_things_are_found_by_their_number_whatever_they_are(auditor: Client) -> None:
    make_entries(9)
    make_entries(9, object_kind="flow", action="flow_changed")
    assert list_labels(auditor.get("/trail/?id=7")) == ["Flow #7", "Flow #7"]
    assert list_labels(auditor.get("/trail/?id=7&actor=ada&action=flow_changed")) == ["Flow #7"]
    assert list_labels(auditor.get("/trail/?id=7&actor=olga")) == []


class TestFiltersThatFindNextToNothing:
    @pytest.fixture(autouse=True)
    def _few_are_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paging, "FIRST_LOOK", 10)
        monkeypatch.setattr(paging, "WINDOW", 20)
        monkeypatch.setattr(trail_query, "PAGE_SIZE", 5)

    def test_the_page_says_how_far_it_looked_and_leads_further(self, auditor: Client) -> None:
        (wanted,) = make_entries(1, actor_name="bob", action="run_cancelled", object_label="Wanted")
        for _ in range(40):
            make_entries(1, actor_name="bob")
            make_entries(1, action="run_cancelled")
        address = "/trail/?actor=bob&action=run_cancelled"
        first = auditor.get(address)
        looked_to = first.context["page"].looked_to
        assert f"Searched the entries back to #{looked_to}: none of them matches. Keep searching" in (
            words := read_words(first.content.decode())
        )
        assert "No entry matches" not in words and "Older" not in words
        second = auditor.get(first.context["page"].further_url)
        assert list_labels(second) == ["Wanted"] and second.context["page"].looked_to is None
        assert wanted.pk < looked_to
        upwards = auditor.get(f"{address}&after={wanted.pk}")
        assert list_labels(upwards) == []
        assert "Searched the entries up to #" in read_words(upwards.content.decode())
        assert "after=" in upwards.context["page"].further_url

    def test_it_looks_at_no_more_however_many_there_are(self, auditor: Client) -> None:
        counts = []
        for _ in range(2):
            for _ in range(40):
                make_entries(1, actor_name="bob")
                make_entries(1, action="run_cancelled")
            counts.append(count_queries(auditor, "/trail/?actor=bob&action=run_cancelled&kind=run"))
        # Besides whoever asks: two looks, and the time that the second begins at.
        assert counts == [3 + 2] * 2

    def test_the_file_has_all_that_match_however_far_apart(
        self, auditor: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trail, "BATCH", 2)
        for number in range(4):
            make_entries(1, actor_name="bob", action="run_cancelled", object_label=f"Wanted {number}")
            for _ in range(20):
                make_entries(1, actor_name="bob")
                make_entries(1, action="run_cancelled")
        answer: Any = auditor.get("/trail/export.csv?actor=bob&action=run_cancelled")
        rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
        assert [row["object"] for row in rows] == ["Wanted 3", "Wanted 2", "Wanted 1", "Wanted 0"]


def test_the_file_holds_what_the_filters_find_and_no_formula(auditor: Client) -> None:
    make_entries(2, actor_name="=cmd|' /C calc'!A0", object_label="@SUM(A1)", details={"note": "=1+1"})
    answer: Any = auditor.get("/trail/export.csv?action=run_started")
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [row["object_id"] for row in rows] == ["1", "0"]
    assert rows[0]["actor"] == "'=cmd|' /C calc'!A0"
    assert rows[0]["object"] == "'@SUM(A1)"
    assert rows[0]["details"] == '{"note":"=1+1"}'
    assert answer["Content-Disposition"].startswith('attachment; filename="toolflow-trail-')
    assert TrailEntry.objects.latest("pk").action == "trail_exported"


def test_the_file_means_the_days_of_whoever_asks_as_the_list_does(auditor: Client) -> None:
    # Still the 1st in Greenwich, and the 2nd in Auckland.
    make_entries(1, at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    auditor.cookies["toolflow_time_zone"] = "Pacific/Auckland"
    for day, count in (("2026-03-01", 0), ("2026-03-02", 1)):
        query = f"action=run_started&from={day}&to={day}"
        file: Any = auditor.get(f"/trail/export.csv?{query}")
        assert len(list_labels(auditor.get(f"/trail/?{query}"))) == count
        assert file.getvalue().count(b"run_started") == count


@pytest.mark.django_db(transaction=True)
async def test_an_asynchronous_server_sends_the_first_entries_before_it_reads_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trail, "BATCH", 2)
    await sync_to_async(make_entries)(1, object_label="Old", at=timezone.now() - timedelta(days=400))
    await sync_to_async(make_entries)(4)
    client = AsyncClient()
    user = await User.objects.acreate(username="root", is_superuser=True)
    await sync_to_async(client.force_login)(user)
    answer: Any = await client.get("/trail/export.csv?action=run_started")
    parts = aiter(answer.streaming_content)
    assert (await anext(parts)).startswith(b"at,actor,")
    first = await anext(parts)
    # What goes before it was read is not in the file.
    await sync_to_async(call_command)("purge_trail", "--days=365")
    rest = b"".join([part async for part in parts])
    labels = [[row[7] for row in csv.reader(io.StringIO(part.decode()))] for part in (first, rest)]
    assert labels == [["Flow #3", "Flow #2"], ["Flow #1", "Flow #0"]]
    await sync_to_async(connections.close_all)()


def test_a_file_for_filters_that_make_no_sense_is_refused(auditor: Client) -> None:
    answer = auditor.get("/trail/export.csv?action=dance")
    assert answer.status_code == 400
    assert "There is no action “dance”" in read_words(answer.content.decode())


def test_old_entries_are_deleted_by_a_command_which_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    make_entries(3, at=timezone.now() - timedelta(days=400))
    make_entries(1)
    call_command("purge_trail", "--days=365", "--dry-run")
    call_command("purge_trail", "--days=365")
    assert capsys.readouterr().out == (
        "3 entries are older than 365 days.\n3 entries deleted that were older than 365 days.\n"
    )
    told, kept = TrailEntry.objects.all()
    assert (told.action, told.details["entries"], kept.action) == ("trail_purged", 3, "run_started")
    with pytest.raises(CommandError, match="last 30 days are always kept"):
        call_command("purge_trail", "--days=1")
