"""Runs of which a purge that was broken off took a part: the archive makes them whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from runs.archive.restoring import restore_archive
from runs.archive.writing import write_archive
from runs.models import Attempt, PurgedDay, Run
from runs.retention import purging
from runs.retention.pacing import Pace
from runs.retention.policy import Part
from runs.retention.purging import Task, purge
from tests.runs.archive.archives import purge_all, read_documents
from tests.runs.recounting import read_statistics
from tests.runs.retention.aged_runs import NOW, count_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def large(runs: list[Run]) -> Run:
    """The run with the most attempts."""
    return max(runs, key=lambda run: run.attempt_count)


def break_off(run: Run, part: Part, monkeypatch: pytest.MonkeyPatch, *, after: int = 2) -> None:
    """Purge a run, one attempt at a time, and be stopped after so many of them."""
    left = iter(range(after))

    def stop(_self: Pace, *, attempts: int, taken: float) -> None:
        if next(left) == after - 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(purging, "MOST", 1)
        patch.setattr(Pace, "come_to_end", stop)
        with pytest.raises(KeyboardInterrupt):
            purge(Task(run.flow, part, NOW), pace=Pace(attempts=1), only=[run.pk])


@pytest.mark.parametrize("part", [Part.RUNS, Part.OUTPUTS])
def test_they_are_as_they_were_and_count_once(
    runs: list[Run], archive: Path, large: Run, monkeypatch: pytest.MonkeyPatch, part: Part
) -> None:
    before, rows, statistics = read_documents(runs), count_rows(runs), read_statistics()
    break_off(large, part, monkeypatch)
    assert read_documents(runs) != before
    restored = restore_archive(archive)
    assert (restored.runs, restored.present, len(restored.misfits)) == (1, len(runs) - 1, 0)
    assert read_documents(runs) == before and count_rows(runs) == rows and read_statistics() == statistics
    assert not PurgedDay.objects.exists()


def test_a_file_that_has_less_takes_nothing_away(
    runs: list[Run], large: Run, tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_documents(runs)
    break_off(large, Part.RUNS, monkeypatch)
    write_archive(tmp_path / "less.jsonl.gz", run_ids=[run.pk for run in runs])
    restore_archive(archive)
    restored = restore_archive(tmp_path / "less.jsonl.gz")
    assert (restored.runs, restored.present) == (0, len(runs)) and read_documents(runs) == before


def test_a_file_that_was_written_too_late_is_said_to_have_no_more(
    runs: list[Run], large: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off(large, Part.RUNS, monkeypatch)
    write_archive(tmp_path / "late.jsonl.gz", run_ids=[run.pk for run in runs])
    restored = restore_archive(tmp_path / "late.jsonl.gz")
    assert (restored.runs, restored.present, list(restored.misfits.run_ids)) == (0, len(runs) - 1, [large.pk])
    assert "attempts of it are missing here, and the file doesn’t have them either" in str(restored.misfits)


def test_where_both_lack_something_the_run_is_named_and_stays(
    runs: list[Run], large: Run, tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge_all([large], Part.OUTPUTS)
    write_archive(tmp_path / "figures.jsonl.gz", run_ids=[large.pk])
    restore_archive(archive)
    break_off(large, Part.RUNS, monkeypatch)
    attempts = Attempt.objects.count()
    with pytest.raises(CommandError) as refused:
        call_command("restore_archive", str(tmp_path / "figures.jsonl.gz"))
    assert str(refused.value) == (
        "1 runs were left out, since they can’t be stored. "
        f"Line 3, run {large.pk}: both the run that is there and that of the file lack a part of it."
    )
    assert Attempt.objects.count() == attempts
