"""From what came back to a verdict: sanitize, validate, audit, decide."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.history import Outcome, Severity
from flows.engine.judging import Judgement
from flows.engine.plugins import Registry
from tests.engine.audit_parts import judge, rules

NUMBERS_SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "total": {"type": "number"}},
    "required": ["count", "total"],
    "additionalProperties": False,
}


class TestOutcome:
    async def test_an_output_without_issues_passes(self) -> None:
        assert await judge({"text": "Tea."}) == Judgement(Outcome.PASSED, {"text": "Tea."}, None, ())

    async def test_one_failing_audit_fails_it_and_all_issues_are_kept_in_the_order_of_the_audits(self) -> None:
        verdict = await judge({"text": "Tea."}, audits=rules("['a', 'b']", "true", "['c']"))
        assert verdict.outcome is Outcome.FAILED
        assert [issue.description for issue in verdict.issues] == ["a", "b", "c"]

    async def test_an_output_that_breaks_its_schema_is_invalid_and_not_audited(self) -> None:
        verdict = await judge({"text": 7, "more": 1}, audits=rules("false"))
        assert verdict.outcome is Outcome.INVALID
        assert verdict.output == {"text": 7, "more": 1}, "it is kept beside its issues"
        assert {issue.code for issue in verdict.issues} == {"schema_mismatch"}
        assert {issue.severity for issue in verdict.issues} == {Severity.CRITICAL}
        assert "/text" in {issue.path for issue in verdict.issues}

    async def test_a_broken_audit_fails_the_output_and_the_others_still_run(self) -> None:
        verdict = await judge({"text": "Tea."}, audits=rules("1 / 0 == 1", "['c']", fail_at="critical", severity="low"))
        assert verdict.outcome is Outcome.FAILED
        assert [issue.code for issue in verdict.issues] == ["audit_error", "rule_2"]


class TestNumbers:
    async def test_they_become_what_the_schema_calls_them_before_audits_see_them(self) -> None:
        verdict = await judge(
            {"count": 2.0, "total": 3},
            output_schema=NUMBERS_SCHEMA,
            audits=rules("output.count * 2 == 4 && output.total * 2.0 == 6.0"),
        )
        assert verdict.outcome is Outcome.PASSED
        assert verdict.output is not None
        assert [type(value) for value in verdict.output.values()] == [int, float]
        assert verdict.raw_output is None, "it is the same JSON"


class TestSanitizer:
    async def test_its_result_is_validated_audited_and_handed_on(self) -> None:
        verdict = await judge(
            {"text": "  Tea. ", "chatter": "Here you are!"},
            output_sanitizer="{'text': value.text.trim()}",
            audits=rules("output == {'text': 'Tea.'}"),
        )
        assert (verdict.outcome, verdict.output) == (Outcome.PASSED, {"text": "Tea."})

    async def test_what_came_back_is_kept_where_it_was_changed(self) -> None:
        came = {"text": "  Tea. "}
        verdict = await judge(came, output_sanitizer="{'text': value.text.trim()}")
        assert verdict.raw_output == {"text": "  Tea. "}

    @pytest.mark.parametrize(
        ("came", "sanitizer", "output"),
        [({"n": 1}, "{'n': value.n == 1}", {"n": True}), ({"n": 1}, "{'n': double(value.n)}", {"n": 1.0})],
        ids=["1 and true", "1 and 1.0"],
    )
    async def test_values_that_only_python_takes_for_equal_are_a_change(
        self, came: Any, sanitizer: str, output: Any
    ) -> None:
        verdict = await judge(came, output_sanitizer=sanitizer, compute="input", output_schema=None)
        assert verdict.output is not None
        assert type(verdict.output["n"]) is type(output["n"])
        assert verdict.raw_output == came

    async def test_a_python_one_that_works_in_place_loses_nothing_of_what_came_back(self) -> None:
        registry = Registry()

        @registry.function("tidy")
        def tidy(value: Any) -> Any:
            value["text"] = value["text"].strip()
            return value

        verdict = await judge({"text": " Tea. "}, output_sanitizer="python:tidy", registry=registry)
        assert (verdict.output, verdict.raw_output) == ({"text": "Tea."}, {"text": " Tea. "})
        assert verdict.plugins == {"python:tidy": registry.functions["tidy"].fingerprint}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("value.missing", "missing"),
            ("[value]", "it gave a list; a map is needed."),
            ("python:raises", "“python:raises” raised ValueError: no"),
            ("python:unknown", "No function is registered as “unknown”."),
        ],
    )
    async def test_one_that_fails_makes_the_attempt_invalid_and_keeps_the_output(self, text: str, words: str) -> None:
        registry = Registry()

        @registry.function("raises")
        def fail() -> None:
            raise ValueError("no")

        verdict = await judge({"text": "Tea."}, output_sanitizer=text, registry=registry, audits=rules("false"))
        assert (verdict.outcome, verdict.output) == (Outcome.INVALID, {"text": "Tea."})
        (issue,) = verdict.issues
        assert (issue.code, issue.severity) == ("sanitizer_error", Severity.CRITICAL)
        assert issue.description.startswith("The output_sanitizer could not be applied: ")
        assert words in issue.description


class TestPassExpression:
    async def test_it_replaces_the_criteria_of_the_audits(self) -> None:
        failing = rules("false")
        assert (await judge({"text": "Tea."}, audits=failing, pass_expression="true")).outcome is Outcome.PASSED
        assert (await judge({"text": "Tea."}, audits=rules("true"), pass_expression="false")).outcome is Outcome.FAILED

    async def test_a_refusal_always_has_an_issue_that_the_next_try_is_shown(self) -> None:
        verdict = await judge({"text": "Tea."}, audits=rules("true"), pass_expression="output.text.size() > 20")
        assert [(issue.code, issue.severity.value) for issue in verdict.issues] == [("not_accepted", "critical")]

    @pytest.mark.parametrize(
        ("severities", "passes"),
        [
            ((), True),
            (("low", "medium"), True),  # 1 + 2
            (("high",), False),  # 4
            (("low", "low", "medium"), False),
            (("critical",), False),
        ],
    )
    async def test_weights_of_severities_make_a_threshold(self, severities: tuple[str, ...], passes: bool) -> None:
        found = ", ".join(f"{{'severity': '{severity}'}}" for severity in severities)
        verdict = await judge(
            {"text": "Tea."},
            audits=rules(f"[{found}]"),
            pass_expression="issues.map(issue, weight(issue.severity)).sum() < 4",
        )
        assert (verdict.outcome is Outcome.PASSED) == passes
        assert len(verdict.issues) == len(severities)

    async def test_it_sees_the_output_and_all_fields_of_the_issues(self) -> None:
        verdict = await judge(
            {"text": "Tea."},
            audits=rules("[{'ratio': 2.5}]"),
            pass_expression="output.text == 'Tea.' && issues[0].ratio == 2.5 && issues[0].audit == 'Rule 1'",
        )
        assert verdict.outcome is Outcome.PASSED

    async def test_it_is_not_asked_about_outputs_that_do_not_fit_the_schema(self) -> None:
        assert (await judge({"text": 7}, pass_expression="true")).outcome is Outcome.INVALID

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("issues[3].severity == 'low'", ""),
            ("'yes'", "it gave text; true or false is needed."),
            ("python:raises", "“python:raises” raised ValueError: no \ufffd"),
        ],
    )
    async def test_one_that_cannot_be_evaluated_says_no_and_why(self, text: str, words: str) -> None:
        registry = Registry()

        @registry.function("raises")
        def fail() -> None:
            raise ValueError("no \0")

        verdict = await judge({"text": "Tea."}, audits=rules("['a']"), pass_expression=text, registry=registry)
        assert verdict.outcome is Outcome.FAILED
        assert [issue.code for issue in verdict.issues] == ["rule_1", "audit_error"]
        assert verdict.issues[-1].description.startswith("The pass_expression could not be evaluated: ")
        assert words in verdict.issues[-1].description


class TestFailureReason:
    REASON = "issues.map(issue, issue.description).join(' ')"

    async def test_it_says_why_an_output_failed(self) -> None:
        verdict = await judge(
            {"text": "Tea."}, audits=rules("['Too short.', 'Too dull.']"), failure_reason_expression=self.REASON
        )
        assert verdict.failure_reason == "Too short. Too dull."

    async def test_and_why_it_was_invalid(self) -> None:
        verdict = await judge({"text": 7}, failure_reason_expression="issues[0].path + ' is wrong.'")
        assert verdict.failure_reason == "/text is wrong."

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("issues[7].code", "The failure_reason_expression could not be evaluated: "),
            ("7", "The failure_reason_expression gave an integer."),
            ("python:raises", "could not be evaluated: “python:raises” raised ValueError: no \ufffd"),
        ],
    )
    async def test_one_that_fails_says_so_itself_and_changes_no_verdict(self, text: str, words: str) -> None:
        registry = Registry()

        @registry.function("raises")
        def fail() -> None:
            raise ValueError("no \ud800")

        verdict = await judge(
            {"text": "Tea."}, audits=rules("false"), failure_reason_expression=text, registry=registry
        )
        assert verdict.outcome is Outcome.FAILED
        assert verdict.failure_reason is not None and words in verdict.failure_reason
