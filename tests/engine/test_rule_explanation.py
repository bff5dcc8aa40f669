"""Pass rules with their values put in."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.rule_explanation import MAX_VALUES, PassRule

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
