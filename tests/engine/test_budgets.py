"""Budgets of a run: nothing is called any more once they are used up, and what is decided already stays."""

from __future__ import annotations

from decimal import Decimal

import pytest

from flows.engine.history import Attempt, TokenUsage
from flows.engine.openai_client import simulated_client
from flows.engine.planner import Action, Call, Compute, EndReason, EndStatus, Finish, next_action
from flows.engine.running import run_flow
from flows.engine.spec import FlowSpec, ModelSettings
from tests.engine.builders import make_attempt, make_flow, make_history, make_step, make_usage
from tests.engine.executions import LONG, SHORT, audited, simulate


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
