"""Runs as the worker executes them: a real drain, the real client, a simulated model over TCP, a real database."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DataError, connection
from django.utils import timezone

from flows.engine.execution import Execution, ExecutionEnd, Progress, Received, Start
from flows.engine.history import History, Outcome
from flows.engine.prompt import CURRENT_STEP_HEADING
from flows.engine.providers import Provider
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec
from runs.group_commit import RunWrite, commit_writes
from runs.models import Attempt, EndReason, Run, RunStatus
from runs.recorder import RunRecorder
from runs.stored_history import load_history
from runs.sweep import sweep
from runs.worker import database_thread, event_loop
from runs.worker.database_thread import DatabaseThread
from runs.worker.run_task import RunTask
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import claim_run, make_run, make_version, make_worker
from tests.runs.executing import attempts_of, drain, run_flow, script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]


WORDS = AuditSpec(name="Words", rule="[{'description': 'Dull.', 'severity': 'low', 'score': 0.5}]")
LONG_ENOUGH = AuditSpec(
    name="Long enough",
    rule="size(output.text) >= 10",
    message="'The text has only ' + string(size(output.text)) + ' characters.'",
    path="'/text'",
)


class TestTheMainJob:
    def test_a_step_that_fails_its_audit_is_retried_with_its_output_and_issue_and_all_tokens_count(
        self, provider: ModelServer
    ) -> None:
        script(provider, tool_1=[{"text": "Tea."}, {"text": "Tea is a warm drink."}])
        run = run_flow(make_flow(make_step(audits=[LONG_ENOUGH])))

        first, second = attempts_of(run)
        assert (run.status, run.steps_passed, run.attempt_count, run.retry_count) == (RunStatus.SUCCEEDED, 1, 2, 1)
        assert (first.outcome, first.output) == ("failed", {"text": "Tea."})
        assert (second.outcome, second.output) == ("passed", {"text": "Tea is a warm drink."})

        (issue,) = first.issues.all()
        assert (issue.description, issue.path) == ("The text has only 4 characters.", "/text")
        assert not second.issues.exists()

        feedback = second.request["messages"][0]["content"].split(CURRENT_STEP_HEADING)[1]
        assert '{"text":"Tea."}' in feedback and "The text has only 4 characters." in feedback

        usages = [attempt.usage for attempt in (first, second)]
        assert all(usage.reported and usage.total > 0 for usage in usages)
        assert run.total_tokens == sum(usage.total for usage in usages)
        assert run.prompt_tokens == sum(usage.prompt for usage in usages)
        assert run.issues_critical == 1

    @pytest.mark.parametrize(("model", "field"), [("gpt-4.1", "messages"), ("gpt-6-sol", "input")])
    def test_the_exact_request_is_stored_with_the_attempt_by_either_api(
        self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, model: str, field: str
    ) -> None:
        monkeypatch.setattr(Provider, "is_openai", True)
        script(provider, tool_1=[{"text": "Tea is a warm drink."}])
        run = run_flow(make_flow(make_step(model=model)))
        (attempt,) = attempts_of(run)
        assert run.status == RunStatus.SUCCEEDED and run.total_tokens > 0
        assert field in attempt.request and attempt.request == provider.app.calls[0].body

    def test_a_step_that_never_passes_fails_the_run_which_names_the_blocking_attempt(
        self, provider: ModelServer
    ) -> None:
        script(provider, tool_1=[{"text": "Tea."}])
        run = run_flow(make_flow(make_step(audits=[LONG_ENOUGH], max_retries=1), make_step(2)))
        assert (run.status, run.end_reason) == (RunStatus.FAILED, EndReason.STEP_FAILED)
        assert (run.blocking_step, run.blocking_attempt) == (1, 2)
        assert run.end_sentence.startswith("Step 1 “Step 1” did not pass in 2 attempts")

    def test_many_runs_are_under_way_at_the_same_time(self, provider: ModelServer) -> None:
        version = make_version(make_flow(make_step()))
        runs = [make_run(version) for _ in range(20)]
        drain()
        assert Run.objects.filter(pk__in=[run.pk for run in runs], status=RunStatus.SUCCEEDED).count() == 20
        assert provider.app.call_count == 20


class TestWaits:
    def test_a_long_wait_for_the_provider_costs_no_slot_and_the_run_says_what_it_waits_for(
        self, provider: ModelServer
    ) -> None:
        script(provider, tool_1=[Fault(FaultKind.RATE_LIMITED, retry_after=100)])
        run = run_flow(make_flow(make_step()))
        assert (run.status, run.attempt_count, run.crashes) == (RunStatus.QUEUED, 1, 0)
        assert run.available_at - timezone.now() > timedelta(seconds=90)
        assert (
            "before attempt 2 of step 1. The call before it brought no answer: rate limited (429)." in run.waiting_for
        )
        script(provider, tool_1=[{"text": "Tea is a warm drink."}])
        Run.objects.update(available_at=timezone.now())
        error = Attempt.objects.get(step__run=run)
        Attempt.objects.update(ended_at=error.ended_at - timedelta(seconds=120))
        drain()
        run.refresh_from_db()
        assert (run.status, run.attempt_count, run.retry_count) == (RunStatus.SUCCEEDED, 2, 0)
        assert run.waiting_for == ""

    def test_a_run_whose_plug_in_is_missing_here_waits_for_a_worker_that_may_have_it(
        self, provider: ModelServer, settings: Any
    ) -> None:
        run = run_flow(make_flow(make_step(audits=[AuditSpec(name="Gone", rule="python:gone_audit")])))
        assert (run.status, run.owner, run.crashes) == (RunStatus.QUEUED, "", 0)
        assert "the audit “gone_audit”" in run.waiting_for and run.waiting_since is not None

        settings.TOOLFLOW_PLUGIN_WAIT = 0
        make_worker(unable_versions=[run.version_id])
        able = make_worker(pid=4712)
        sweep()
        run.refresh_from_db()
        assert run.status == RunStatus.QUEUED
        able.delete()
        sweep()
        run.refresh_from_db()
        assert (run.status, run.end_reason) == (RunStatus.ERRORED, EndReason.CONFIGURATION)
        assert "gone_audit" in run.end_sentence


class TestResume:
    def test_a_run_goes_on_from_its_last_stored_attempt_and_no_stored_call_is_paid_again(
        self, provider: ModelServer
    ) -> None:
        run = make_run(make_version(make_flow(make_step(1), make_step(2))))
        drain()
        calls = provider.app.call_count
        # As if the worker had died during step 2: the run is queued, step 2's attempt was interrupted.
        last = Attempt.objects.get(step__run=run, step__index=2)
        last.usage.delete()
        last.issues.all().delete()
        last.end_without_output(Outcome.INTERRUPTED)
        Run.objects.filter(pk=run.pk).update(status=RunStatus.QUEUED, ended_at=None)
        drain()
        run.refresh_from_db()
        assert run.status == RunStatus.SUCCEEDED
        assert provider.app.call_count == calls + 1
        outcomes = [(a.step.index, a.number, a.outcome) for a in attempts_of(run)]
        assert outcomes == [(1, 1, "passed"), (2, 1, "interrupted"), (2, 2, "passed")]
        assert run.retry_count == 0

    def test_stored_history_equals_live_history(self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
        ends: list[ExecutionEnd] = []
        execute = Execution.execute

        async def listen(self: Execution, history: History, received: Received | None) -> ExecutionEnd:
            ends.append(await execute(self, history, received))
            return ends[-1]

        monkeypatch.setattr(Execution, "execute", listen)
        replies = [
            Fault(FaultKind.SERVER_ERROR),
            Fault(FaultKind.MALFORMED),
            {"text": "Tea.\0"},
            {"text": "Tea is warm."},
        ]
        script(provider, tool_1=replies)
        step = make_step(audits=[LONG_ENOUGH, WORDS], output_sanitizer="{'text': value.text.trim()}")
        run = run_flow(make_flow(step, make_step(2), make_step(3, compute="{'topic': input.topic}")))
        assert run.status == RunStatus.SUCCEEDED
        assert load_history(run) == ends[0].history
        assert ends[0].history.attempts(1)[-1].issues[0].added_fields == {"score": 0.5}
        assert [attempt.outcome for attempt in ends[0].history.attempts(1)] == [
            "errored",
            "invalid",
            "failed",
            "passed",
        ]
        assert run.retry_count == 2, "the call without an answer was no try"


class TestRefusedByTheDatabase:
    def test_a_run_whose_output_the_database_refuses_ends_errored_and_is_not_called_again(
        self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(writes: list[RunWrite]) -> Any:
            if any(write.ended is not None for write in writes):
                raise DataError("value too long")
            return commit_writes(writes)

        monkeypatch.setattr(database_thread, "commit_writes", refuse)
        run = run_flow(make_flow(make_step()))
        assert (run.status, run.end_reason, run.crashes) == (RunStatus.ERRORED, EndReason.INTERNAL_ERROR, 0)
        assert run.end_sentence.endswith("refuses to store what the last call brought. DataError: value too long.")
        assert provider.app.call_count == 1


class TestClaimedAgain:
    def test_a_run_that_was_lost_and_claimed_again_here_stays_known_when_its_old_task_ends(self) -> None:
        drain = event_loop.Drain()
        run_task: Any = object()

        async def forget_both() -> None:
            old, new = (asyncio.create_task(asyncio.sleep(0)) for _ in range(2))
            drain._tasks[7] = run_task, new
            drain._forget(7, old)
            assert drain._tasks == {7: (run_task, new)}
            drain._forget(7, new)
            assert drain._tasks == {}
            await asyncio.gather(old, new)

        asyncio.run(forget_both())


class TestCancel:
    def test_an_attempt_that_ended_is_stored_although_its_run_is_cancelled_meanwhile(self) -> None:
        run = claim_run(make_run(make_version(make_flow(make_step()))))
        recorder = RunRecorder(run, run.version.flow_spec, load_history(run))

        async def cancel_while_the_database_is_busy() -> None:
            database = DatabaseThread()
            context: Any = SimpleNamespace(database=database, budgets={})
            run_task = RunTask(run, context)
            run_task._recorder = recorder
            release = threading.Event()
            busy = asyncio.create_task(database.ask(release.wait))
            recording = asyncio.create_task(run_task.record(Progress(begun=Start(1, 1, {}, None, run.started_at))))
            await asyncio.sleep(0)
            recording.cancel()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await recording
            await busy
            await database.close()

        asyncio.run(cancel_while_the_database_is_busy())
        assert Attempt.objects.filter(step__run=run).exists()

    def test_a_call_in_flight_is_cut_and_the_run_ends_cancelled_with_its_attempt(
        self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_loop, "SLOW_TICK", 0.05)
        run = make_run(make_version(make_flow(make_step(1), make_step(2))))

        def cancel() -> None:
            Run.objects.get(pk=run.pk).request_cancel()
            connection.close()

        def cancel_and_hang(request: dict[str, Any], step_input: Any) -> Fault:
            # The server's thread has an event loop, where Django refuses its database.
            user = threading.Thread(target=cancel)
            user.start()
            user.join()
            return Fault(FaultKind.HANG)

        script(provider, tool_1=[cancel_and_hang])
        drain()
        run.refresh_from_db()
        (attempt,) = attempts_of(run)
        assert (run.status, run.end_reason) == (RunStatus.CANCELLED, EndReason.CANCELLED)
        assert (attempt.outcome, attempt.usage.reported) == ("cancelled", False)
        assert provider.app.call_count == 1
