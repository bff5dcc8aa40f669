"""Runs as the worker executes them: a real drain, the real client, a simulated model over TCP, a real database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from flows.engine.execution import Execution, ExecutionEnd, Received
from flows.engine.history import History
from flows.engine.prompt import CURRENT_STEP_HEADING
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec, FlowSpec, OnExhausted
from runs.filters import RunFilters
from runs.management.commands.run_flow import fetch_outputs
from runs.matching_runs import fetch_matching_runs
from runs.models import Attempt, DailyRuns, EndReason, FlowSpending, Run, RunStatus, Worker
from runs.queue import draining, force_quit
from runs.rollup import count_ended_runs
from runs.spending import load_budgets
from runs.stored_history import load_history
from runs.sweep import sweep
from runs.worker import event_loop, tasks
from runs.worker.tasks import hold_slot
from tests.engine.builders import make_flow, make_step
from tests.engine.executions import LENGTH, LONG, SHORT
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version, make_worker
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
        make_worker(pid=4712)
        sweep()
        run.refresh_from_db()
        assert run.status == RunStatus.QUEUED
        Worker.objects.all().delete()
        sweep()
        run.refresh_from_db()
        assert run.status == RunStatus.QUEUED, "without any worker nothing is known"
        make_worker(unable_versions=[run.version_id])
        sweep()
        run.refresh_from_db()
        assert (run.status, run.end_reason) == (RunStatus.ERRORED, EndReason.CONFIGURATION)
        assert "gone_audit" in run.end_sentence


class TestResume:
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


class TestCancel:
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
    def test_a_second_drain_leaves_the_work_to_the_first(self, provider: ModelServer) -> None:
        make_run()
        with hold_slot():
            assert tasks.drain(leaves_when_idle=True) == "All slots of this host are taken."
        assert tasks.drain(leaves_when_idle=True) == "Worked on 1 runs."
        assert Run.objects.get().status == RunStatus.SUCCEEDED


class TestBudgetOfAFlow:
    def run_within(self, budget: int, spec: FlowSpec) -> Run:
        """A run of a flow whose runs may use this number of tokens in all."""
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

    def test_what_was_used_while_there_was_no_budget_counts_for_the_next_one(self) -> None:
        version = self.run_within(1_000, make_flow(make_step(1))).version
        assert load_budgets()[version.flow_id].tokens == 0
        type(version.flow).objects.update(total_token_budget=None)
        Run.objects.update(total_tokens=900, started_at=timezone.now())
        assert load_budgets() == {}
        type(version.flow).objects.update(total_token_budget=1_000)
        assert load_budgets()[version.flow_id].tokens == 900


ACCEPTING: dict[str, Any] = {"audits": (LENGTH,), "max_retries": 1, "on_exhausted": OnExhausted.ACCEPT_BEST}
FLOW = make_flow(make_step(1, **ACCEPTING), make_step(2, **ACCEPTING))


@pytest.fixture
def accepted(provider: ModelServer) -> Run:
    """A run whose step 1 passed, and whose step 2 accepted its first attempt, the second being invalid."""
    script(provider, tool_1=[LONG], tool_2=[SHORT, {"no": 1}])
    return run_flow(FLOW)


def test_pages_and_api_show_the_accepted_output_as_the_result(accepted: Run, client: Client, admin_user: Any) -> None:
    client.force_login(admin_user)
    page = client.get(reverse("runs:page", args=[accepted.pk]), {"show": "result"}).content.decode()
    assert 'id="accepted"' in page and SHORT["text"] in page
    assert "best output accepted" in client.get(reverse("runs:list")).content.decode()
    run = client.get(f"/api/v1/runs/{accepted.pk}", {"attempts": "final"}).json()
    (final,) = run["steps"][2]["attempts"]
    assert (run["accepted_count"], final["is_accepted"], final["output"]) == (1, True, SHORT)


def test_the_command_prints_the_accepted_output_also_where_a_later_one_is_worse(provider: ModelServer) -> None:
    script(provider, tool_1=[{"text": ""}, SHORT, {"text": ""}])
    empty = AuditSpec(name="Empty", rule="output.text != ''")
    step = make_step(1, **{**ACCEPTING, "audits": (LENGTH, empty), "max_retries": 2})
    assert fetch_outputs(run_flow(make_flow(step))) == {"Step 1": SHORT}


def test_they_are_filtered_by_and_counted_apart(accepted: Run, provider: ModelServer) -> None:
    script(provider, tool_1=[LONG], tool_2=[LONG])
    passed = run_flow(FLOW)
    assert fetch_matching_runs(RunFilters("accepted=1")).ids == (accepted.pk,)
    assert RunFilters("accepted=0").problems and passed.accepted_count == 0
    count_ended_runs()
    counts = DailyRuns.objects.values_list("succeeded", "accepted", "first_time")
    assert [sum(column) for column in zip(*counts, strict=True)] == [2, 1, 1]
