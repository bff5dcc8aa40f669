"""Budgets and time limits of runs and steps: when they end a run, and what is decided or kept all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.execution import ExecutionEnd
from flows.engine.history import Attempt, Outcome, Severity, TokenUsage
from flows.engine.openai_client import simulated_client
from flows.engine.planner import Action, Call, Compute, EndReason, EndStatus, Finish, next_action
from flows.engine.plugins import Registry
from flows.engine.providers import ModelReply
from flows.engine.running import run_flow
from flows.engine.simulated_model import Fault, FaultKind, SimulatedModel
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings, ServiceTier
from tests.engine.builders import (
    NOON,
    FakeClock,
    MemoryRecorder,
    make_attempt,
    make_flow,
    make_history,
    make_step,
    make_usage,
    seconds,
)
from tests.engine.executions import LONG, SHORT, audited, execute, simulate

BUSY = Fault(FaultKind.RATE_LIMITED, retry_after=7)


class Timed:
    """A client whose calls take this number of seconds on a clock that is still otherwise; it keeps its timeouts."""

    def __init__(self, clock: FakeClock, app: SimulatedModel, *durations: float) -> None:
        self._clock = clock
        self._client = simulated_client(app)
        self._durations = iter(durations)
        self.timeouts: list[float] = []

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        self.timeouts.append(timeout)
        duration = next(self._durations, 0.0)
        await self._clock.sleep_until(self._clock.now() + seconds(min(duration, timeout)))
        if duration >= timeout:
            raise ModelError(ModelErrorCode.TIMEOUT, f"The call took longer than {timeout:g} s.")
        return await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)

    async def close(self) -> None:
        await self._client.close()


def the_finish(end: ExecutionEnd) -> Finish:
    assert end.finish is not None
    return end.finish


async def run_timed(flow: Any, replies: list[Any], *durations: float, **options: Any) -> tuple[ExecutionEnd, Timed]:
    clock = options.pop("clock", None) or FakeClock()
    client = Timed(clock, simulate(tool_1=replies, tool_2=replies), *durations)
    return await execute(flow, client=client, clock=clock, **options), client


class TestSteps:
    FLOW = make_flow(audited(1, name="check", time_limit=30))

    async def test_a_step_that_took_too_long_is_not_tried_again_and_the_run_says_why(self) -> None:
        recorder = MemoryRecorder()
        end, client = await run_timed(self.FLOW, [SHORT, SHORT, LONG], 20, 15, recorder=recorder)
        finish = the_finish(end)
        assert (finish.status, finish.reason) == (EndStatus.ERRORED, EndReason.DEADLINE_EXCEEDED)
        assert finish.sentence == "Step 1 “check” took longer than its time limit of 30 seconds."
        assert client.timeouts == [30, 10]
        assert recorder.describe()[-1] == "1.2 errored, run errored"

    async def test_a_call_may_take_what_is_left_and_is_broken_off_then(self) -> None:
        end, client = await run_timed(self.FLOW, [LONG], 90)
        (attempt,) = end.history.attempts(1)
        assert (client.timeouts, attempt.outcome, attempt.usage.reported) == ([30], Outcome.ERRORED, False)
        assert attempt.error is not None and attempt.error.code is ModelErrorCode.TIMEOUT
        assert attempt.error.message.startswith("The call was aborted. Step 1 “check” took longer than")
        assert the_finish(end).blocking == (1, 1)

    async def test_the_time_of_a_step_begins_with_its_first_attempt_and_goes_on_over_restarts(self) -> None:
        started = NOON - seconds(29)
        history = make_history(make_attempt(1, 1, "interrupted", started_at=started, ended_at=None))
        end, client = await run_timed(self.FLOW, [LONG], history=history)
        assert (client.timeouts, the_finish(end).status) == ([1], EndStatus.SUCCEEDED)
        end, client = await run_timed(self.FLOW, [LONG], history=history, clock=FakeClock(NOON + seconds(1)))
        assert (client.timeouts, the_finish(end).blocking) == ([], (1, 1))

    @pytest.mark.parametrize(("limit", "timeout"), [(None, 900), (300, 300)])
    async def test_a_call_of_the_tier_flex_may_take_15_minutes_within_the_limits_of_its_step(
        self, limit: int | None, timeout: float
    ) -> None:
        flow = make_flow(audited(1, model="gpt-5-mini", service_tier=ServiceTier.FLEX, time_limit=limit))
        _, client = await run_timed(flow, [LONG])
        assert client.timeouts == [timeout]

    async def test_a_wait_that_would_last_longer_ends_the_run_at_once(self) -> None:
        recorder, clock = MemoryRecorder(), FakeClock()
        flow = make_flow(audited(1, name="check", time_limit=5))
        end = await execute(flow, simulate(tool_1=[BUSY, LONG]), clock=clock, recorder=recorder)
        assert (clock.slept_until, recorder.describe()) == ([], ["1.1 begins", "1.1 errored, run errored"])
        assert the_finish(end).sentence.startswith("Step 1 “check” would take longer than its time limit of 5 seconds:")


class TestRuns:
    FLOW = make_flow(audited(1), audited(2), time_limit=30)

    async def test_a_run_that_took_too_long_ends_errored_before_the_next_attempt(self) -> None:
        end, client = await run_timed(self.FLOW, [LONG], 29.5, 5, deadline=NOON + seconds(30))
        assert the_finish(end).reason is EndReason.DEADLINE_EXCEEDED
        assert the_finish(end).sentence == "The run took longer than its time limit of 30 seconds."
        assert client.timeouts == [30, 0.5]

    @pytest.mark.parametrize(("deadline", "timeout", "blamed"), [(30, 30, "The run"), (50, 40, "Step 1")])
    async def test_whichever_limit_comes_first_holds(self, deadline: int, timeout: int, blamed: str) -> None:
        flow = make_flow(audited(1, time_limit=40), time_limit=30)
        end, client = await run_timed(flow, [LONG], 90, deadline=NOON + seconds(deadline))
        assert (client.timeouts, the_finish(end).sentence.startswith(blamed)) == ([timeout], True)


class TestWhatIsUnderWay:
    """Audits and functions that still work when the time is up."""

    @staticmethod
    def register(*, stuck: threading.Event) -> Registry:
        registry = Registry()

        @registry.audit("thorough")
        async def think(output: Any) -> bool:
            return await asyncio.Event().wait()

        @registry.audit("blocking")
        def block(output: Any) -> bool:
            return stuck.wait()

        @registry.function("slow")
        async def give(previous: Any) -> Any:
            return await asyncio.Event().wait()

        return registry

    @pytest.fixture
    def registry(self) -> Iterator[Registry]:
        stuck = threading.Event()
        yield self.register(stuck=stuck)
        stuck.set()

    @pytest.mark.parametrize("rule", ["python:thorough", "python:blocking"])
    async def test_an_audit_is_broken_off_and_what_was_paid_for_is_kept(self, rule: str, registry: Registry) -> None:
        step = make_step(1, name="check", time_limit=30, audits=(AuditSpec(name="Slow", rule=rule),), max_retries=0)
        end, _ = await run_timed(make_flow(step), [LONG], 29.99, registry=registry)
        (attempt,) = end.history.attempts(1)
        assert (attempt.output, attempt.outcome, attempt.usage.total > 0) == (LONG, Outcome.FAILED, True)
        (issue,) = attempt.issues
        assert (issue.code, issue.severity) == ("audit_error", Severity.CRITICAL)
        assert "it was aborted: Step 1 “check” took longer" in issue.description
        assert (the_finish(end).reason, the_finish(end).blocking) == (EndReason.DEADLINE_EXCEEDED, (1, 1))

    @pytest.mark.parametrize("field", ["compute", "input_expression"])
    async def test_so_is_a_function_that_makes_an_input_or_an_output(self, field: str, registry: Registry) -> None:
        step = make_step(1, **{field: "python:slow"})
        end = await execute(make_flow(step), registry=registry, deadline=NOON + seconds(0.01))
        assert the_finish(end).reason is EndReason.DEADLINE_EXCEEDED


def failed(number: int, tokens: int = 0, cost: str | None = None, step: int = 1) -> Attempt:
    return make_attempt(step, number, "failed", usage=spent(tokens, cost))


def spent(tokens: int = 0, cost: str | None = None) -> TokenUsage:
    return make_usage(tokens, cost=Decimal(cost) if cost is not None else None)


def finish(action: Action) -> Finish:
    assert isinstance(action, Finish), action
    return action


class TestTokens:
    FLOW = make_flow(make_step(1), make_step(2, name="check"), token_budget=20_000)

    def test_a_run_whose_budget_is_used_up_ends_errored_and_says_what_it_was_and_what_was_used(self) -> None:
        history = make_history(make_attempt(1, usage=spent(9_000)), failed(1, 8_000, step=2), failed(2, 4_340, step=2))
        end = finish(next_action(self.FLOW, history))
        assert (end.status, end.reason, end.blocking) == (EndStatus.ERRORED, EndReason.BUDGET_EXCEEDED, (2, 2))
        assert end.sentence == (
            "The run stopped before step 2 “check”, attempt 3: budget of 20,000 tokens used (21,340)."
        )

    @pytest.mark.parametrize(("used", "goes_on"), [(19_999, True), (20_000, False)])
    def test_it_is_used_up_when_nothing_is_left(self, used: int, goes_on: bool) -> None:
        action = next_action(self.FLOW, make_history(failed(1, used)))
        assert isinstance(action, Call) is goes_on

    def test_what_is_decided_stays_decided_whatever_was_used(self) -> None:
        history = make_history(make_attempt(1), make_attempt(2, usage=spent(50_000)))
        assert finish(next_action(self.FLOW, history)).status is EndStatus.SUCCEEDED
        flow = make_flow(make_step(max_retries=0), token_budget=10)
        assert finish(next_action(flow, make_history(failed(1, 50)))).reason is EndReason.STEP_FAILED

    def test_local_steps_cost_nothing_and_still_run(self) -> None:
        flow = make_flow(make_step(1), make_step(2, compute="previous"), make_step(3), token_budget=10)
        history = make_history(make_attempt(1, usage=spent(50)))
        assert next_action(flow, history) == Compute(2, 1)
        end = finish(next_action(flow, history.append(make_attempt(2))))
        assert (end.reason, end.blocking) == (EndReason.BUDGET_EXCEEDED, (1, 1))
        assert "before step 3 “Step 3”, attempt 1" in end.sentence


def test_a_run_s_own_limit_replaces_the_flow_s_and_what_it_does_not_set_stays() -> None:
    own = make_flow(token_budget=100, cost_budget=Decimal(1), time_limit=60).with_limits(
        token_budget=500, time_limit=10
    )
    assert (own.token_budget, own.cost_budget, own.time_limit) == (500, Decimal(1), 10)


def test_one_amount_of_money_is_one_definition_however_it_is_written() -> None:
    document = make_flow().to_document()
    written = [0.5, "0.50", Decimal("0.50000000")]
    specs = [FlowSpec.from_document({**document, "cost_budget": amount}) for amount in written]
    assert (len({spec.digest for spec in specs}), specs[0].to_document()["cost_budget"]) == (1, 0.5)
    assert not {"token_budget", "cost_budget", "time_limit"} & {*document, *document["steps"][0]}


class TestExecution:
    FLOW = make_flow(audited(), token_budget=1)

    async def test_a_budget_is_kept_in_a_script_that_does_not_want_to_see_the_usage(self) -> None:
        app = simulate(tool_1=[SHORT, LONG])
        result = await run_flow(
            self.FLOW,
            {"topic": "tea"},
            client=simulated_client(app),
            defaults=ModelSettings(model="gpt-4.1"),
            include_token_usage=False,
        )
        assert (result.reason, result.usage, app.call_count) == (EndReason.BUDGET_EXCEEDED, None, 1)
