"""Runs as the worker executes them: a real drain, the real client, a simulated model over TCP, a real database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from flows.engine.execution import Execution, ExecutionEnd, Progress, Received, Start
from flows.engine.history import History, Outcome
from flows.engine.prompt import CURRENT_STEP_HEADING
from flows.engine.providers import Provider
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec, FlowSpec
from runs.models import Attempt, EndReason, FlowSpending, Run, RunStatus, Worker
from runs.ownership import Owner
from runs.queue import draining, force_quit
from runs.recorder import RunRecorder
from runs.spending import FlowBudget
from runs.stored_history import load_history
from runs.sweep import sweep
from runs.worker import event_loop, tasks
from runs.worker.database_thread import DatabaseThread
from runs.worker.run_task import RunTask
from runs.worker.tasks import hold_slot
from tests.engine.builders import make_flow, make_step, make_usage
from tests.engine.model_server import ModelServer
from tests.runs.builders import claim_run, make_run, make_version, make_worker
from tests.runs.executing import attempts_of, drain, in_another_thread, run_flow, script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]

TEA = {"text": "Tea is a warm drink."}
WORDS = AuditSpec(name="Words", rule="[{'description': 'Dull.', 'severity': 'low', 'score': 0.5}]")
LONG_ENOUGH = AuditSpec(
    name="Long enough",
    rule="size(output.text) >= 10",
    message="'The text has only ' + string(size(output.text)) + ' characters.'",
    path="'/text'",
)
TWO_STEPS = make_flow(make_step(1), make_step(2))


@pytest.fixture(autouse=True)
def _own_slots(settings: Any, tmp_path: Any) -> Iterator[None]:
    settings.TOOLFLOW_DATA_DIR = tmp_path
    yield
    go_on()


def go_on() -> None:
    """Let workers start again after one was stopped."""
    draining.clear()
    force_quit.clear()


class TestTheMainJob:
    def test_a_step_that_fails_its_audit_is_retried_with_its_output_and_issue_and_all_tokens_count(
        self, provider: ModelServer
    ) -> None:
        script(provider, tool_1=[{"text": "Tea."}, TEA])
        run = run_flow(make_flow(make_step(audits=[LONG_ENOUGH])))

        first, second = attempts_of(run)
        assert (run.status, run.steps_passed, run.attempt_count, run.retry_count) == (RunStatus.SUCCEEDED, 1, 2, 1)
        assert (first.outcome, first.output) == ("failed", {"text": "Tea."})
        assert (second.outcome, second.output) == ("passed", TEA)

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
        script(provider, tool_1=[TEA])
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

    @pytest.mark.parametrize(
        "text",
        ["x" * 5_000_000, "NUL \0 here", "lone \ud800 surrogate", "<script>\u202e\x1b[31m"],
        ids=["5 MB", "nul", "surrogate", "markup"],
    )
    def test_whatever_a_model_gives_back_is_stored(self, provider: ModelServer, text: str) -> None:
        script(provider, tool_1=[{"text": text}])
        run = run_flow(make_flow(make_step(max_retries=0)))
        (attempt,) = attempts_of(run)
        assert (run.status, len(attempt.output["text"])) == (RunStatus.SUCCEEDED, len(text))
        assert "\0" not in attempt.output["text"]


class TestWaits:
    def test_a_long_wait_for_the_provider_costs_no_slot_and_the_run_says_what_it_waits_for(
        self, provider: ModelServer
    ) -> None:
        script(provider, tool_1=[Fault(FaultKind.RATE_LIMITED, retry_after=100)])
        run = run_flow(make_flow(make_step()))
        assert (run.status, run.attempt_count, run.crashes) == (RunStatus.QUEUED, 1, 0)
        assert run.available_at - timezone.now() > timedelta(seconds=90)
        assert "before attempt 2 of step 1" in run.waiting_for and "rate limited (429)" in run.waiting_for
        script(provider, tool_1=[TEA])
        Run.objects.update(available_at=timezone.now())
        Attempt.objects.update(ended_at=Attempt.objects.get().ended_at - timedelta(seconds=120))
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
        run = run_flow(TWO_STEPS)
        calls = provider.app.call_count
        # As if the worker had died during step 2: the run is queued, step 2's attempt was interrupted.
        last = Attempt.objects.get(step__run=run, step__index=2)
        last.usage.delete()
        last.issues.all().delete()
        last.end_without_output(Outcome.INTERRUPTED)
        Run.objects.filter(pk=run.pk).update(status=RunStatus.QUEUED, ended_at=None)
        drain()
        run.refresh_from_db()
        assert (run.status, run.retry_count, provider.app.call_count) == (RunStatus.SUCCEEDED, 0, calls + 1)
        outcomes = [(a.step.index, a.number, a.outcome) for a in attempts_of(run)]
        assert outcomes == [(1, 1, "passed"), (2, 1, "interrupted"), (2, 2, "passed")]

    def test_stored_history_equals_live_history(self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
        ends: list[ExecutionEnd] = []
        execute = Execution.execute

        async def listen(self: Execution, history: History, received: Received | None) -> ExecutionEnd:
            ends.append(await execute(self, history, received))
            return ends[-1]

        monkeypatch.setattr(Execution, "execute", listen)
        script(provider, tool_1=[Fault(FaultKind.SERVER_ERROR), Fault(FaultKind.MALFORMED), {"text": "Tea.\0"}, TEA])
        step = make_step(audits=[LONG_ENOUGH, WORDS], output_sanitizer="{'text': value.text.trim()}")
        run = run_flow(make_flow(step, make_step(2), make_step(3, compute="{'topic': input.topic}")))
        assert run.status == RunStatus.SUCCEEDED
        assert load_history(run) == ends[0].history
        attempts = ends[0].history.attempts(1)
        assert attempts[-1].issues[0].added_fields == {"score": 0.5}
        assert [attempt.outcome for attempt in attempts] == ["errored", "invalid", "failed", "passed"]
        assert run.retry_count == 2, "the call without an answer was no try"


def test_a_run_that_was_lost_and_claimed_again_here_stays_known_when_its_old_task_ends() -> None:
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
        run = claim_run(make_run())
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

        def cancel_and_hang(request: dict[str, Any], step_input: Any) -> Fault:
            in_another_thread(lambda: Run.objects.get().request_cancel())
            return Fault(FaultKind.HANG)

        script(provider, tool_1=[cancel_and_hang])
        run = run_flow(TWO_STEPS)
        (attempt,) = attempts_of(run)
        assert (run.status, run.end_reason) == (RunStatus.CANCELLED, EndReason.CANCELLED)
        assert (attempt.outcome, attempt.usage.reported, provider.app.call_count) == ("cancelled", False, 1)


class TestStops:
    def test_a_worker_that_stops_lets_its_call_end_and_gives_the_run_back_behind_it(
        self, provider: ModelServer
    ) -> None:
        def stop_worker(request: dict[str, Any], step_input: Any) -> dict[str, str]:
            draining.set()
            return TEA

        script(provider, tool_1=[stop_worker], tool_2=[TEA])
        run = run_flow(TWO_STEPS)
        assert (run.status, run.owner, run.attempt_count, run.next_model) == (RunStatus.QUEUED, "", 1, "gpt-4.1")
        assert Attempt.objects.get().outcome == "passed"

        go_on()
        drain()
        run.refresh_from_db()
        assert (run.status, run.attempt_count, run.crashes) == (RunStatus.SUCCEEDED, 2, 0)
        assert provider.app.call_count == 2

    def test_a_worker_that_stops_takes_nothing_more(self) -> None:
        make_run()
        draining.set()
        assert tasks.drain(leaves_when_idle=True) == "The worker stops."
        assert Run.objects.get().status == RunStatus.QUEUED


class TestAmongOthers:
    def test_a_host_has_one_drain_less_than_worker_processes(self, settings: Any) -> None:
        settings.TOOLFLOW_WORKERS = 3
        with hold_slot() as first:
            with hold_slot() as second, hold_slot() as third:
                assert (first, second, third) == (True, True, False)
            with hold_slot() as second:
                assert second

    def test_a_second_drain_leaves_the_work_to_the_first(self, provider: ModelServer) -> None:
        make_run()
        with hold_slot():
            assert tasks.drain(leaves_when_idle=True) == "All slots of this host are taken."
        assert tasks.drain(leaves_when_idle=True) == "Worked on 1 runs."
        assert Run.objects.get().status == RunStatus.SUCCEEDED

    def test_it_is_listed_while_it_works_and_gone_when_it_ends(self, provider: ModelServer) -> None:
        seen: list[Worker] = []

        def look(request: dict[str, Any], step_input: Any) -> dict[str, str]:
            in_another_thread(lambda: seen.extend(Worker.objects.alive()))
            return TEA

        script(provider, tool_1=[look])
        run_flow(make_flow())
        (worker,) = seen
        owner = Owner.parse(worker.owner)
        assert owner is not None and not owner.is_gone
        assert (worker.host, worker.pid, worker.slots) == (owner.host, owner.pid, 200)
        assert not Worker.objects.exists()


class TestBudgetOfAFlow:
    def run_within(self, budget: int, spec: FlowSpec) -> Run:
        """A run of a flow whose runs may use so many tokens in all."""
        version = make_version(spec)
        version.flow.total_token_budget = budget
        version.flow.save()
        return make_run(version)

    def test_no_call_is_made_once_the_runs_of_a_flow_have_used_its_budget(self, provider: ModelServer) -> None:
        script(provider, tool_1=[TEA], tool_2=[TEA])
        runs = [self.run_within(1, TWO_STEPS) for _ in range(2)]
        drain()
        drain()
        for run in runs:
            run.refresh_from_db()
            assert (run.status, run.end_reason) == (RunStatus.ERRORED, EndReason.BUDGET_EXCEEDED)
        assert FlowSpending.objects.get().tokens == sum(run.total_tokens for run in runs)
        # Both had begun their first step before either had used anything.
        assert provider.app.call_count <= 2

    def test_runs_from_before_the_budget_was_set_count_to_the_last_token(self, provider: ModelServer) -> None:
        script(provider, tool_1=[TEA])
        spec = make_flow(make_step(1))
        late = self.run_within(run_flow(spec).total_tokens, spec)
        drain()
        late.refresh_from_db()
        assert (late.end_reason, late.attempt_count) == (EndReason.BUDGET_EXCEEDED, 0)
        assert provider.app.call_count == 1

    def test_what_is_in_flight_counts_at_once_and_once(self) -> None:
        budget = FlowBudget("Tea", "month", token_budget=50, cost_budget=None, tokens=10)
        budget.in_flight[7] = make_usage(30)
        assert budget.find_end() is None
        budget.add_stored(7, make_usage(30))
        assert budget.find_end() is None and budget.tokens == 40
        budget.in_flight[7] = make_usage(10)
        assert budget.find_end() is not None
