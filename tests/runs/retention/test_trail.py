"""What is taken away is told in the trail: of which flow, how much, and by whom."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from runs.models import Run, TrailEntry
from runs.retention import purging, tasks
from runs.retention.pacing import Pace
from tests.runs.pages.reading import read_words
from tests.runs.retention.aged_runs import keep, store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


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
    ((actor, label, details),) = read_trail()
    assert (actor, label) == ("ToolFlow", str(flow))
    assert (details["runs"], details["attempts"]) == (len(mine), sum(run.attempt_count for run in mine))
    assert details["ended_before"] < timezone.now().isoformat()
    # There is nothing more to tell of.
    tasks.purge_due()
    assert len(read_trail()) == 1


def test_what_somebody_does_by_hand_has_no_actor_and_names_the_archive(runs: list[Run], tmp_path: Path) -> None:
    flow = runs[0].flow
    today = timezone.now().date()
    call_command("purge_history", flow=flow.name, before=today, archive=tmp_path, verbosity=0)
    (archive,) = tmp_path.iterdir()
    ((actor, label, details),) = read_trail()
    assert (actor, label, details["archive"]) == ("", str(flow), archive.name)
    assert details["runs"] == sum(run.flow == flow for run in runs) - Run.objects.filter(flow=flow).count() > 0
    assert details["ended_before"] == f"{today}T00:00:00+00:00"


def test_outputs_alone_are_told_of_as_such_and_a_dry_run_not_at_all(runs: list[Run]) -> None:
    options: dict[str, Any] = {"before": timezone.now().date(), "outputs": True, "flow": runs[0].flow.name}
    call_command("purge_history", dry_run=True, **options)
    assert read_trail() == []
    call_command("purge_history", **options)
    assert [details["only"] for _, _, details in read_trail()] == ["outputs"]


def test_what_was_broken_off_is_told_as_far_as_it_came(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    count = Run.objects.count()
    keep(runs[0].flow, days=1)
    real = purging._purge_batch
    calls = iter([True, False])

    def fail_later(*arguments: Any) -> Any:
        if not next(calls):
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(purging, "_purge_batch", fail_later)
    monkeypatch.setattr(tasks, "Pace", partial(Pace, attempts=1))
    with pytest.raises(KeyboardInterrupt):
        tasks.purge_due()
    assert [details["runs"] for _, _, details in read_trail()] == [count - Run.objects.count()]


def test_the_page_of_the_trail_says_who_and_how_many(runs: list[Run], client: Client) -> None:
    keep(runs[0].flow, days=1)
    tasks.purge_due()
    client.force_login(User.objects.create_superuser("ada"))
    words = read_words(client.get("/trail/?actor=ToolFlow").content.decode())
    assert "ToolFlow" in words and "Deleted runs" in words and "attempts" in words
