"""Local steps: computed here, and audited, retried and kept like any other."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.history import NO_USAGE, Outcome, Severity
from flows.engine.planner import EndStatus
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec
from tests.engine.builders import MemoryRecorder, make_flow, make_step
from tests.engine.executions import LENGTH, LONG, audited, execute, simulate


class TestLocalSteps:
    async def test_cel_computes_from_input_steps_and_previous_without_a_call_or_tokens(self) -> None:
        compute = "{'topic': input.topic, 'text': previous.text, 'known': size(steps)}"
        app = simulate(tool_1=[LONG])
        end = await execute(make_flow(audited(1), make_step(2, compute=compute)), app)
        (attempt,) = end.history.attempts(2)
        assert attempt.output == {"topic": "tea", "text": "Tea is a drink.", "known": 2}
        assert (attempt.usage, attempt.request, attempt.model) == (NO_USAGE, None, None)
        assert attempt.input == LONG, "its input is kept as that of any other step"
        assert app.call_count == 1

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"input_expression": "{'text': input.topic}"}, "tea"),
            ({"input_sanitizer": "{'text': value.text.trim()}"}, "Tea."),
            (
                {"input_expression": "{'text': ' ' + input.topic}", "input_sanitizer": "{'text': value.text.trim()}"},
                "tea",
            ),
        ],
        ids=["expression", "sanitizer", "both"],
    )
    async def test_previous_is_its_input_after_expression_and_sanitizer(
        self, fields: dict[str, str], text: str
    ) -> None:
        flow = make_flow(make_step(1), make_step(2, compute="{'text': previous.text + '!'}", **fields))
        end = await execute(flow, simulate(tool_1=[{"text": " Tea. "}]))
        (attempt,) = end.history.attempts(2)
        assert (attempt.input, attempt.output) == ({"text": text}, {"text": f"{text}!"})

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_python_computes_as_well_and_is_named_with_its_fingerprint(self, is_async: bool) -> None:
        registry = Registry()

        def compute(input: Any) -> Any:
            return {"text": input["topic"] * 2}

        async def compute_later(input: Any) -> Any:
            return compute(input)

        registry.function("double")(compute_later if is_async else compute)
        end = await execute(make_flow(make_step(compute="python:double")), registry=registry)
        (attempt,) = end.history.attempts(1)
        assert (attempt.outcome, attempt.output) == (Outcome.PASSED, {"text": "teatea"})
        assert attempt.plugins == {"python:double": registry.functions["double"].fingerprint}

    async def test_it_is_audited_and_retried_like_a_model_step(self) -> None:
        registry, tries = Registry(), iter(["Tea.", "Te.", "Tea is a drink."])
        registry.function("draw")(lambda: {"text": next(tries)})
        recorder = MemoryRecorder()
        flow = make_flow(make_step(compute="python:draw", audits=(LENGTH,)))
        end = await execute(flow, registry=registry, recorder=recorder)
        assert recorder.describe() == [
            "1.1 begins",
            "1.1 failed, 1.2 begins",
            "1.2 failed, 1.3 begins",
            "1.3 passed, run succeeded",
        ]
        assert [issue.description for issue in end.history.attempts(1)[1].issues] == ["Write more than Te."]

    async def test_its_output_is_sanitized_and_held_against_its_schema(self) -> None:
        schema = {
            "type": "object",
            "properties": {"total": {"type": "number"}},
            "required": ["total"],
            "additionalProperties": False,
        }
        step = make_step(
            compute="{'total': 3, 'draft': true}",
            output_sanitizer="{'total': value.total}",
            output_schema=schema,
            audits=(AuditSpec(name="Sum", rule="output.total * 2.0 == 6.0"),),
        )
        end = await execute(make_flow(step))
        (attempt,) = end.history.attempts(1)
        assert (attempt.outcome, attempt.output) == (Outcome.PASSED, {"total": 3.0})
        assert attempt.raw_output == {"total": 3, "draft": True}

    @pytest.mark.parametrize(
        ("compute", "words"),
        [
            ("{'a': 1 / 0}", "zero"),
            ("[1]", "it gave a list; a map is needed."),
            ("python:raises", "“python:raises” raised LookupError: no \ufffd"),
            ("python:gives_object", "“object” has no JSON form"),
            ("python:gives_none", "it gave null; a map is needed."),
        ],
    )
    async def test_one_that_cannot_be_computed_is_an_invalid_attempt_with_the_reason(
        self, compute: str, words: str
    ) -> None:
        registry = Registry()

        @registry.function("raises")
        def fail() -> None:
            raise LookupError("no \ud800")

        registry.function("gives_object")(lambda: {"thing": object()})
        registry.function("gives_none")(lambda: None)
        end = await execute(make_flow(make_step(compute=compute, max_retries=0)), registry=registry)
        (attempt,) = end.history.attempts(1)
        assert (attempt.outcome, attempt.output, attempt.usage) == (Outcome.INVALID, None, NO_USAGE)
        (issue,) = attempt.issues
        assert (issue.code, issue.severity) == ("compute_error", Severity.CRITICAL)
        assert issue.description.startswith("The step could not be computed: ")
        assert words in issue.description
        assert end.finish is not None and end.finish.status is EndStatus.FAILED

    async def test_a_function_that_keeps_what_it_gave_and_changes_it_later_changes_no_attempt(self) -> None:
        registry, kept = Registry(), {"calls": 0}

        @registry.function("count")
        def count() -> Any:
            kept["calls"] += 1
            return kept

        flow = make_flow(make_step(compute="python:count", audits=(AuditSpec(name="Third", rule="output.calls == 3"),)))
        end = await execute(flow, registry=registry)
        assert [attempt.output for attempt in end.history.attempts(1)] == [{"calls": 1}, {"calls": 2}, {"calls": 3}]
