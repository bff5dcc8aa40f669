"""Storing what many runs did in one transaction: all of it, once, for runs that are still held, and none of it lost
while the database is away."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import DataError, InternalError, OperationalError

from flows.engine.execution import Progress, Start
from flows.engine.planner import EndReason, EndStatus, Finish
from runs.group_commit import LeaseLostError, RunWrite, Written, commit_writes
from runs.models import Attempt, Issue, Run, RunFacet, RunStatus, Step, TokenUsage
from runs.recorder import RunRecorder
from runs.stored_history import load_history
from runs.worker import database_thread
from runs.worker.database_thread import DatabaseThread, WriteRefusedError
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step, make_usage
from tests.runs.builders import claim_run, make_run, make_version

DONE = Finish(EndStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED, "All steps passed.")


def make_recorder(run: Run) -> RunRecorder:
    return RunRecorder(run, run.version.flow_spec, load_history(run))


def begin(step: int = 1, number: int = 1) -> Start:
    return Start(step, number, {"topic": "tea"}, {"model": "gpt-4.1"}, datetime.now(UTC))


def store(recorder: RunRecorder, **progress: Any) -> RunWrite:
    write = recorder.prepare(Progress(**progress))
    (result,) = commit_writes([write])
    assert isinstance(result, Written)
    recorder.confirm(write, result)
    return write


def begin_runs(count: int) -> list[RunRecorder]:
    """The recorders of runs of two steps whose first attempt is under way."""
    version = make_version(make_flow(make_step(1), make_step(2)))
    recorders = [make_recorder(claim_run(make_run(version))) for _ in range(count)]
    for recorder in recorders:
        store(recorder, begun=begin())
    return recorders


@pytest.mark.django_db
@pytest.mark.sql
class TestManyAtOnce:
    def test_each_run_gets_its_own_attempts_issues_and_totals(self) -> None:
        writes = []
        for position, recorder in enumerate(begin_runs(3)):
            issues = tuple(make_issue(description=f"Run {position}, issue {number}.") for number in range(position))
            ended = make_attempt(
                outcome="failed" if issues else "passed",
                issues=issues,
                usage=make_usage(30 + position, cost=Decimal("0.001")),
            )
            writes.append(recorder.prepare(Progress(ended=ended, begun=begin(1 if issues else 2, 2 if issues else 1))))
        commit_writes(writes)

        runs = list(Run.objects.order_by("pk"))
        assert [(run.attempt_count, run.total_tokens, run.issues_critical, run.steps_passed) for run in runs] == [
            (2, 30, 0, 1),
            (2, 31, 1, 0),
            (2, 32, 2, 0),
        ]
        for position, run in enumerate(runs):
            first = Attempt.objects.get(step__run=run, step__index=1, number=1)
            reported = [issue.description for issue in first.issues.all()]
            assert reported == [f"Run {position}, issue {number}." for number in range(position)]
            assert (run.cost, first.usage.total) == (Decimal("0.001"), 30 + position)

    def test_the_number_of_queries_does_not_grow_with_the_runs(self, django_assert_num_queries: Any) -> None:
        for count in (2, 8):
            ended = make_attempt(outcome="failed", issues=(make_issue(),))
            writes = [recorder.prepare(Progress(ended=ended, begun=begin(1, 2))) for recorder in begin_runs(count)]
            # Savepoint and its release; runs, attempts and requests begun, attempts ended, issues, usage, runs, facets.
            with django_assert_num_queries(2 + 8):
                commit_writes(writes)

    def test_a_run_is_found_by_codes_audits_severities_and_models_of_all_its_attempts_each_once(self) -> None:
        def read_facets() -> set[tuple[str, str]]:
            return set(RunFacet.objects.values_list("kind", "value"))

        run = claim_run(make_run(make_version(make_flow(make_step(1)))))
        recorder = make_recorder(run)
        store(recorder, begun=begin())
        severe = make_issue("high", code="hex_format", audit="Hex format")
        store(recorder, ended=make_attempt(1, 1, "failed", model="gpt-5", issues=(severe,)))
        facets = {("severity", severity) for severity in ("low", "medium", "high")}
        facets |= {("code", "hex_format"), ("audit", "Hex format"), ("model", "gpt-5")}
        assert read_facets() == facets
        run.hand_back()
        again = make_recorder(claim_run(run, "worker-2"))
        store(again, begun=begin(1, 2))
        mild = make_issue("low", code="late")
        store(again, ended=make_attempt(1, 2, "failed", model="gpt-5", issues=(severe, mild)))
        assert read_facets() - facets == {("code", "late")}
        assert RunFacet.objects.count() == len(facets) + 1


@pytest.mark.django_db
@pytest.mark.sql
class TestFence:
    def test_a_run_that_another_worker_has_is_left_alone_and_the_others_are_stored(self) -> None:
        version = make_version()
        lost, held = claim_run(make_run(version)), claim_run(make_run(version))
        Run.objects.filter(pk=lost.pk).update(epoch=lost.epoch + 1)
        results = commit_writes([make_recorder(run).prepare(Progress(begun=begin())) for run in (lost, held)])
        assert [type(result) for result in results] == [LeaseLostError, Written]
        assert list(Step.objects.values_list("run", flat=True)) == [held.pk]

    @pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.CANCELLED])
    def test_a_run_that_was_ended_or_given_back_takes_no_more_attempts(self, status: RunStatus) -> None:
        run = claim_run(make_run())
        ended_at = datetime.now(UTC) if status == RunStatus.CANCELLED else None
        Run.objects.filter(pk=run.pk).update(status=status, ended_at=ended_at)
        (result,) = commit_writes([make_recorder(run).prepare(Progress(begun=begin()))])
        assert isinstance(result, LeaseLostError)
        assert not Attempt.objects.exists()


@pytest.mark.django_db
@pytest.mark.sql
class TestSentAgain:
    """A connection that breaks in the commit leaves open whether it arrived: the write is sent again."""

    def test_an_attempt_is_stored_once_and_its_next_one_is_found(self) -> None:
        (recorder,) = begin_runs(1)
        write = recorder.prepare(Progress(ended=make_attempt(usage=make_usage(30)), begun=begin(1, 2)))
        (first,), (second,) = commit_writes([write]), commit_writes([write])
        assert first == second
        run = Run.objects.get()
        assert (run.total_tokens, run.attempt_count, TokenUsage.objects.count()) == (30, 2, 1)

    def test_the_end_of_a_run_is_recognised_too(self) -> None:
        (recorder,) = begin_runs(1)
        write = recorder.prepare(Progress(ended=make_attempt(issues=(make_issue("low"),)), finish=DONE))
        assert commit_writes([write]) == commit_writes([write]) == [Written()]
        run = Run.objects.get()
        assert (run.status, run.owner, run.lease_until) == (RunStatus.SUCCEEDED, "", None)
        assert Issue.objects.count() == 1

    def test_a_write_under_an_older_claim_is_no_repetition(self) -> None:
        write = make_recorder(claim_run(make_run())).prepare(Progress(begun=begin()))
        commit_writes([write])
        (result,) = commit_writes([replace(write, epoch=write.epoch - 1)])
        assert isinstance(result, LeaseLostError)


class Commits:
    """Stands before ``commit_writes``: notes how many writes each transaction had, and fails where told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.errors: list[Exception] = []
        self.refused: dict[int, Exception] = {}
        """The error for each transaction with a write of that run."""
        monkeypatch.setattr(database_thread, "commit_writes", self)
        monkeypatch.setattr(database_thread, "RETRY_INTERVAL", 0.01)

    def __call__(self, writes: Sequence[RunWrite]) -> list[Written | LeaseLostError]:
        self.sizes.append(len(writes))
        if self.errors:
            raise self.errors.pop(0)
        for write in writes:
            if write.run_id in self.refused:
                raise self.refused[write.run_id]
        return commit_writes(writes)


async def store_while_busy(writes: list[RunWrite]) -> list[Any]:
    """Store all while the thread is busy with something else; gives results and errors."""
    database = DatabaseThread()
    release = threading.Event()
    busy = asyncio.create_task(database.ask(release.wait))
    await asyncio.sleep(0)
    storing = [database.store(write) for write in writes]
    release.set()
    results = await asyncio.gather(*storing, return_exceptions=True)
    await busy
    await database.close()
    return results


def store_together(writes: list[RunWrite]) -> list[type]:
    """What kinds of results they have."""
    return [type(result) for result in asyncio.run(store_while_busy(writes))]


AWAY = OperationalError("the server closed the connection")


@pytest.mark.django_db(transaction=True)
@pytest.mark.sql
class TestDatabaseThread:
    @pytest.fixture
    def writes(self) -> list[RunWrite]:
        """The first attempts of three claimed runs."""
        version = make_version()
        return [make_recorder(claim_run(make_run(version))).prepare(Progress(begun=begin())) for _ in range(3)]

    @pytest.fixture
    def commits(self, monkeypatch: pytest.MonkeyPatch) -> Commits:
        return Commits(monkeypatch)

    def test_one_write_that_can_not_be_stored_does_not_keep_the_others_from_it(
        self, writes: list[RunWrite], commits: Commits
    ) -> None:
        commits.refused = {writes[1].run_id: DataError("a value that the database refuses")}
        assert store_together(writes) == [Written, WriteRefusedError, Written]
        assert commits.sizes == [3, 1, 1, 1]

    def test_nothing_is_lost_while_the_database_is_away_and_it_is_logged_once(
        self,
        writes: list[RunWrite],
        commits: Commits,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(database_thread, "_is_database_up", lambda: False)
        commits.errors = [AWAY] * 5
        with caplog.at_level(logging.WARNING):
            assert store_together(writes) == [Written] * 3
        assert commits.sizes == [3] * 6
        assert Attempt.objects.count() == 3
        reported = [record.message for record in caplog.records if record.name == database_thread.__name__]
        assert ["can't be stored" in reported[0], "stored again" in reported[1]] == [True] * len(reported)

    def test_a_write_that_fails_again_and_again_while_others_get_through_is_refused_in_the_end(
        self, writes: list[RunWrite], commits: Commits, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database_thread, "RETRY_TIMEOUT", 0.0)
        commits.refused = {writes[0].run_id: OperationalError("out of memory")}
        assert store_together(writes) == [WriteRefusedError, Written, Written]

    @pytest.mark.parametrize(
        "error",
        [OperationalError("database or disk is full"), InternalError("UPDATE in a read-only transaction")],
        ids=["disk full", "read-only"],
    )
    def test_while_nothing_gets_through_a_write_is_kept_for_as_long_as_it_takes(
        self, writes: list[RunWrite], commits: Commits, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        """The database answers questions all the while."""
        monkeypatch.setattr(database_thread, "RETRY_TIMEOUT", 0.0)
        commits.errors = [error] * 20
        assert store_together(writes[:1]) == [Written]
