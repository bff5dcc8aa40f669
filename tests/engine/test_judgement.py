"""From what came back to a verdict: sanitize, validate, build the type, audit, decide, explain."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from flows.engine.history import Outcome, Severity
from flows.engine.judging import Judgement
from flows.engine.plugins import Registry
from flows.engine.rule_explanation import MAX_VALUES, PassRule
from flows.engine.typed_output import build_type, schema_of_type
from tests.engine.audit_parts import judge, rules
from tests.engine.builders import closed

TEA = {"text": "Tea."}


def raising(character: str) -> Registry:
    """A registry whose function “raises” raises a text that no database stores."""
    registry = Registry()

    @registry.function("raises")
    def fail() -> None:
        raise ValueError(f"no {character}")

    return registry


class TestOutcome:
    async def test_one_failing_audit_fails_it_and_all_issues_are_kept_in_the_order_of_the_audits(self) -> None:
        verdict = await judge(TEA, audits=rules("['a', 'b']", "true", "['c']"))
        assert verdict.outcome is Outcome.FAILED
        assert [issue.description for issue in verdict.issues] == ["a", "b", "c"]

    async def test_an_output_that_breaks_its_schema_is_invalid_and_not_audited(self) -> None:
        verdict = await judge({"text": 7, "more": 1}, audits=rules("false"), pass_expression="true")
        assert (verdict.outcome, verdict.output) == (Outcome.INVALID, {"text": 7, "more": 1})
        assert {(issue.code, issue.severity) for issue in verdict.issues} == {("schema_mismatch", Severity.CRITICAL)}
        assert "/text" in {issue.path for issue in verdict.issues}

    async def test_numbers_become_what_the_schema_calls_them_before_audits_see_them(self) -> None:
        verdict = await judge(
            {"count": 2.0, "total": 3},
            output_schema=closed(count={"type": "integer"}, total={"type": "number"}),
            audits=rules("output.count * 2 == 4 && output.total * 2.0 == 6.0"),
        )
        assert verdict.outcome is Outcome.PASSED and verdict.output is not None
        assert [type(value) for value in verdict.output.values()] == [int, float]
        assert verdict.raw_output is None, "it is the same JSON"


class TestSanitizer:
    async def test_its_result_is_validated_audited_and_handed_on_and_what_came_back_is_kept(self) -> None:
        came = {"text": "  Tea. ", "chatter": "Here you are!"}
        sanitizer = "{'text': value.text.trim()}"
        verdict = await judge(came, output_sanitizer=sanitizer, audits=rules("output == {'text': 'Tea.'}"))
        assert (verdict.outcome, verdict.output, verdict.raw_output) == (Outcome.PASSED, TEA, came)

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
        verdict = await judge(TEA, output_sanitizer=text, registry=raising(""), audits=rules("false"))
        assert (verdict.outcome, verdict.output) == (Outcome.INVALID, TEA)
        (issue,) = verdict.issues
        assert (issue.code, issue.severity, words in issue.description) == ("sanitizer_error", Severity.CRITICAL, True)


class TestPassExpression:
    async def test_it_replaces_the_criteria_of_the_audits(self) -> None:
        assert (await judge(TEA, audits=rules("false"), pass_expression="true")).outcome is Outcome.PASSED
        refused = await judge(TEA, audits=rules("true"), pass_expression="false")
        assert refused.outcome is Outcome.FAILED
        # A refusal always has an issue that the next try is shown.
        assert [(issue.code, issue.severity.value) for issue in refused.issues] == [("not_accepted", "critical")]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("issues[3].severity == 'low'", ""),
            ("'yes'", "it gave text; true or false is needed."),
            ("python:raises", "“python:raises” raised ValueError: no \ufffd"),
        ],
    )
    async def test_one_that_cannot_be_evaluated_says_no_and_why(self, text: str, words: str) -> None:
        verdict = await judge(TEA, audits=rules("['a']"), pass_expression=text, registry=raising("\0"))
        assert verdict.outcome is Outcome.FAILED
        assert [issue.code for issue in verdict.issues] == ["rule_1", "audit_error"]
        assert words in verdict.issues[-1].description


class TestFailureReason:
    REASON = "issues.map(issue, issue.description).join(' ')"

    async def test_it_says_why_an_output_failed_or_was_invalid(self) -> None:
        verdict = await judge(TEA, audits=rules("['Too short.', 'Dull.']"), failure_reason_expression=self.REASON)
        assert verdict.failure_reason == "Too short. Dull."
        verdict = await judge({"text": 7}, failure_reason_expression="issues[0].path + ' is wrong.'")
        assert verdict.failure_reason == "/text is wrong."


class Colour(BaseModel):
    name: str
    hex: str = Field(pattern="^#[0-9A-F]{6}$")


class Palette(BaseModel):
    colours: list[Colour]

    @field_validator("colours")
    @classmethod
    def refuse_twins(cls, colours: list[Colour]) -> list[Colour]:
        if len({colour.name for colour in colours}) < len(colours):
            raise ValueError("two colours have one name")
        return colours

    def audit(self) -> Any:
        return [f"{colour.name} is grey." for colour in self.colours if colour.name == "Ash"]


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Choice(BaseModel):
    value: int | Tree


class TestTypes:
    @pytest.mark.parametrize(
        ("model", "value", "paths"),
        [
            (Palette, {"colours": [{"hex": "#000000"}]}, {"/colours/0"}),
            (Palette, {"colours": [{"name": "a", "hex": "blue"}]}, {"/colours/0/hex"}),
            (Choice, {"value": {"name": 1}}, {"/value", "/value/name"}),
            (Palette, None, {""}),
            (Palette, {"colours": float("nan")}, {""}),
        ],
    )
    def test_what_does_not_fit_is_an_issue_at_its_place(
        self, model: type[BaseModel], value: Any, paths: set[str]
    ) -> None:
        built, issues = build_type(model, value)
        assert (built, {issue.path for issue in issues}) == (None, paths)
        assert {(issue.code, issue.severity) for issue in issues} == {("type_mismatch", Severity.CRITICAL)}

    def test_of_many_places_50_are_reported_one_by_one_and_the_rest_is_counted(self) -> None:
        _, issues = build_type(Palette, {"colours": ["x"] * 60})
        assert [issue.code for issue in issues] == ["type_mismatch"] * 50 + ["more_type_mismatches"]


class TestRegisteredType:
    @staticmethod
    def make_registry(palette: type[Palette] = Palette) -> Registry:
        registry = Registry()
        registry.output_type("palette")(palette)
        registry.audit("count")(lambda output: [f"{len(output.colours)} colours"] if len(output.colours) > 1 else None)
        return registry

    async def judge(self, *names: str, hex: str = "#1F4E5F", **fields: Any) -> Judgement:
        output = {"colours": [{"name": name, "hex": hex} for name in names]}
        options = {"output_type": "palette", "output_schema": schema_of_type(Palette), "registry": self.make_registry()}
        return await judge(output, **{**options, **fields})

    async def test_its_own_audit_runs_before_those_of_the_flow_and_gets_the_typed_output(self) -> None:
        verdict = await self.judge("Fjord", "Ash", audits=rules("python:count", severity="low"))
        assert verdict.outcome is Outcome.FAILED
        assert [(issue.audit, issue.description) for issue in verdict.issues] == [
            ("palette", "Ash is grey."),
            ("Rule 1", "2 colours"),
        ]

    async def test_each_audit_judges_the_output_as_it_came_whatever_others_change(self) -> None:
        class Greedy(Palette):
            def audit(self) -> Any:
                self.colours.clear()

        def clear(output: Palette) -> None:
            output.colours.clear()

        async def clear_later(output: Palette) -> None:
            clear(output)

        registry = self.make_registry(Greedy)
        registry.audit("clear")(clear)
        registry.audit("clear_later")(clear_later)
        audits = rules("python:clear", "python:clear_later", "python:count", "size(output.colours) == 2")
        verdict = await self.judge("Fjord", "Ash", audits=audits, registry=registry)
        assert [issue.description for issue in verdict.issues] == ["2 colours"]

    @pytest.mark.parametrize(
        ("fields", "code", "path"),
        [
            ({"audits": rules("false")}, "type_mismatch", "/colours"),
            ({"hex": "blue"}, "schema_mismatch", "/colours/0/hex"),
            ({"registry": Registry(), "pass_expression": "true"}, "unknown_output_type", None),
        ],
        ids=["validator", "schema", "unknown"],
    )
    async def test_what_can_not_be_built_is_invalid_and_says_why_once(
        self, fields: dict[str, Any], code: str, path: str | None
    ) -> None:
        verdict = await self.judge(*(("Fjord", "Fjord") if code == "type_mismatch" else ("Fjord",)), **fields)
        assert verdict.outcome is Outcome.INVALID
        (issue,) = verdict.issues
        assert (issue.code, issue.severity, issue.path) == (code, Severity.CRITICAL, path)
        assert code != "type_mismatch" or "two colours have one name" in issue.description


OUTPUT = {"total": 12, "name": "a && b", "lines": [{"score": score} for score in range(5)]}
NO_CRITICAL = "!issues.exists(issue, issue.severity == 'critical')"
SUM = ("2 + 1 + 2 + 1 = 6, limit 4", False)
WEIGHED = "issues.map(issue, weight(issue.severity)).sum() <= 4"


def make_issues(*severities: str) -> list[dict[str, Any]]:
    return [{"code": "short", "severity": severity, "audit": "Short", "path": None} for severity in severities]


def make_rule(text: str, *severities: str, output: Any = OUTPUT) -> PassRule:
    return PassRule(
        text, {"issues": make_issues(*(severities or ("medium", "low", "medium", "low"))), "output": output}
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (WEIGHED, [SUM]),
        ("4 >= sum(issues.map(i, weight(i.severity)))", [SUM]),
        (
            f"{NO_CRITICAL} && {WEIGHED}",
            [("0 critical issues, none allowed", True), SUM],
        ),
        ("issues.size() < 1", [("4 issues, must be below 1", False)]),
        ("size(issues.filter(i, i.severity == 'low')) <= 2", [("2 low issues, limit 2", True)]),
        ("issues.filter(i, i.code == 'x').size() == 0", [("0 matching issues, must be 0", True)]),
        ("size(issues) * 2 + 1 <= 6", [("4 * 2 + 1 = 9, limit 6", False)]),
        ("output.total - 2 == -3", [("12 - 2 = 10, must be -3", False)]),
        ("!(output.total > 10)", [("12, limit 10", False)]),
        ("issues.all(i, i.severity in ['low'])", [("2 of 4 issues match, all must", False)]),
        ("output.lines.exists(l, l.score > 3)", [("1 of 5 items matches, at least 1 needed", True)]),
        ("output.total > 10 || size(issues) == 0", [("12, must be above 10", True), ("4 issues, must be 0", False)]),
        ("output.name == 'a && b'", [('"a && b", must be "a && b"', True)]),
        # What can't be evaluated by itself, and shapes of no common kind.
        ("has(output.x) && output.x > 2", [("", False), ("", None)]),
        ("(output.total > 20 || size(issues) < 3) && true", [("output.total = 12, 4 issues", False), ("", True)]),
        ("output.total > 10 ? true : issues == []", [("output.total = 12, 4 issues", True)]),
        ("true", [("", True)]),
    ],
)
def test_conditions_are_shown_with_their_values(text: str, shown: list[tuple[str, bool | None]]) -> None:
    explanation = make_rule(text).explain()
    assert explanation is not None
    assert [(one.values, one.holds) for one in explanation.conditions] == shown


@pytest.mark.parametrize("text", ["output.missing > 1", "size(issues)", "no rule at all"])
def test_a_rule_without_a_result_is_not_explained(text: str) -> None:
    assert make_rule(text).explain() is None


def test_large_values_are_not_explained() -> None:
    assert make_rule("size(output.lines) > 1", output={"lines": list(range(MAX_VALUES))}).explain() is None
    assert make_rule("size(issues) > 1", output={"lines": list(range(MAX_VALUES))}).explain() is not None


def test_each_issue_has_its_weight_where_the_rule_has_one_sum() -> None:
    rule = make_rule(f"{NO_CRITICAL} && {WEIGHED}")
    rule.explain()
    assert (rule.list_weights(make_issues("high", "low")), rule.list_weights([])) == ([4, 1], [])
    assert (rule.passes_with(make_issues("critical")), rule.passes_with(make_issues("medium"))) == (False, True)
    counted = make_rule("issues.size() < 9")
    counted.explain()
    assert counted.list_weights(make_issues("high")) is None
