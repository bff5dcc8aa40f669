"""Storing what many runs did in one transaction: all of it, once, and only for runs that are still held."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from flows.engine.execution import Progress, Start
from flows.engine.history import History
from flows.engine.planner import EndReason, EndStatus, Finish
from runs.group_commit import LeaseLostError, RunWrite, Written, commit_writes
from runs.models import Attempt, Issue, Run, RunFacet, RunStatus, Step, TokenUsage
from runs.recorder import RunRecorder
from runs.stored_history import load_history, make_run_id
from runs.submission import submit_run
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step, make_usage
from tests.runs.builders import claim_run, make_run, make_version

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

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


class TestManyAtOnce:
    def test_each_run_gets_its_own_attempts_issues_and_totals(self) -> None:
        version = make_version(make_flow(make_step(1), make_step(2)))
        runs = [claim_run(make_run(version)) for _ in range(3)]
        recorders = [make_recorder(run) for run in runs]
        for recorder in recorders:
            store(recorder, begun=begin())
        writes = []
        for position, recorder in enumerate(recorders):
            issues = tuple(make_issue(description=f"Run {position}, issue {number}.") for number in range(position))
            ended = make_attempt(
                outcome="failed" if issues else "passed",
                issues=issues,
                usage=make_usage(30 + position, cost=Decimal("0.001")),
            )
            writes.append(recorder.prepare(Progress(ended=ended, begun=begin(1 if issues else 2, 2 if issues else 1))))
        commit_writes(writes)

        for position, run in enumerate(runs):
            run.refresh_from_db()
            assert (run.attempt_count, run.total_tokens, run.issues_critical) == (2, 30 + position, position)
            assert run.cost == Decimal("0.001")
            first = Attempt.objects.get(step__run=run, step__index=1, number=1)
            assert [issue.description for issue in first.issues.all()] == [
                f"Run {position}, issue {number}." for number in range(position)
            ]
            assert first.usage.total == 30 + position
        assert [run.steps_passed for run in runs] == [1, 0, 0]

    def test_the_number_of_queries_does_not_grow_with_the_runs(self, django_assert_num_queries: Any) -> None:
        version = make_version(make_flow(make_step(1), make_step(2)))
        for count in (2, 8):
            recorders = [make_recorder(claim_run(make_run(version))) for _ in range(count)]
            for recorder in recorders:
                store(recorder, begun=begin())
            ended = make_attempt(outcome="failed", issues=(make_issue(),))
            writes = [recorder.prepare(Progress(ended=ended, begun=begin(1, 2))) for recorder in recorders]
            # Savepoint and its release; runs, attempts and requests begun, attempts ended, issues, usage, runs, facets.
            with django_assert_num_queries(2 + 8):
                commit_writes(writes)

    def test_what_was_stored_is_the_history_that_the_engine_had(self) -> None:
        run = claim_run(make_run(make_version(make_flow(make_step(1)))))
        recorder = make_recorder(run)
        store(recorder, begun=begin())
        failed = make_attempt(
            outcome="failed", usage=make_usage(), input={"topic": "tea"}, request={"model": "gpt-4.1"}
        )
        store(recorder, ended=failed, begun=begin(1, 2))
        stored = load_history(run)
        expected = History.begin(run.input, run_id=make_run_id(run)).append(failed)
        assert stored.attempts(1)[0].model_dump(exclude={"started_at"}) == expected.attempts(1)[0].model_dump(
            exclude={"started_at"}
        )


class TestFence:
    def test_a_run_that_another_worker_has_is_left_alone_and_the_others_are_stored(self) -> None:
        version = make_version()
        lost, held = claim_run(make_run(version)), claim_run(make_run(version))
        Run.objects.filter(pk=lost.pk).update(epoch=lost.epoch + 1)
        writes = [make_recorder(run).prepare(Progress(begun=begin())) for run in (lost, held)]
        results = commit_writes(writes)
        assert isinstance(results[0], LeaseLostError) and isinstance(results[1], Written)
        assert list(Step.objects.values_list("run", flat=True)) == [held.pk]

    @pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.CANCELLED])
    def test_a_run_that_was_ended_or_given_back_takes_no_more_attempts(self, status: RunStatus) -> None:
        run = claim_run(make_run())
        ended_at = datetime.now(UTC) if status == RunStatus.CANCELLED else None
        Run.objects.filter(pk=run.pk).update(status=status, ended_at=ended_at)
        (result,) = commit_writes([make_recorder(run).prepare(Progress(begun=begin()))])
        assert isinstance(result, LeaseLostError)
        assert not Attempt.objects.exists()


class TestSentAgain:
    """A connection that breaks in the commit leaves open whether it arrived: the write is sent again."""

    def test_an_attempt_is_stored_once_and_its_next_one_is_found(self) -> None:
        run = claim_run(make_run())
        recorder = make_recorder(run)
        store(recorder, begun=begin())
        write = recorder.prepare(Progress(ended=make_attempt(usage=make_usage(30)), begun=begin(1, 2)))
        (first,) = commit_writes([write])
        (second,) = commit_writes([write])
        assert first == second
        run.refresh_from_db()
        assert (run.total_tokens, run.attempt_count) == (30, 2)
        assert TokenUsage.objects.count() == 1

    def test_the_end_of_a_run_is_recognised_too(self) -> None:
        run = claim_run(make_run())
        recorder = make_recorder(run)
        store(recorder, begun=begin())
        write = recorder.prepare(Progress(ended=make_attempt(issues=(make_issue("low"),)), finish=DONE))
        assert commit_writes([write]) == [Written()]
        assert commit_writes([write]) == [Written()]
        assert Issue.objects.count() == 1
        run.refresh_from_db()
        assert (run.status, run.owner, run.lease_until) == (RunStatus.SUCCEEDED, "", None)

    def test_a_write_under_an_older_claim_is_no_repetition(self) -> None:
        run = claim_run(make_run())
        write = make_recorder(run).prepare(Progress(begun=begin()))
        commit_writes([write])
        (result,) = commit_writes([replace(write, epoch=write.epoch - 1)])
        assert isinstance(result, LeaseLostError)


class TestGoingOn:
    def test_the_next_worker_counts_on_from_what_is_stored(self) -> None:
        run = claim_run(make_run())
        recorder = make_recorder(run)
        store(recorder, begun=begin())
        store(recorder, ended=make_attempt(outcome="failed", usage=make_usage(30), issues=(make_issue(),)))
        run.hand_back()
        again = make_recorder(claim_run(run, "worker-2"))
        store(again, begun=begin(1, 2))
        store(again, ended=make_attempt(1, 2, usage=make_usage(10)), finish=DONE)
        run.refresh_from_db()
        assert (run.total_tokens, run.attempt_count, run.retry_count, run.issues_critical) == (40, 2, 1, 1)
        assert Step.objects.count() == 1


def read_facets(run: Run) -> set[tuple[str, str]]:
    return set(RunFacet.objects.filter(run=run).values_list("kind", "value"))


class TestFacets:
    def test_a_run_in_flight_is_found_by_codes_audits_severities_and_models_of_all_its_attempts(self) -> None:
        recorder = make_recorder(claim_run(run := make_run(make_version(make_flow(make_step(1))))))
        store(recorder, begun=begin())
        severe = make_issue("high", code="hex_format", audit="Hex format")
        store(recorder, ended=make_attempt(1, 1, "failed", model="gpt-5", issues=(severe,)), begun=begin(1, 2))
        facets = {
            ("code", "hex_format"),
            ("audit", "Hex format"),
            *(("severity", severity) for severity in ("low", "medium", "high")),
            ("model", "gpt-5"),
        }
        assert read_facets(run) == facets
        mild = make_issue("low", code="late")
        store(recorder, ended=make_attempt(1, 2, "failed", model="gpt-5", issues=(severe, mild)), begun=begin(1, 3))
        assert read_facets(run) - facets == {("code", "late")}

    def test_a_worker_that_takes_over_stores_none_twice(self) -> None:
        run = make_run(make_version(make_flow(make_step(1))))
        for number, worker in enumerate(["worker-1", "worker-2"], start=1):
            held = claim_run(run, worker)
            recorder = make_recorder(held)
            store(recorder, begun=begin(1, number))
            store(recorder, ended=make_attempt(1, number, "failed", issues=(make_issue("low", code="again"),)))
            held.hand_back()
        assert RunFacet.objects.filter(run=run, kind="code", value="again").count() == 1

    def test_labels_are_there_from_the_start(self) -> None:
        version = make_version()
        run = submit_run(flow=version.flow, input={"topic": "tea"}, labels=["nightly", "pilot", "nightly"])
        assert run.labels == ["nightly", "pilot"]
        assert read_facets(run) == {("label", "nightly"), ("label", "pilot")}
