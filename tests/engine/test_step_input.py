"""The input of a step: rule 3."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.errors import ExpressionError
from flows.engine.evaluation import MissingInputError, prepare_input, step_variables
from flows.engine.history import History
from flows.engine.plugins import Registry
from flows.engine.spec import FlowSpec
from tests.engine.builders import make_attempt, make_flow, make_history, make_issue, make_step


async def find_input(flow: FlowSpec, history: History, step: int = 2, registry: Registry | None = None) -> Any:
    value, _ = await prepare_input(flow, history, step, registry or Registry())
    return value


def second_step(**fields: Any) -> FlowSpec:
    """A flow whose second step has these fields."""
    return make_flow(make_step(1), make_step(2, **fields))


class TestWithoutExpression:
    FLOW = make_flow(make_step(1), make_step(2))

    async def test_a_step_works_on_the_input_of_the_run_or_the_output_of_the_step_before(self) -> None:
        assert await find_input(self.FLOW, make_history(input={"topic": "tea"}), 1) == {"topic": "tea"}
        assert await find_input(self.FLOW, make_history(make_attempt(output={"text": "Tea."}))) == {"text": "Tea."}
        weak = make_attempt(outcome="failed", output={"text": "weak"})
        assert await find_input(self.FLOW, make_history(weak)) == {"text": "weak"}, "where the flow goes on"

    async def test_it_is_the_output_of_the_final_attempt(self) -> None:
        history = make_history(
            make_attempt(1, 1, "failed", output={"text": "first"}),
            make_attempt(1, 2, output={"text": "second"}),
            make_attempt(1, 3, "interrupted"),
        )
        assert await find_input(self.FLOW, history) == {"text": "second"}

    @pytest.mark.parametrize(
        "attempt",
        [make_attempt(outcome="invalid", output={"wrong": 1}), make_attempt(outcome="errored")],
        ids=["invalid", "errored"],
    )
    async def test_a_step_before_that_left_nothing_usable_is_an_error_that_says_what_to_do(self, attempt: Any) -> None:
        with pytest.raises(MissingInputError) as caught:
            await find_input(self.FLOW, make_history(attempt))
        assert str(caught.value) == (
            "Step 2 “Step 2” has no input: the step before it left no usable output. "
            "Give it an input_expression, or let the step before it stop the flow on failure."
        )


class TestInputExpression:
    async def test_it_sees_the_input_and_all_previous_results(self) -> None:
        flow = make_flow(
            make_step(1),
            make_step(2),
            make_step(
                3,
                input_expression="{'topic': input.topic, 'first': steps[1].output.text, "
                "'second': steps[2].output.text, 'last': previous.text}",
            ),
        )
        history = make_history(make_attempt(1), make_attempt(2))
        assert await find_input(flow, history, 3) == {"topic": "tea", "first": "s1a1", "second": "s2a1", "last": "s2a1"}

    async def test_each_step_has_its_name_output_issues_and_verdict_and_index_0_is_the_input(self) -> None:
        flow = second_step(input_expression="{'steps': steps}")
        issue = make_issue("high", "Too short.", path="/text", audit="Length", words=2)
        history = make_history(make_attempt(outcome="failed", output={"text": "Tea."}, issues=(issue,)))
        first, second = (await find_input(flow, history))["steps"]
        assert first == {"name": "Initial input", "output": {"topic": "tea"}, "issues": [], "passed": True}
        (seen,) = second.pop("issues")
        assert second == {"name": "Step 1", "output": {"text": "Tea."}, "passed": False}
        told = {"severity": "high", "description": "Too short.", "path": "/text", "audit": "Length", "words": 2}
        assert told.items() <= seen.items(), "fields that an audit added are there too"

    async def test_only_final_attempts_stand_in_steps(self) -> None:
        flow = second_step(input_expression="{'texts': steps.map(s, s.output)}")
        history = make_history(make_attempt(1, 1, "failed"), make_attempt(1, 2))
        assert await find_input(flow, history) == {"texts": [{"topic": "tea"}, {"text": "s1a2"}]}

    async def test_the_current_step_is_not_in_steps_and_not_the_previous_one(self) -> None:
        history = make_history(make_attempt(1), make_attempt(2, 1, "failed"), make_attempt(2, 2, "failed"))
        variables = step_variables(second_step(), history, 2)
        assert [step["output"] for step in variables["steps"]] == [{"topic": "tea"}, {"text": "s1a1"}]
        assert variables["previous"] == {"text": "s1a1"}

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

    async def test_it_is_made_anew_where_an_attempt_kept_none(self) -> None:
        flow = second_step(input_expression="{'text': previous.text}")
        history = make_history(make_attempt(1), make_attempt(2, 1, "interrupted"))
        assert await find_input(flow, history) == {"text": "s1a1"}

    async def test_an_output_that_broke_its_schema_is_null_to_expressions(self) -> None:
        flow = second_step(input_expression="{'known': steps[1].output == null && previous == null}")
        history = make_history(make_attempt(outcome="invalid", output={"wrong": 1}))
        assert await find_input(flow, history) == {"known": True}

    async def test_what_cannot_be_stored_is_cleaned_before_it_is_an_input(self) -> None:
        registry = Registry()
        registry.function("dirty")(lambda: {"text": "a\0b\ud800", "pair": (1, 2)})
        flow = second_step(input_expression="python:dirty")
        found = await find_input(flow, make_history(make_attempt()), registry=registry)
        assert found == {"text": "a\ufffdb\ufffd", "pair": [1, 2]}


class TestSanitizer:
    async def test_it_gets_what_the_expression_gave(self) -> None:
        flow = second_step(
            input_expression="{'text': ' ' + previous.text + ' '}", input_sanitizer="{'text': value.text.trim()}"
        )
        assert await find_input(flow, make_history(make_attempt())) == {"text": "s1a1"}
        flow = second_step(input_sanitizer="{'text': value.text + '!'}")
        assert await find_input(flow, make_history(make_attempt())) == {"text": "s1a1!"}


class TestFailures:
    @staticmethod
    def make_registry() -> Registry:
        registry = Registry()
        registry.function("raises")(lambda: 1 // 0)
        registry.function("gives_none")(lambda: None)
        registry.function("gives_object")(lambda: {"thing": object()})
        return registry

    @pytest.mark.parametrize("field", ["input_expression", "input_sanitizer"])
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{'a': 1 / 0}", "zero"),
            ("[1]", "it gave a list; a map is needed."),
            ("'text'", "it gave text; a map is needed."),
            ("python:gives_none", "it gave null; a map is needed."),
            ("python:raises", "“python:raises” raised ZeroDivisionError: integer division or modulo by zero"),
            ("python:gives_object", "/thing: a value of type “object” has no JSON form."),
            ("python:missing", "No function is registered as “missing”."),
        ],
    )
    async def test_a_failing_expression_is_told_with_step_and_field(self, field: str, text: str, words: str) -> None:
        flow = second_step(**{field: text})
        with pytest.raises(ExpressionError) as caught:
            await find_input(flow, make_history(make_attempt()), registry=self.make_registry())
        assert str(caught.value).startswith(f"Step 2 “Step 2”, {field}: ")
        assert words in str(caught.value)
