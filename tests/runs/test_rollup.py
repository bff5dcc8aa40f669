"""What is made of runs once they have ended: by which worker, when, and what if it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest
from django.db import InterfaceError, InternalError, OperationalError, connection, transaction
from django.utils import timezone

from flows.engine.history import Outcome
from runs import rollup
from runs.attempt_rules import classify_attempts
from runs.locks import STATISTICS, hold
from runs.models import DailyRuns, OriginalInput, Run, WebhookDelivery
from runs.rollup import RETRY_INTERVAL, Rollup, count_ended_runs
from runs.sweep import sweep
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics, recount
from tests.runs.varied_runs import make_varied_runs

pytestmark = pytest.mark.sql


def make_ended(count: int, **fields: Any) -> list[int]:
    version = make_version()
    return [make_run(version, status="succeeded", ended_at=timezone.now(), **fields).pk for _ in range(count)]


def count_counted() -> int:
    return sum(DailyRuns.objects.values_list("runs", flat=True))


def fail_for(monkeypatch: pytest.MonkeyPatch, *bad: int, error: Exception | None = None) -> None:
    """Make the search refuse these runs."""

    def refuse(run_ids: Collection[int]) -> None:
        if set(bad) & set(run_ids):
            raise error or ValueError("no text")

    monkeypatch.setattr(rollup, "index_runs", refuse)


def start_threads(*actions: Callable[[], object]) -> list[threading.Thread]:
    """Do each in a thread, with a connection of its own to the database."""

    def do(action: Callable[[], object]) -> None:
        try:
            action()
        finally:
            connection.close()

    threads = [threading.Thread(target=do, args=[action]) for action in actions]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.django_db
class TestBatches:
    def test_a_run_counts_however_it_ended_and_waits_until_then(self) -> None:
        make_run()
        make_run().request_cancel()
        make_run(deadline_at=NOON)
        make_run(cancel_requested=True)
        sweep()
        assert count_ended_runs() == 3


@pytest.mark.django_db
class TestFailures:
    @pytest.mark.parametrize(
        ("error", "tries"),
        [(None, 1), (OperationalError("canceling statement due to statement timeout"), rollup.MAX_TRIES)],
        ids=["fault", "as in an outage"],
    )
    def test_a_run_that_fails_is_logged_and_left_out_in_the_end_and_holds_up_no_other(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception | None, tries: int
    ) -> None:
        runs = make_ended(9, webhook_url="https://hooks.example.com/")
        OriginalInput.objects.create(run_id=runs[3], input={"secret": "x"})
        fail_for(monkeypatch, runs[3], error=error)
        one = Rollup()
        one.advance(is_busy=False)
        assert count_counted() == 8
        for _ in range(tries - 1):
            assert not caplog.records
            make_ended(1)
            one.advance(is_busy=False)
        assert count_counted() == 8 + tries - 1
        (line,) = caplog.records
        assert str(runs[3]) in line.getMessage() and line.exc_info is not None
        # It is not tried again, keeps no unredacted input, and its webhook is sent all the same.
        assert not Run.objects.filter(is_counted=False).exists() and not OriginalInput.objects.exists()
        assert WebhookDelivery.objects.count() == 9

    @pytest.mark.parametrize(
        "error",
        [
            OperationalError("database or disk is full"),
            InterfaceError("connection already closed"),
            InternalError("cannot execute INSERT in a read-only transaction"),
        ],
        ids=["full", "closed", "read-only"],
    )
    def test_an_outage_is_logged_once_and_no_run_is_the_cause_of_it(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = make_ended(5)
        fail_for(monkeypatch, *runs, error=error)
        one = Rollup()
        assert {one.advance(is_busy=False) for _ in range(10)} == {RETRY_INTERVAL}
        fail_for(monkeypatch)
        one.advance(is_busy=False)
        assert count_counted() == 5
        assert [line.levelname for line in caplog.records] == ["ERROR", "WARNING"]


@pytest.mark.django_db(transaction=True)
class TestSeveralAtOnce:
    def test_each_run_counts_once_and_no_sum_is_lost(self) -> None:
        runs = make_varied_runs(30)
        begin = threading.Barrier(3)
        done: list[int] = []

        def count_all() -> None:
            begin.wait(timeout=60)
            while Run.objects.uncounted().exists():
                count_ended_runs(limit=3)
            done.append(1)

        for thread in start_threads(count_all, count_all, count_all):
            thread.join()
        assert len(done) == 3
        assert read_statistics() == recount(runs)

    @pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has one writer at a time: others wait for it.")
    def test_a_worker_leaves_it_to_another_that_is_at_it(self) -> None:
        make_ended(1)
        assert count_ended_runs() == 1
        make_ended(1)
        counts: list[int] = []
        with transaction.atomic():
            assert hold(STATISTICS)
            for thread in start_threads(lambda: counts.append(count_ended_runs())):
                thread.join()
        assert counts == [0]
        assert count_ended_runs() == 1


@pytest.mark.parametrize(
    ("outcomes", "parts"),
    [
        # Each try after the first is a retry; the end of the step says whether it was of use.
        ("passed", "first"),
        ("failed invalid passed", "first useful useful"),
        ("failed failed", "first wasted"),
        # An attempt without an output belongs to the try that it was meant to be.
        ("interrupted failed passed", "first first useful"),
        ("failed interrupted passed", "first useful useful"),
        ("failed cancelled", "first wasted"),
        ("errored errored passed", "first first first"),
        ("failed errored", "first wasted"),
    ],
)
def test_which_attempts_are_retries_and_whether_those_were_of_use(outcomes: str, parts: str) -> None:
    assert classify_attempts([(1, Outcome(outcome)) for outcome in outcomes.split()]) == parts.split()
