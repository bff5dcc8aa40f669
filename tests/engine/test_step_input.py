"""The input of a step, and the steps that are computed of it here instead of by a model."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.evaluation import MissingInputError, prepare_input
from flows.engine.history import NO_USAGE, History, Outcome, Severity
from flows.engine.planner import EndStatus
from flows.engine.plugins import Registry
from flows.engine.spec import FlowSpec
from tests.engine.builders import make_attempt, make_flow, make_history, make_issue, make_step
from tests.engine.executions import LENGTH, LONG, audited, execute, simulate


async def find_input(flow: FlowSpec, history: History, step: int = 2, registry: Registry | None = None) -> Any:
    value, _ = await prepare_input(flow, history, step, registry or Registry())
    return value


def second_step(**fields: Any) -> FlowSpec:
    """A flow whose second step has these fields."""
    return make_flow(make_step(1), make_step(2, **fields))


def make_registry() -> Registry:
    """Functions that fail, each in its own way."""
    registry = Registry()

    @registry.function("raises")
    def fail() -> None:
        raise LookupError("no \ud800")

    registry.function("gives_none")(lambda: None)
    registry.function("gives_object")(lambda: {"thing": object()})
    return registry


class TestWithoutExpression:
    FLOW = make_flow(make_step(1), make_step(2))

    async def test_a_step_works_on_the_input_of_the_run_or_the_output_of_the_step_before(self) -> None:
        assert await find_input(self.FLOW, make_history(input={"topic": "tea"}), 1) == {"topic": "tea"}
        assert await find_input(self.FLOW, make_history(make_attempt(output={"text": "Tea."}))) == {"text": "Tea."}
        weak = make_attempt(outcome="failed", output={"text": "weak"})
        assert await find_input(self.FLOW, make_history(weak)) == {"text": "weak"}, "where the flow goes on"
        three = make_flow(*(make_step(number) for number in (1, 2, 3)))
        assert await find_input(three, make_history(make_attempt(1), make_attempt(2)), 3) == {"text": "s2a1"}

    @pytest.mark.parametrize(
        "attempt",
        [make_attempt(outcome="invalid", output={"wrong": 1}), make_attempt(outcome="errored")],
        ids=["invalid", "errored"],
    )
    async def test_a_step_before_that_left_nothing_usable_is_an_error_that_says_what_to_do(self, attempt: Any) -> None:
        with pytest.raises(MissingInputError, match=r"“Step 2” has no input: .* Give it an input_expression, or"):
            await find_input(self.FLOW, make_history(attempt))


class TestInputExpression:
    async def test_each_step_has_its_name_output_issues_and_verdict_and_index_0_is_the_input(self) -> None:
        issue = make_issue("high", "Too short.", path="/text", audit="Length", words=2)
        history = make_history(
            make_attempt(1, 1, "failed"), make_attempt(1, 2, "failed", output={"text": "Tea."}, issues=(issue,))
        )
        first, second = (await find_input(second_step(input_expression="{'steps': steps}"), history))["steps"]
        assert first == {"name": "Initial input", "output": {"topic": "tea"}, "issues": [], "passed": True}
        (seen,) = second.pop("issues")
        assert second == {"name": "Step 1", "output": {"text": "Tea."}, "passed": False}
        reported = {"severity": "high", "description": "Too short.", "path": "/text", "audit": "Length", "words": 2}
        assert reported.items() <= seen.items(), "fields that an audit added are there too"

    async def test_all_tries_of_a_step_work_on_the_same_input(self) -> None:
        registry, draws = Registry(), iter(range(10))
        registry.function("draw")(lambda: {"draw": next(draws)})
        registry.function("keep")(lambda value: value)
        flow = second_step(input_expression="python:draw", input_sanitizer="python:keep")
        first = make_history(make_attempt(1))
        found, plugins = await prepare_input(flow, first, 2, registry)
        assert found == {"draw": 0}
        assert plugins == {f"python:{name}": registry.functions[name].fingerprint for name in ("draw", "keep")}
        for outcome in ("failed", "interrupted"):
            attempt = make_attempt(2, 1, outcome, input=found, plugins={**plugins, "python:audit": "f"})
            assert await prepare_input(flow, first.append(attempt), 2, registry) == (found, plugins)

    async def test_an_output_that_broke_its_schema_is_null_to_expressions(self) -> None:
        flow = second_step(input_expression="{'known': steps[1].output == null && previous == null}")
        history = make_history(make_attempt(outcome="invalid", output={"wrong": 1}))
        assert await find_input(flow, history) == {"known": True}


class TestLocalSteps:
    """Steps that are computed here, and audited, retried and kept like any other."""

    async def test_cel_computes_from_input_steps_and_previous_without_a_call_or_tokens(self) -> None:
        compute = "{'topic': input.topic, 'text': previous.text, 'known': size(steps)}"
        app = simulate(tool_1=[LONG])
        end = await execute(make_flow(audited(1), make_step(2, compute=compute)), app)
        (attempt,) = end.history.attempts(2)
        assert attempt.output == {"topic": "tea", "text": "Tea is a drink.", "known": 2}
        assert (attempt.usage, attempt.request, attempt.model, attempt.input) == (NO_USAGE, None, None, LONG)
        assert app.call_count == 1

    async def test_previous_is_its_input_after_expression_and_sanitizer(self) -> None:
        fields = {"input_expression": "{'text': ' ' + input.topic}", "input_sanitizer": "{'text': value.text.trim()}"}
        flow = second_step(compute="{'text': previous.text + '!'}", **fields)
        (attempt,) = (await execute(flow, simulate(tool_1=[LONG]))).history.attempts(2)
        assert (attempt.input, attempt.output) == ({"text": "tea"}, {"text": "tea!"})

    async def test_python_computes_and_is_retried_and_named_with_its_fingerprint(self) -> None:
        registry, tries = Registry(), iter(["Tea.", "Te.", "Tea is a drink."])
        registry.function("draw")(lambda: {"text": next(tries)})
        end = await execute(make_flow(make_step(compute="python:draw", audits=(LENGTH,))), registry=registry)
        first, second, third = end.history.attempts(1)
        assert [one.outcome for one in (first, second, third)] == ["failed", "failed", "passed"]
        assert [issue.description for issue in second.issues] == ["Write more than Te."]
        assert third.plugins == {"python:draw": registry.functions["draw"].fingerprint}

    @pytest.mark.parametrize(
        ("compute", "words"),
        [
            ("{'a': 1 / 0}", "zero"),
            ("[1]", "it gave a list; a map is needed."),
            ("python:raises", "“python:raises” raised LookupError: no \ufffd"),
            ("python:gives_object", "“object” has no JSON form"),
        ],
    )
    async def test_one_that_cannot_be_computed_is_an_invalid_attempt_with_the_reason(
        self, compute: str, words: str
    ) -> None:
        end = await execute(make_flow(make_step(compute=compute, max_retries=0)), registry=make_registry())
        (attempt,) = end.history.attempts(1)
        assert (attempt.outcome, attempt.output, attempt.usage) == (Outcome.INVALID, None, NO_USAGE)
        (issue,) = attempt.issues
        assert (issue.code, issue.severity, words in issue.description) == ("compute_error", Severity.CRITICAL, True)
        assert end.finish is not None and end.finish.status is EndStatus.FAILED
