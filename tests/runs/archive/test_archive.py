"""History in files: all of it comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from flows.models import Flow
from runs.archive import restoring
from runs.archive.reading import BadArchiveError
from runs.archive.restoring import restore_archive
from runs.archive.writing import write_archive
from runs.management.commands import purge_history
from runs.models import DailyRuns, PurgedDay, Run, TrailEntry
from runs.retention.policy import Part
from tests.runs.archive.archives import forget_everything, purge_all, read_documents
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics
from tests.runs.retention.aged_runs import count_rows, keep

pytestmark = pytest.mark.django_db


class TestRoundTrip:
    def test_purged_runs_come_back_as_they_were_and_statistics_count_them_once(
        self, runs: list[Run], archive: Path
    ) -> None:
        before, rows, statistics = read_documents(runs), count_rows(runs), read_statistics()
        purge_all(runs)
        restored = restore_archive(archive)
        assert (restored.runs, restored.counted, restored.taken) == (len(runs), 0, [])
        assert read_documents(runs) == before
        assert count_rows(runs) == rows
        assert read_statistics() == statistics
        assert not PurgedDay.objects.exists()

    def test_another_installation_gets_flows_versions_and_statistics_too(self, runs: list[Run], archive: Path) -> None:
        before, statistics = read_documents(runs), read_statistics()
        flows = set(Flow.objects.values_list("name", "title"))
        forget_everything(runs)
        restored = restore_archive(archive)
        assert restored.counted == len(runs)
        assert read_documents(runs) == before
        assert set(Flow.objects.values_list("name", "title")) == flows
        assert not Flow.objects.exclude(live_version=None).exists()
        assert sum(DailyRuns.objects.values_list("runs", flat=True)) == len(runs)
        assert [len(rows) for rows in read_statistics().values()] == [len(rows) for rows in statistics.values()]

    def test_a_run_still_names_the_one_that_it_repeats(self, runs: list[Run], tmp_path: Path) -> None:
        Run.objects.filter(pk=runs[1].pk).update(again_of=runs[0].pk)
        path = tmp_path / "again.jsonl.gz"
        write_archive(path, run_ids=[run.pk for run in runs])
        purge_all(runs)
        restore_archive(path)
        found = {document["id"]: document["again_of"] for document in read_documents(runs)}
        assert found == {**dict.fromkeys(found), runs[1].pk: runs[0].pk}

    def test_new_runs_get_numbers_after_those_that_came_back(self, runs: list[Run], archive: Path) -> None:
        purge_all(runs)
        restore_archive(archive)
        assert make_run().pk > runs[-1].pk

    def test_no_new_run_takes_a_number_that_is_still_to_come_back(
        self, runs: list[Run], archive: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        numbers = sorted(run.pk for run in runs)
        forget_everything(runs)
        forget_numbers()
        monkeypatch.setattr(restoring, "MOST_ATTEMPTS", 1)
        started: list[int] = []
        restored = restore_archive(archive, report=lambda _restored: started.append(make_run().pk))
        assert (restored.runs, restored.taken) == (len(numbers), [])
        assert min(started) > numbers[-1]

    def test_runs_that_lost_their_outputs_get_them_back(self, runs: list[Run], archive: Path) -> None:
        before, statistics = read_documents(runs), read_statistics()
        purge_all(runs, Part.OUTPUTS)
        assert restore_archive(archive).runs == len(runs)
        assert read_documents(runs) == before and read_statistics() == statistics
        assert not PurgedDay.objects.exists()

    def test_what_is_there_already_is_left_alone(self, runs: list[Run], archive: Path) -> None:
        restored = restore_archive(archive)
        assert (restored.runs, restored.present) == (0, len(runs))

    def test_a_number_that_another_run_has_is_said(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        purge_all(runs)
        make_run(make_version(), pk=runs[0].pk)
        with pytest.raises(CommandError) as refused:
            call_command("restore_archive", str(archive))
        assert str(refused.value) == (f"1 runs were left out, since other runs have their numbers here: {runs[0].pk}")
        assert Run.objects.count() == len(runs)


def forget_numbers() -> None:
    """Let the numbers of runs begin anew, as in an installation that had none."""
    sqlite = "DELETE FROM sqlite_sequence WHERE name = 'runs_run'"
    with connection.cursor() as cursor:
        cursor.execute(sqlite if connection.vendor == "sqlite" else "ALTER SEQUENCE runs_run_id_seq RESTART")


class TestPolicies:
    """What a policy would take away again is not simply put back."""

    def test_nothing_comes_back_that_would_go_within_the_hour(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        flow = runs[0].flow
        mine = [run for run in runs if run.flow_id == flow.pk]
        keep(flow, days=30)
        purge_all(runs)
        with pytest.raises(CommandError, match="Nothing was restored") as refused:
            call_command("restore_archive", str(archive))
        assert "give --force" in str(refused.value)
        assert capsys.readouterr().err == (
            f"Within the hour policies would take away again of “{flow.name}” (runs 30 days, outputs for ever) "
            f"{len(mine)} runs.\n"
        )
        assert not Run.objects.exists()

    def test_with_force_it_comes_back_and_is_warned_of(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str], settings: Any
    ) -> None:
        settings.TOOLFLOW_KEEP_OUTPUTS_DAYS = 30
        purge_all(runs)
        call_command("restore_archive", str(archive), "--force")
        assert "the outputs of" in capsys.readouterr().err
        assert Run.objects.count() == len(runs)

    def test_the_check_tells_it_too(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str], settings: Any
    ) -> None:
        settings.TOOLFLOW_KEEP_DAYS = 30
        forget_everything(runs)
        call_command("restore_archive", str(archive), "--check")
        printed = capsys.readouterr()
        assert "is whole" in printed.out and "Within the hour policies would take away again" in printed.err

    def test_what_is_young_enough_comes_back_without_a_word(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str], settings: Any
    ) -> None:
        settings.TOOLFLOW_KEEP_DAYS = 36_500
        purge_all(runs)
        call_command("restore_archive", str(archive))
        assert capsys.readouterr().err == "" and Run.objects.count() == len(runs)

    def test_a_file_without_outputs_has_none_to_lose(
        self, runs: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: Any
    ) -> None:
        purge_all(runs, Part.OUTPUTS)
        write_archive(tmp_path / "figures.jsonl.gz", run_ids=[run.pk for run in runs])
        purge_all(runs)
        settings.TOOLFLOW_KEEP_OUTPUTS_DAYS = 30
        call_command("restore_archive", str(tmp_path / "figures.jsonl.gz"))
        assert capsys.readouterr().err == "" and Run.objects.count() == len(runs)


class TestTrail:
    def test_it_tells_what_was_written_and_what_was_put_back(self, runs: list[Run], tmp_path: Path) -> None:
        path, attempts = tmp_path / "old.jsonl.gz", sum(run.attempt_count for run in runs)
        call_command("archive_history", "--before", "2024-11-21", "--out", str(path))
        purge_all(runs[1:])
        present = Run.objects.count()
        call_command("restore_archive", str(path))
        written, begun, restored = TrailEntry.objects.filter(action__startswith="history_").order_by("pk")
        assert (written.action, written.actor_name, written.object_label) == ("history_archived", "", "old.jsonl.gz")
        assert written.details == {
            "runs": len(runs), "attempts": attempts, "archive": "old.jsonl.gz", "ended_before": "2024-11-21",
        }  # fmt: skip
        assert (restored.action, restored.object_label) == ("history_restored", "old.jsonl.gz")
        assert (begun.action, begun.object_label) == (restored.action, restored.object_label)
        assert begun.details == {"begun": True}
        assert restored.details["runs"] == len(runs) - present > 0
        assert (restored.details["were_there"], restored.details["left_out"]) == (present, 0)

    def test_the_archive_of_one_flow_is_told_of_that_flow(self, runs: list[Run], tmp_path: Path) -> None:
        flow = runs[0].flow
        call_command("archive_history", "--flow", flow.name, "--out", str(tmp_path / "old.jsonl.gz"))
        entry = TrailEntry.objects.get(action="history_archived")
        assert (entry.object_kind, entry.object_label) == ("flow", str(flow))

    def test_what_was_broken_off_is_told_as_far_as_it_came(
        self, runs: list[Run], archive: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        purge_all(runs)
        monkeypatch.setattr(restoring, "MOST_ATTEMPTS", 1)
        real, calls = restoring._restore, iter([True, False])

        def fail_later(*arguments: Any) -> None:
            if not next(calls):
                raise BadArchiveError("The disk is full.")
            real(*arguments)

        monkeypatch.setattr(restoring, "_restore", fail_later)
        with pytest.raises(CommandError, match="The disk is full"):
            call_command("restore_archive", str(archive))
        _, end = TrailEntry.objects.filter(action="history_restored").order_by("pk")
        assert end.details["runs"] == Run.objects.count() > 0

    def test_nothing_is_back_before_the_trail_says_that_it_comes(self, runs: list[Run], archive: Path) -> None:
        purge_all(runs)

        def fail() -> None:
            raise OperationalError("disk full")

        with pytest.raises(BadArchiveError, match="the database fails: disk full"):
            restore_archive(archive, begin=fail)
        assert not Run.objects.exists()

    def test_what_puts_nothing_back_is_no_entry(self, runs: list[Run], archive: Path) -> None:
        call_command("restore_archive", str(archive))
        assert not TrailEntry.objects.filter(action="history_restored").exists()


class TestPurgeWithArchive:
    def test_what_goes_is_in_the_files_first(
        self, runs: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = read_documents(runs)
        call_command("purge_history", "--before", "2024-11-21", "--archive", str(tmp_path / "old"))
        assert not Run.objects.exists()
        files = sorted((tmp_path / "old").iterdir())
        assert len(files) == len({run.flow_id for run in runs})
        assert oct(files[0].stat().st_mode & 0o777) == "0o600"
        for file in files:
            call_command("restore_archive", str(file))
        assert read_documents(runs) == before

    def test_nothing_goes_if_it_cannot_be_written(self, runs: list[Run], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CommandError, match="nothing was taken away"):
            call_command("purge_history", "--before", "2024-11-21", "--archive", str(tmp_path / "file"))
        assert Run.objects.count() == len(runs)

    def test_where_it_fails_for_a_later_flow_that_one_is_named(
        self, runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, second = sorted({run.flow for run in runs}, key=lambda flow: flow.name)

        def write(path: Path, **options: Any) -> Any:
            if path.name.startswith(second.name):
                raise OSError(28, "No space left on device")
            return write_archive(path, **options)

        monkeypatch.setattr(purge_history, "write_archive", write)
        with pytest.raises(CommandError) as refused:
            call_command("purge_history", "--before", "2024-11-21", "--archive", str(tmp_path))
        assert f"No space left on device. Of the flow “{second.name}” nothing was taken away" in str(refused.value)
        assert {run.flow_id for run in Run.objects.all()} == {second.pk}

    def test_a_dry_run_takes_nothing_away(self, runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
        call_command("purge_history", "--before", "2024-11-21", "--dry-run")
        lines = capsys.readouterr().out.splitlines()
        assert sum(int(line.split(": ")[1].split(" ")[0]) for line in lines if "would be deleted" in line) == len(runs)
        assert Run.objects.count() == len(runs)
