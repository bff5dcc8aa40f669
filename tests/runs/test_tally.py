"""What is made of runs once they have ended: by whom, when, and what if it fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from django.db import InterfaceError, InternalError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from runs import tally
from runs.locks import STATISTICS, hold
from runs.models import DailyRuns, Run
from runs.stop_flags import stopping
from runs.sweep import sweep
from runs.tally import FIRST_REST, LONGEST_REST, PATIENCE, Tally, tally_ended_runs
from runs.worker import event_loop
from tests.engine.builders import NOON, make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import script
from tests.runs.recounting import read_statistics, recount
from tests.runs.varied_runs import make_varied_runs
from tests.waiting import wait_until


def make_ended(count: int, **fields: Any) -> list[int]:
    version = make_version()
    return [make_run(version, status="succeeded", ended_at=NOON, **fields).pk for _ in range(count)]


def count_counted() -> int:
    return sum(DailyRuns.objects.values_list("runs", flat=True))


def fail_for(monkeypatch: pytest.MonkeyPatch, *bad: int, error: Exception | None = None) -> None:
    """Make the search refuse these runs."""

    def refuse(run_ids: Collection[int]) -> None:
        if set(bad) & set(run_ids):
            raise error or ValueError("no text")

    monkeypatch.setattr(tally, "index_runs", refuse)


@pytest.mark.django_db
class TestBatches:
    def test_the_oldest_come_first_and_each_run_counts_once(self) -> None:
        runs = make_ended(5)
        assert [tally_ended_runs(limit=2) for _ in range(4)] == [2, 2, 1, 0]
        assert count_counted() == len(runs)
        assert not Run.objects.filter(is_tallied=False).exists()

    def test_runs_that_have_not_ended_wait(self) -> None:
        make_run()
        assert tally_ended_runs() == 0

    def test_a_run_that_was_cancelled_in_the_queue_or_ended_by_the_sweep_counts(self) -> None:
        make_run().request_cancel()
        make_run(deadline_at=NOON)
        make_run(status="queued", cancel_requested=True)
        sweep()
        assert tally_ended_runs() == 3

    def test_batches_shrink_while_they_take_too_long_and_grow_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes: list[int] = []
        taken = iter([1.0, 1.0, 0.0, 0.0])
        clock = [0.0]

        def take_time(*, limit: int, without: Collection[int], tell: object) -> int:
            sizes.append(limit)
            clock[0] += next(taken)
            return limit

        monkeypatch.setattr(tally, "tally_ended_runs", take_time)
        monkeypatch.setattr(tally.time, "monotonic", lambda: clock[0])
        one = Tally()
        rests = [one.advance(is_busy=True) for _ in range(4)]
        assert sizes == [10, 5, 2, 4]
        assert rests == [3.0, 3.0, 0.0, 0.0]

    def test_an_idle_worker_does_not_rest_until_all_is_done(self) -> None:
        make_ended(12)
        one = Tally()
        assert [one.advance(is_busy=False), one.advance(is_busy=False)] == [0.0, PATIENCE]

    def test_looking_for_runs_reads_none_that_are_tallied(self) -> None:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                # It reads a table as small as this one as a whole.
                cursor.execute("SET LOCAL enable_seqscan = off")
            with CaptureQueriesContext(connection) as captured:
                tally_ended_runs()
            cursor.execute(
                ("EXPLAIN " if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN ") + captured[0]["sql"]
            )
            plan = str(cursor.fetchall())
        assert "run_untallied" in plan


@pytest.mark.django_db
class TestFailures:
    def test_a_run_that_can_not_be_tallied_is_named_and_holds_up_no_other(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = make_ended(30)
        fail_for(monkeypatch, runs[17])
        one = Tally()
        for _ in range(30):
            one.advance(is_busy=False)
        assert list(Run.objects.filter(is_tallied=False).values_list("pk", flat=True)) == [runs[17]]
        assert count_counted() == 29
        (line,) = caplog.records
        assert line.getMessage() == f"Run {runs[17]} is left out of statistics and search."
        assert line.exc_info is not None

    @pytest.mark.parametrize("bad", [[0], [7], [0, 1]], ids=["the oldest", "another", "two"])
    def test_runs_that_fail_as_in_an_outage_are_named_and_hold_up_no_other(
        self, bad: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = make_ended(15)
        refused = [runs[index] for index in bad]
        fail_for(monkeypatch, *refused, error=OperationalError("canceling statement due to statement timeout"))
        one = Tally()
        for _ in range(30):
            one.advance(is_busy=False)
        assert list(Run.objects.filter(is_tallied=False).order_by("pk").values_list("pk", flat=True)) == refused
        assert [line.getMessage() for line in caplog.records] == [
            f"Run {run} is left out of statistics and search." for run in refused
        ]

    def test_the_next_worker_tries_it_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        (run,) = make_ended(1)
        fail_for(monkeypatch, run)
        one = Tally()
        for _ in range(10):
            one.advance(is_busy=False)
        fail_for(monkeypatch)
        assert one.advance(is_busy=False) == PATIENCE
        assert count_counted() == 0
        Tally().advance(is_busy=False)
        assert count_counted() == 1

    def test_while_nothing_can_be_tallied_it_is_tried_less_and_less_often(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs = make_ended(20)
        fail_for(monkeypatch, *runs)
        one = Tally()
        rests = [one.advance(is_busy=False) for _ in range(12)]
        assert rests[:3] == [FIRST_REST * 2, FIRST_REST * 4, FIRST_REST * 8]
        assert rests[-1] == LONGEST_REST

    @pytest.mark.parametrize(
        "error",
        [
            OperationalError("database or disk is full"),
            InterfaceError("connection already closed"),
            InternalError("cannot execute INSERT in a read-only transaction"),
        ],
    )
    @pytest.mark.parametrize("count", [1, 15])
    @pytest.mark.parametrize("tries", [10, 11])
    def test_an_outage_leaves_out_no_run_whenever_it_ends_and_is_logged_once(
        self,
        error: Exception,
        count: int,
        tries: int,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        runs = make_ended(count)
        fail_for(monkeypatch, *runs, error=error)
        one = Tally()
        for _ in range(tries):
            one.advance(is_busy=False)
        fail_for(monkeypatch)
        for _ in range(10):
            one.advance(is_busy=False)
        assert count_counted() == count
        assert [line.levelname for line in caplog.records] == ["ERROR", "WARNING"]


@pytest.mark.django_db(transaction=True)
class TestSeveralAtOnce:
    def test_each_run_counts_once_and_no_sum_is_lost(self) -> None:
        runs = make_varied_runs(60)
        begin = threading.Barrier(3)
        failures: list[BaseException] = []

        def tally_all() -> None:
            try:
                begin.wait(timeout=60)
                while Run.objects.untallied().exists():
                    tally_ended_runs(limit=3)
            except BaseException as error:  # the test fails with it
                failures.append(error)
                raise
            finally:
                connection.close()

        threads = [threading.Thread(target=tally_all) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert read_statistics() == recount(runs)

    def test_whoever_finds_another_at_it_leaves_it_to_that_one(self) -> None:
        if connection.vendor == "sqlite":
            pytest.skip("SQLite has one writer at a time: others wait for it.")
        make_ended(1)
        assert tally_ended_runs() == 1
        make_ended(1)
        counts: list[int] = []

        def tally_meanwhile() -> None:
            counts.append(tally_ended_runs())
            connection.close()

        with transaction.atomic():
            assert hold(STATISTICS)
            thread = threading.Thread(target=tally_meanwhile)
            thread.start()
            thread.join()
        assert counts == [0]
        assert tally_ended_runs() == 1


@pytest.mark.django_db(transaction=True)
class TestInADrain:
    @pytest.fixture(autouse=True)
    def _stop(self) -> Iterator[None]:
        yield
        stopping.clear()

    def work_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let a drain work until ``condition`` holds."""

        def wait() -> None:
            try:
                wait_until(condition, within=60, what=what)
            finally:
                connection.close()
                stopping.set()

        thread = threading.Thread(target=wait)
        thread.start()
        asyncio.run(event_loop.Drain().run())
        thread.join()

    def test_runs_are_tallied_while_it_works_whoever_ended_them(self, provider: ModelServer) -> None:
        make_ended(1)
        make_run().request_cancel()
        run = make_run()
        self.work_until(lambda: Run.objects.filter(is_tallied=True).count() == 3, "all three runs were tallied")
        run.refresh_from_db()
        assert run.status == "succeeded"
        assert read_statistics() == recount(Run.objects.all())

    def test_runs_go_on_while_nothing_can_be_tallied(
        self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.ERROR)
        (old,) = make_ended(1)
        fail_for(monkeypatch, old)
        run = make_run(make_version(make_flow(make_step(1), make_step(2))))
        script(provider, tool_1=[{"text": "Tea."}], tool_2=[{"text": "Tea."}])
        self.work_until(lambda: Run.objects.filter(pk=run.pk, is_tallied=True).exists(), "the other run was tallied")
        assert [line.getMessage() for line in caplog.records] == [f"Run {old} is left out of statistics and search."]
