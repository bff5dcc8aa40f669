"""What is taken away is told in the trail: of which flow, how much, and by whom; that it began whatever comes then."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from runs.management.commands import purge_trail
from runs.models import Attempt, Run, TrailEntry
from runs.retention import purging, removal, tasks
from runs.retention.pacing import Pace
from runs.retention.policy import Part
from runs.retention.purging import Task, purge
from runs.retention.telling import PurgeTelling
from tests.runs.pages.reading import read_words
from tests.runs.retention.aged_runs import NOW, keep, store_aged_runs

pytestmark = pytest.mark.django_db


def read_trail() -> list[tuple[str, str, dict[str, Any]]]:
    entries = TrailEntry.objects.filter(action="data_deleted").order_by("pk")
    return [(entry.actor_name, entry.object_label, dict(entry.details)) for entry in entries]


@pytest.fixture
def runs() -> list[Run]:
    """Runs of one flow and more, ended lately and long ago."""
    return store_aged_runs()


def test_what_the_worker_does_by_itself_is_toolflows_doing(runs: list[Run]) -> None:
    flow = runs[0].flow
    mine = [run for run in runs if run.flow == flow]
    keep(flow, days=1)
    tasks.purge_due()
    assert not Run.objects.filter(flow=flow).exists()
    (begin, (actor, label, details)) = read_trail()
    assert begin == ("ToolFlow", str(flow), {"begun": True, "ended_before": details["ended_before"]})
    assert (actor, label) == ("ToolFlow", str(flow))
    assert (details["runs"], details["attempts"]) == (len(mine), sum(run.attempt_count for run in mine))
    assert details["ended_before"] < timezone.now().isoformat()
    # There is nothing more to tell of.
    tasks.purge_due()
    assert len(read_trail()) == 2


def test_what_somebody_does_by_hand_has_no_actor(runs: list[Run]) -> None:
    flow = runs[0].flow
    today = timezone.now().date()
    call_command("purge_history", flow=flow.name, before=today, verbosity=0)
    begin, (actor, label, details) = read_trail()
    assert (actor, label) == ("", str(flow))
    assert begin[2] == {"begun": True, "ended_before": details["ended_before"]}
    assert details["runs"] == sum(run.flow == flow for run in runs) - Run.objects.filter(flow=flow).count() > 0
    assert details["ended_before"] == f"{today}T00:00:00+00:00"


def test_outputs_alone_are_told_of_as_such_and_a_dry_run_not_at_all(runs: list[Run]) -> None:
    options: dict[str, Any] = {"before": timezone.now().date(), "outputs": True, "flow": runs[0].flow.name}
    call_command("purge_history", dry_run=True, **options)
    assert read_trail() == []
    call_command("purge_history", **options)
    assert [details["only"] for _, _, details in read_trail()] == ["outputs", "outputs"]


def test_what_was_broken_off_is_told_as_far_as_it_came(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    count = Run.objects.count()
    keep(runs[0].flow, days=1)
    real = removal.delete_runs
    calls = iter([True, False])

    def fail_later(*arguments: Any) -> Any:
        if not next(calls):
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(purging, "delete_runs", fail_later)
    monkeypatch.setattr(tasks, "Pace", partial(Pace, attempts=1))
    with pytest.raises(KeyboardInterrupt):
        tasks.purge_due()
    assert [details.get("runs") for _, _, details in read_trail()] == [None, count - Run.objects.count()]


@pytest.mark.parametrize("part", [Part.RUNS, Part.OUTPUTS])
@pytest.mark.parametrize("large", [1, 1_000])
def test_nothing_is_gone_before_the_trail_says_that_it_goes(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, part: Part, large: int
) -> None:
    """A process that is killed says nothing at the end: what it began is told where the first of it goes."""
    monkeypatch.setattr(purging, "MOST", large)
    task = Task(runs[0].flow, part, NOW)

    def read_rows() -> list[Any]:
        removed = Run.objects.exclude(outputs_removed_at=None), Attempt.objects.filter(input__isnull=True)
        return [rows.count() for rows in (Run.objects, Attempt.objects, *removed)]

    def fail() -> None:
        raise OperationalError("disk full")

    before = read_rows()
    with pytest.raises(OperationalError):
        purge(task, pace=Pace(attempts=1), begin=fail)
    assert read_rows() == before
    purge(task, pace=Pace(attempts=1), begin=PurgeTelling(task, by_worker=True).begin, is_over=lambda: True)
    assert read_rows() != before
    only = {"only": "outputs"} if part is Part.OUTPUTS else {}
    assert [details for _, _, details in read_trail()] == [{"begun": True, "ended_before": NOW.isoformat(), **only}]


def test_where_nothing_is_due_there_is_nothing_to_tell(runs: list[Run]) -> None:
    keep(runs[0].flow, days=36_500)
    tasks.purge_due()
    assert read_trail() == []


def test_old_entries_of_the_trail_do_not_go_untold_where_that_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = timezone.now() - timedelta(days=400)
    for _ in range(5):
        TrailEntry.objects.create(action="run_started", at=long_ago)
    real, calls = purge_trail._purge_batch, iter([True, True, False])

    def fail_later(before: datetime) -> int:
        if not next(calls):
            raise KeyboardInterrupt
        return real(before)

    monkeypatch.setattr(purge_trail, "BATCH", 2)
    monkeypatch.setattr(purge_trail, "_purge_batch", fail_later)
    with pytest.raises(KeyboardInterrupt):
        call_command("purge_trail", "--days=365")
    entries = TrailEntry.objects.order_by("pk").values_list("action", "details__entries")
    assert list(entries) == [("run_started", None), ("trail_purged", 2), ("trail_purged", 2)]


def test_entries_of_the_trail_stay_where_that_can_not_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    TrailEntry.objects.create(action="run_started", at=timezone.now() - timedelta(days=400))

    def fail(**_: Any) -> None:
        raise OperationalError("disk full")

    monkeypatch.setattr(purge_trail, "leave_trail", fail)
    with pytest.raises(OperationalError):
        call_command("purge_trail", "--days=365")
    assert TrailEntry.objects.get().action == "run_started"


def test_the_page_of_the_trail_says_who_and_how_many(runs: list[Run], client: Client) -> None:
    keep(runs[0].flow, days=1)
    tasks.purge_due()
    client.force_login(User.objects.create_superuser("ada"))
    words = read_words(client.get("/trail/?actor=ToolFlow").content.decode())
    assert "ToolFlow" in words and "Deleted runs" in words and "attempts" in words
