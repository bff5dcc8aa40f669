"""What is due goes, all else stays; in small portions, and as often as one likes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.documents import build_run_document
from runs.locks import STATISTICS, acquire, release
from runs.models import (
    Attempt,
    DailyRuns,
    Issue,
    PurgedDay,
    Run,
    RunStatus,
    Step,
    TokenUsage,
    WebhookDelivery,
    WebhookTry,
)
from runs.retention import policy, purging
from runs.retention.pacing import MANNERS, Manners, Pace
from runs.retention.policy import Part
from runs.retention.purging import Purged, Task, list_tasks, purge
from runs.retention.removal import find_day
from runs.statistics.rebuild import LEASE, rebuild_flow
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics
from tests.runs.retention.aged_runs import NOW, count_rows, ended_before, keep, read_texts, store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def purge_all(**options: Any) -> list[Purged]:
    return [purge(task, pace=Pace(rest=lambda _seconds: None), **options) for task in list_tasks(now=NOW)]


class TestRuns:
    def test_runs_go_once_their_days_are_over_and_nothing_of_them_stays(self) -> None:
        runs = store_aged_runs()
        for run in runs:
            keep(run.flow, days=20)
        old = ended_before(runs, 20)
        young = [run for run in runs if run not in old]
        kept = count_rows(young)
        assert old and young and all(count_rows(old).values())
        purge_all()
        assert set(count_rows(old).values()) == {0}
        assert count_rows(young) == kept

    def test_only_runs_of_flows_with_a_policy_go(self) -> None:
        runs = store_aged_runs()
        flow = runs[0].flow
        keep(flow, days=1)
        purge_all()
        left = Run.objects.values_list("flow", flat=True)
        assert flow.pk not in left and len(left) == sum(run.flow_id != flow.pk for run in runs)

    def test_runs_that_have_not_ended_stay_however_old_they_are(self) -> None:
        run = make_run(created_at=NOW - timedelta(days=400))
        keep(run.flow, days=1)
        purge_all()
        assert Run.objects.get() == run

    def test_runs_that_statistics_do_not_know_yet_stay_a_week_longer(self) -> None:
        version = make_version()
        young, _old = (
            make_run(version, status=RunStatus.SUCCEEDED, ended_at=NOW - timedelta(days=days)) for days in (7, 9)
        )
        keep(version.flow, days=1)
        purge_all()
        assert Run.objects.get() == young

    def test_while_many_wait_to_be_counted_none_of_them_goes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        version = make_version()
        for _ in range(3):
            make_run(version, status=RunStatus.SUCCEEDED, ended_at=NOW - timedelta(days=400))
        keep(version.flow, days=1)
        monkeypatch.setattr(policy, "MAX_UNCOUNTED", 2)
        purge_all()
        assert Run.objects.count() == 3
        monkeypatch.setattr(policy, "MAX_UNCOUNTED", 3)
        purge_all()
        assert not Run.objects.exists()

    def test_what_others_were_told_of_a_run_goes_with_it(self) -> None:
        run = store_aged_runs(1)[0]
        delivery = WebhookDelivery.objects.create(run=run, event="run.succeeded", url="https://a.example/", host="a")
        WebhookTry.objects.create(delivery=delivery, number=1)
        purge(Task(run.flow, Part.RUNS, NOW), pace=Pace())
        assert not Run.objects.exists() and not WebhookDelivery.objects.exists()

    def test_a_large_run_goes_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = store_aged_runs(3)
        monkeypatch.setattr(purging, "MOST", 1)
        attempts = Attempt.objects.count()
        sizes: list[int] = []
        pace = Pace(attempts=1)
        monkeypatch.setattr(Pace, "come_to_end", lambda _self, *, attempts, taken: sizes.append(attempts))
        purged = [purge(Task(flow, Part.RUNS, NOW), pace=pace) for flow in {run.flow for run in runs}]
        assert not Run.objects.exists() and max(sizes) == 1 and sum(sizes) == attempts > 3
        assert sum(one.attempts for one in purged) == attempts

    def test_it_stops_when_told_and_goes_on_with_the_next_call(self) -> None:
        runs = store_aged_runs(12)
        for run in runs:
            keep(run.flow, days=1)
        due = len(ended_before(runs, 1))
        first = purge(list_tasks(now=NOW)[0], pace=Pace(attempts=1), is_over=lambda: True)
        assert 0 < first.runs < due
        assert first.runs + sum(purged.runs for purged in purge_all()) == due

    def test_runs_that_ended_at_the_same_moment_all_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        version = make_version()
        for _ in range(5):
            make_run(version, status=RunStatus.SUCCEEDED, ended_at=NOW - timedelta(days=30))
        monkeypatch.setattr(purging, "LOOK_AHEAD", 2)
        assert purge(Task(version.flow, Part.RUNS, NOW), pace=Pace()).runs == 5
        assert not Run.objects.exists()

    def test_the_number_of_statements_does_not_grow_with_the_runs_of_a_portion(self) -> None:
        runs = store_aged_runs(30)
        flow = max({run.flow for run in runs}, key=lambda flow: sum(run.flow_id == flow.pk for run in runs))
        oldest = min(run.ended_at for run in runs if run.flow_id == flow.pk and run.ended_at)
        counts, purged = [], []
        for limit in (oldest + timedelta(seconds=1), NOW):
            with CaptureQueriesContext(connection) as queries:
                purged.append(purge(Task(flow, Part.RUNS, limit), pace=Pace(attempts=1_000)).runs)
            counts.append(len(queries))
        assert purged[0] == 1 and purged[1] > 5 and counts[0] == counts[1]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL cuts files while others write")
def test_no_table_that_loses_rows_is_locked_to_cut_its_file() -> None:
    losing = [Run, Step, Attempt, Issue, TokenUsage, WebhookTry]
    tables = {model._meta.db_table for model in losing} | {"runs_searchdocument"}
    tables |= {relation.related_model._meta.db_table for relation in Run._meta.related_objects}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT main.relname FROM pg_class AS main LEFT JOIN pg_class AS toast ON toast.oid = main.reltoastrelid "
            "WHERE main.relname = ANY(%s) AND 'vacuum_truncate=false' = ANY(main.reloptions) "
            "AND (toast.oid IS NULL OR 'vacuum_truncate=false' = ANY(toast.reloptions))",
            [list(tables)],
        )
        assert {name for (name,) in cursor.fetchall()} == tables


class TestRunsThatCannotGo:
    """Tables of others may refer to a run: the database refuses to delete it."""

    @pytest.fixture
    def runs(self) -> list[Run]:
        """All due; others refer to the third."""
        runs = store_aged_runs(8)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE invoice (run_id bigint NOT NULL REFERENCES runs_run (id))")
            cursor.execute("INSERT INTO invoice VALUES (%s)", [runs[2].pk])
        return runs

    def test_they_keep_no_other_and_are_named(self, runs: list[Run], caplog: pytest.LogCaptureFixture) -> None:
        kept = count_rows([runs[2]])
        left = [
            run_id
            for flow in {run.flow for run in runs}
            for run_id in purge(Task(flow, Part.RUNS, NOW), pace=Pace()).left
        ]
        assert left == [runs[2].pk] and [run.pk for run in Run.objects.all()] == left
        assert count_rows([runs[2]]) == kept
        assert [record.getMessage() for record in caplog.records] == [
            f"Retention can’t take away run {runs[2].pk} or its outputs."
        ]

    def test_a_large_one_keeps_no_other_either(
        self, runs: list[Run], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(purging, "MOST", 1)
        for flow in {run.flow for run in runs}:
            purge(Task(flow, Part.RUNS, NOW), pace=Pace(attempts=1))
        assert [run.pk for run in Run.objects.all()] == [runs[2].pk]

    def test_who_purges_by_hand_is_told(self, runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(CommandError) as refused:
            call_command("purge_history", "--before", "2024-11-21")
        assert str(refused.value) == f"It failed for 1 runs, which are left; the log says why: {runs[2].pk}"
        assert Run.objects.count() == 1

    def test_no_run_is_to_blame_while_the_database_is_away(
        self, runs: list[Run], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(*_: object) -> Any:
            raise OperationalError("the server closed the connection")

        monkeypatch.setattr(purging, "delete_runs", refuse)
        with pytest.raises(OperationalError):
            purge(Task(runs[0].flow, Part.RUNS, NOW), pace=Pace())
        assert not caplog.records


class TestStatistics:
    def test_they_keep_what_purged_runs_counted(self) -> None:
        runs = store_aged_runs()
        before = read_statistics()
        for flow in {run.flow for run in runs}:
            purge(Task(flow, Part.RUNS, NOW), pace=Pace())
        assert not Run.objects.exists() and read_statistics() == before

    def test_rebuilding_them_leaves_days_alone_that_lack_runs_and_counts_all_others(self) -> None:
        runs = store_aged_runs(30)
        before = read_statistics()
        flow = runs[0].flow
        purge(Task(flow, Part.RUNS, NOW - timedelta(days=20)), pace=Pace())
        lacking = {find_day(run.ended_at) for run in ended_before(runs, 20) if run.flow_id == flow.pk if run.ended_at}
        assert {day.day for day in PurgedDay.objects.all()} == lacking
        DailyRuns.objects.filter(flow=flow).exclude(day__in=lacking).update(runs=99)
        token = acquire(STATISTICS, LEASE)
        assert token is not None
        rebuilt = rebuild_flow(flow, token=token)
        assert rebuilt.lacking == len(lacking) and rebuilt.corrected and not rebuilt.removed
        assert read_statistics() == before


class TestOutputs:
    def test_all_that_was_read_and_written_goes_and_figures_stay(self) -> None:
        runs = store_aged_runs()
        for run in runs:
            keep(run.flow, outputs_days=20)
        old = ended_before(runs, 20)
        figures = list(
            Run.objects.values_list("status", "end_reason", "total_tokens", "cost", "attempt_count", "labels")
        )
        outcomes = list(Attempt.objects.order_by("pk").values_list("outcome", "model", "usage__total", "ended_at"))
        issues = list(Issue.objects.order_by("pk").values_list("code", "audit", "severity", "position"))
        kept = count_rows(runs) | {"words": len(runs) - len(old)}
        purge_all()
        assert count_rows(runs) == kept
        empty = {(None, None, None, None, "", None), (None, None, None, None, "", "")}
        for texts in read_texts(old):
            assert texts in [({}, {}), ("", None, {}, [], {}), *empty]
        assert (
            list(Run.objects.values_list("status", "end_reason", "total_tokens", "cost", "attempt_count", "labels"))
            == figures
        )
        assert (
            list(Attempt.objects.order_by("pk").values_list("outcome", "model", "usage__total", "ended_at")) == outcomes
        )
        assert list(Issue.objects.order_by("pk").values_list("code", "audit", "severity", "position")) == issues

    def test_younger_runs_keep_theirs(self) -> None:
        runs = store_aged_runs()
        for run in runs:
            keep(run.flow, outputs_days=20)
        young = [run for run in runs if run not in ended_before(runs, 20)]
        texts = read_texts(young)
        purge_all()
        assert read_texts(young) == texts
        assert not Run.objects.filter(pk__in=[run.pk for run in young]).exclude(outputs_removed_at=None).exists()

    def test_such_runs_are_found_by_their_labels_and_codes_no_longer_by_their_words(self) -> None:
        run = store_aged_runs(4)[0]
        assert count_rows([run])["words"]
        purge(Task(run.flow, Part.OUTPUTS, NOW), pace=Pace())
        assert count_rows([run])["facets"] and not count_rows([run])["words"]

    def test_statistics_can_be_counted_again_from_what_is_left(self) -> None:
        runs = store_aged_runs()
        before = read_statistics()
        for flow in {run.flow for run in runs}:
            purge(Task(flow, Part.OUTPUTS, NOW), pace=Pace())
            token = acquire(STATISTICS, LEASE)
            assert token is not None
            assert not rebuild_flow(flow, token=token).changed
            release(STATISTICS, token)
        assert read_statistics() == before

    def test_documents_say_since_when_and_hold_nothing(self) -> None:
        run = store_aged_runs(4)[0]
        purge(Task(run.flow, Part.OUTPUTS, NOW), pace=Pace())
        run.refresh_from_db()
        document = build_run_document(run)
        assert document["outputs_removed_at"] and document["input"] is None
        attempts = [attempt for step in document["steps"] for attempt in step["attempts"]]
        assert len(attempts) > 1 and all(attempt["output"] is None for attempt in attempts)
        assert document["usage"]["total"] > 0 and document["metadata"] == {}
        if document["status"] == "failed":
            assert document["end_sentence"] == "A step did not pass."

    def test_runs_without_outputs_go_when_their_own_days_are_over(self) -> None:
        run = store_aged_runs(1)[0]
        purge(Task(run.flow, Part.OUTPUTS, NOW), pace=Pace())
        assert purge(Task(run.flow, Part.RUNS, NOW), pace=Pace()).runs == 1
        assert not Run.objects.exists()


class TestPace:
    def test_portions_shrink_when_they_take_long_and_grow_when_they_do_not(self) -> None:
        pace = Pace(rest=lambda _seconds: None, attempts=400)
        pace.come_to_end(attempts=400, taken=10.0)
        assert pace.attempts == 200
        pace.come_to_end(attempts=200, taken=0.0)
        assert pace.attempts == 400

    def test_portions_do_not_shrink_to_nothing_where_the_machine_is_busy(self) -> None:
        pace = Pace(rest=lambda _seconds: None, attempts=400)
        for _ in range(10):
            pace.come_to_end(attempts=pace.attempts, taken=10.0)
        assert pace.attempts == MANNERS[connection.vendor].least

    def test_the_first_portion_of_large_attempts_is_not_followed_by_a_larger_one(self) -> None:
        pace = Pace(rest=lambda _seconds: None, attempts=1)
        pace.come_to_end(attempts=1, taken=10.0)
        assert pace.attempts == 1

    def test_it_rests_while_runs_are_under_way_and_only_then(self) -> None:
        rests: list[float] = []
        now = [0.0]
        pace = Pace(rest=rests.append, clock=lambda: now[0], _manners=Manners(time_box=1, least=1, share=3))
        pace.come_to_end(attempts=1, taken=0.5)
        assert rests == []
        make_run(status=RunStatus.RUNNING, lease_until=timezone.now())
        now[0] += 1
        pace.come_to_end(attempts=1, taken=0.5)
        assert rests == [1.5]

    def test_every_database_has_its_manners(self) -> None:
        assert connection.vendor in MANNERS
