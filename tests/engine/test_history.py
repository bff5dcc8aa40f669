"""History, and what is derived from it."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from flows.engine.history import History, sum_usage
from flows.engine.planner import EndReason, EndStatus, Finish
from flows.engine.result import RunResult
from tests.engine.builders import make_attempt, make_flow, make_history, make_issue, make_step, make_usage

FINISH = Finish(EndStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED, "All steps passed.")


SPEC = make_flow(make_step(1, name="Draft"), make_step(2, name="Polish"))


def two_step_history() -> History:
    """Step 1 fails, is interrupted, passes; step 2 passes with a low issue."""
    return make_history(
        make_attempt(1, 1, "failed", issues=(make_issue("critical", "Bad."),), usage=make_usage(30)),
        make_attempt(1, 2, "interrupted"),
        make_attempt(1, 3, output={"text": "fine", "tone": "warm"}, usage=make_usage(60)),
        make_attempt(2, 1, output={"text": "final"}, issues=(make_issue("low", "Meh."),), usage=make_usage(90)),
        input={"topic": "tea", "text": "draft"},
    )


def result(**flags: bool) -> RunResult:
    return RunResult.of(two_step_history(), FINISH, spec=SPEC, **flags)


class TestHistory:
    @pytest.mark.parametrize(("step", "number"), [(2, 1), (2, 3), (1, 2), (3, 2), (4, 1), (0, 2)])
    def test_an_attempt_that_cannot_come_next_is_refused(self, step: int, number: int) -> None:
        with pytest.raises(ValueError, match="can't follow"):
            make_history(make_attempt(1), make_attempt(2)).append(make_attempt(step, number))


class TestUsage:
    def test_known_costs_add_up_and_unknown_ones_are_counted_and_not_zero(self) -> None:
        total = sum_usage([make_usage(10, cost=Decimal("0.01")), make_usage(20, unpriced=1), make_usage(5)])
        assert (total.total, total.cost, total.unpriced) == (35, Decimal("0.01"), 1)
        assert sum_usage([make_usage(10, unpriced=1)]).cost is None


class TestResult:
    def test_it_holds_every_attempt_and_index_0_is_the_input(self) -> None:
        found = result()
        assert [[a.number for a in attempts] for attempts in found.results] == [[1], [1, 2, 3], [1]]
        assert [(a.step, a.number) for a in found.final_results] == [(0, 1), (1, 3), (2, 1)]
        assert found.initial_input == {"topic": "tea", "text": "draft"}
        assert found.state == {"topic": "tea", "text": "final", "tone": "warm"}
        with pytest.raises(IndexError, match="Step 3 did not start"):
            found.step(3)

    def test_usage_counts_every_attempt_and_interrupted_ones_are_no_retries(self) -> None:
        steps = [(step.usage.total if step.usage else None, step.retries_used) for step in result().steps]
        assert steps == [(0, 0), (90, 1), (90, 0)]
        assert result().usage == sum_usage([make_usage(30), make_usage(60), make_usage(90)])
        assert result().retries_used == 1

    @pytest.mark.parametrize("flags", [{}, {"include_all_attempts": False}])
    def test_it_survives_json(self, flags: dict[str, bool]) -> None:
        document = json.loads(json.dumps(result(**flags).to_document()))
        assert RunResult.from_document(document) == result(**flags)
        assert "usage" not in json.dumps(result(include_token_usage=False).to_document())
