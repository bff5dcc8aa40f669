"""What is due is deleted, all else stays, in short transactions and whatever interrupts them."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.api.run_documents import dump_without_addresses, load_run
from runs.locks import STATISTICS, acquire, release
from runs.models import Attempt, DailyRuns, Issue, PurgedDay, Run, RunStatus, TrailEntry
from runs.retention import purging
from runs.retention.policy import Part, PurgeTask, build_tasks, read_policy
from runs.retention.purging import Purged, purge
from runs.statistics.rebuild import LEASE, rebuild_flow
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics
from tests.runs.retention.aged_runs import NOW, count_rows, ended_before, keep, read_texts, store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def purge_whole(task: PurgeTask) -> Purged:
    purged = Purged()
    for purged in purge(task):  # noqa: B007  # the last one is the total
        pass
    return purged


def purge_flows_of(runs: list[Run], part: Part = Part.RUNS) -> list[Purged]:
    """Purge all runs of these flows that ended before ``NOW``."""
    flows = {run.flow_id: run.flow for run in runs}
    return [purge_whole(PurgeTask(flow, part, NOW)) for flow in flows.values()]


def follow_policies(runs: list[Run]) -> None:
    for flow in {run.flow_id: run.flow for run in runs}.values():
        flow.refresh_from_db()
        for task in build_tasks(flow, read_policy(flow), NOW):
            purge_whole(task)


def set_batch_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setitem(purging.BATCH_SIZE, connection.vendor, size)


class TestRuns:
    @pytest.mark.parametrize("size", [1, 4, 1_000])
    def test_due_runs_are_deleted_with_all_their_rows(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        set_batch_size(monkeypatch, size)
        runs = store_aged_runs()
        keep(runs[0].flow, days=20)
        mine = [run for run in runs if run.flow == runs[0].flow]
        old = ended_before(mine, 20)
        kept = [run for run in runs if run not in old]
        before = count_rows(kept)
        assert 0 < len(old) < len(mine) < len(runs) and all(count_rows(old).values())
        follow_policies(runs)
        assert set(count_rows(old).values()) == {0} and count_rows(kept) == before

    def test_unfinished_runs_stay_however_old_they_are(self) -> None:
        run = make_run(created_at=NOW - timedelta(days=400))
        purge_flows_of([run])
        assert Run.objects.get() == run

    def test_uncounted_runs_stay_a_week_longer(self) -> None:
        version = make_version()
        ages = {days: NOW - timedelta(days=days) for days in (6, 8)}
        young, _old = (make_run(version, status=RunStatus.SUCCEEDED, ended_at=at) for at in ages.values())
        purge_flows_of([young])
        assert Run.objects.get() == young

    def test_a_closed_purge_goes_on_with_the_next_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_batch_size(monkeypatch, 1)
        runs = store_aged_runs(12)
        task = PurgeTask(runs[0].flow, Part.RUNS, NOW)
        due, _ = task.count()
        with closing(purge(task)) as batches:
            first = next(one for one in batches if one.runs).runs
        assert first == 1 and first + purge_whole(task).runs == due

    def test_runs_with_the_same_end_are_all_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_batch_size(monkeypatch, 2)
        version = make_version()
        for _ in range(5):
            make_run(version, status=RunStatus.SUCCEEDED, ended_at=NOW - timedelta(days=30))
        assert purge_whole(PurgeTask(version.flow, Part.RUNS, NOW)).runs == 5

    @pytest.mark.parametrize("part", Part)
    def test_statements_do_not_grow_with_the_runs_of_a_batch(self, monkeypatch: pytest.MonkeyPatch, part: Part) -> None:
        set_batch_size(monkeypatch, 1_000)
        runs = store_aged_runs(30)
        task = PurgeTask(runs[0].flow, part, NOW)
        counts, purged = [], []
        for limit in (ended_before(runs, 38)[-1].ended_at, NOW):
            assert limit is not None
            with CaptureQueriesContext(connection) as queries:
                purged.append(purge_whole(PurgeTask(task.flow, part, limit + timedelta(seconds=1))).runs)
            counts.append(len(queries))
        assert 0 < purged[0] < 5 < purged[1] and counts[0] + 3 >= counts[1]

    @pytest.mark.parametrize(("running", "pauses"), [(False, 0), (True, 1)])
    def test_it_pauses_only_while_runs_are_in_flight(
        self, monkeypatch: pytest.MonkeyPatch, running: bool, pauses: int
    ) -> None:
        slept: list[float] = []
        monkeypatch.setattr(purging.time, "sleep", slept.append)
        run = make_run(status=RunStatus.SUCCEEDED, ended_at=NOW - timedelta(days=30))
        if running:
            make_run(status=RunStatus.RUNNING, lease_until=timezone.now())
        (purged,) = purge_flows_of([run])
        assert slept == [purged.seconds * purging.PAUSE_RATIO] * pauses


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL cuts files while others write")
def test_no_table_that_loses_rows_is_locked_to_cut_its_file() -> None:
    tables = {relation.related_model._meta.db_table for relation in Run._meta.related_objects}
    tables |= {"runs_run", "runs_attempt", "runs_issue", "runs_tokenusage", "runs_webhooktry", "runs_searchdocument"}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT main.relname FROM pg_class AS main LEFT JOIN pg_class AS toast ON toast.oid = main.reltoastrelid "
            "WHERE main.relname = ANY(%s) AND 'vacuum_truncate=false' = ANY(main.reloptions) "
            "AND (toast.oid IS NULL OR 'vacuum_truncate=false' = ANY(toast.reloptions))",
            [list(tables)],
        )
        assert {name for (name,) in cursor.fetchall()} == tables


class TestRunsOfOtherTables:
    """Tables of others may refer to a run: the database refuses to delete it."""

    @pytest.fixture
    def runs(self) -> list[Run]:
        """All due; another table refers to the third."""
        runs = store_aged_runs(8)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE invoice (run_id bigint NOT NULL REFERENCES runs_run (id))")
            cursor.execute("INSERT INTO invoice VALUES (%s)", [runs[2].pk])
        return runs

    @pytest.mark.parametrize("size", [1, 1_000])
    def test_they_are_logged_and_keep_no_other(
        self, runs: list[Run], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        set_batch_size(monkeypatch, size)
        assert [run_id for purged in purge_flows_of(runs) for run_id in purged.failed] == [runs[2].pk]
        assert Run.objects.get() == runs[2]
        assert [str(runs[2].pk) in record.getMessage() for record in caplog.records] == [True]

    def test_the_command_names_them(self, runs: list[Run]) -> None:
        with pytest.raises(CommandError, match=f": {runs[2].pk}$"):
            call_command("purge_history", "--before", "2024-11-21")
        assert Run.objects.count() == 1


class TestStatistics:
    def test_they_keep_what_deleted_runs_counted(self) -> None:
        runs = store_aged_runs()
        before = read_statistics()
        purge_flows_of(runs)
        assert not Run.objects.exists() and read_statistics() == before

    def test_rebuilding_leaves_days_alone_that_lack_runs(self) -> None:
        runs = store_aged_runs(30)
        before = read_statistics()
        flow = runs[0].flow
        purge_whole(PurgeTask(flow, Part.RUNS, NOW - timedelta(days=20)))
        ends = [run.ended_at for run in ended_before(runs, 20) if run.flow_id == flow.pk and run.ended_at]
        lacking = {ended_at.astimezone(UTC).date() for ended_at in ends}
        assert {day.day for day in PurgedDay.objects.all()} == lacking
        DailyRuns.objects.filter(flow=flow).exclude(day__in=lacking).update(runs=99)
        token = acquire(STATISTICS, LEASE)
        assert token is not None
        rebuilt = rebuild_flow(flow, token=token)
        assert rebuilt.lacking == len(lacking) and rebuilt.corrected and not rebuilt.removed
        assert read_statistics() == before

    def test_they_can_be_rebuilt_from_runs_without_outputs(self) -> None:
        runs = store_aged_runs()
        before = read_statistics()
        purge_flows_of(runs, Part.OUTPUTS)
        for flow in {run.flow for run in runs}:
            token = acquire(STATISTICS, LEASE)
            assert token is not None
            assert not rebuild_flow(flow, token=token).changed
            release(STATISTICS, token)
        assert read_statistics() == before


class TestOutputs:
    @pytest.mark.parametrize("size", [1, 4, 1_000])
    def test_all_texts_of_due_runs_are_deleted_and_figures_stay(
        self, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        def read_figures() -> list[Any]:
            return [
                *Run.objects.values_list(
                    "pk", "status", "end_reason", "total_tokens", "cost", "attempt_count", "labels"
                ),
                *Attempt.objects.order_by("pk").values_list("outcome", "model", "usage__total", "ended_at"),
                *Issue.objects.order_by("pk").values_list("code", "audit", "severity", "position"),
            ]

        set_batch_size(monkeypatch, size)
        runs = store_aged_runs()
        for run in runs:
            keep(run.flow, outputs_days=20)
        old = ended_before(runs, 20)
        young = [run for run in runs if run not in old]
        texts, figures, rows = read_texts(young), read_figures(), count_rows(runs)
        follow_policies(runs)
        assert read_figures() == figures and count_rows(runs) == rows | {"words": len(young)}
        assert read_texts(young) == texts
        empty = [({}, {}), ("", None, {}, [], {}), (None, None, None, None, "", None), (None, None, None, None, "", "")]
        assert [text for text in read_texts(old) if text not in empty] == []
        assert set(Run.objects.filter(outputs_removed_at=None)) == set(young)

    def test_documents_say_since_when_and_hold_nothing(self) -> None:
        run = store_aged_runs(4)[0]
        purge_flows_of([run], Part.OUTPUTS)
        run.refresh_from_db()
        read = load_run(run.pk, None)
        assert read is not None
        document = dump_without_addresses(read)
        attempts = [attempt for step in document["steps"] for attempt in step["attempts"]]
        assert document["outputs_removed_at"] and document["input"] is None and document["metadata"] == {}
        assert len(attempts) > 1 and all(attempt["output"] is None for attempt in attempts)
        assert document["usage"]["total"] > 0 and "nothing of the kind" not in str(document)

    def test_runs_without_outputs_are_deleted_when_their_own_days_are_over(self) -> None:
        run = store_aged_runs(1)[0]
        purge_flows_of([run], Part.OUTPUTS)
        purge_flows_of([run])
        assert not Run.objects.exists()


class TestAuditLog:
    def read_details(self) -> list[dict[str, Any]]:
        return list(TrailEntry.objects.filter(action="data_deleted").order_by("pk").values_list("details", flat=True))

    @pytest.mark.parametrize("part", Part)
    def test_an_entry_says_that_it_begins_and_one_how_much_it_was(self, part: Part) -> None:
        runs = [run for run in store_aged_runs(8) if run.flow_id == store_flow_id()]
        purge_whole(PurgeTask(runs[0].flow, part, NOW))
        common = {"ended_before": NOW.isoformat()} | ({"only": "outputs"} if part is Part.OUTPUTS else {})
        attempts = sum(run.attempt_count for run in runs)
        assert self.read_details() == [common | {"begun": True}, common | {"runs": len(runs), "attempts": attempts}]

    @pytest.mark.parametrize("part", Part)
    @pytest.mark.parametrize("size", [1, 1_000])
    def test_nothing_is_deleted_where_that_can_not_be_logged(
        self, monkeypatch: pytest.MonkeyPatch, part: Part, size: int
    ) -> None:
        set_batch_size(monkeypatch, size)
        runs = store_aged_runs(8)
        before = count_rows(runs), read_texts(runs)

        def refuse(**_: Any) -> None:
            raise OperationalError("disk full")

        monkeypatch.setattr(purging, "leave_trail", refuse)
        with pytest.raises(OperationalError):
            purge_flows_of(runs, part)
        assert (count_rows(runs), read_texts(runs)) == before

    def test_a_purge_that_is_broken_off_logs_what_it_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_batch_size(monkeypatch, 1)
        run = store_aged_runs(8)[0]
        with closing(purge(PurgeTask(run.flow, Part.RUNS, NOW))) as batches:
            done = next(one for one in batches if one.runs == 2)
        assert [details.get("runs") for details in self.read_details()] == [None, done.runs]

    def test_without_due_runs_there_is_no_entry(self) -> None:
        run = store_aged_runs(1)[0]
        purge_whole(PurgeTask(run.flow, Part.RUNS, NOW - timedelta(days=400)))
        assert self.read_details() == []


def store_flow_id() -> int:
    """The flow of the run that ended first."""
    return Run.objects.order_by("ended_at").values_list("flow", flat=True)[0]
