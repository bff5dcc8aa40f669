"""Audits with ``for_each``: a rule that is asked of each element of a list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine import cel_evaluation
from flows.engine.audits import run_audit
from flows.engine.cel_evaluation import NEEDS_PROCESS, Scope
from flows.engine.evaluation import Evaluator
from flows.engine.expressions import FIELD_VARIABLES, ITEM_VARIABLES, parse_expression
from flows.engine.history import Issue
from flows.engine.judging import is_judged_in_python
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec
from tests.engine.audit_parts import assert_broken, make_evaluator, run_rule
from tests.engine.builders import make_step

CHEAP = "item.amount > 100.0"


def brief(issues: Any) -> list[tuple[str | None, str]]:
    return [(issue.path, issue.description) for issue in issues]


class TestIssues:
    @pytest.mark.parametrize(
        ("for_each", "rule", "fields", "issues"),
        [
            ("output.lines", "item.amount > 0.0", {}, []),
            ("[]", "item.amount > 0.0", {}, []),
            (
                "output.lines",
                CHEAP,
                {"message_template": "{item.text} ({index}) of {output.title}"},
                [("/lines/1", "Freight (1) of October"), ("/lines/2", "Tape (2) of October")],
            ),
            (
                "output.lines",
                "index < 2 && input.plan == 'team' && steps[0].output.plan == 'team'",
                {"message": "item.text + string(index)", "path": "'/lines/' + string(index) + '/text'"},
                [("/lines/2/text", "Tape2")],
            ),
            ("output['lines']", "index < 2", {"message_template": "{item.amount}"}, [("/lines/2", "3")]),
            ("output.lines.filter(l, l.amount < 20.0)", "index > 0", {"message": "item.text"}, [(None, "Freight")]),
            ("[3, null]", "item == 4", {"message_template": "{item}"}, [(None, "3"), (None, "null")]),
        ],
    )
    async def test_each_element_that_the_rule_refuses_is_one_with_its_own_path(
        self, for_each: str, rule: str, fields: dict[str, Any], issues: list[Any]
    ) -> None:
        result = await run_rule(rule, for_each=for_each, **fields)
        assert (brief(result.issues), result.passed) == (issues, not issues)

    async def test_a_function_may_give_the_list(self) -> None:
        registry = Registry()

        @registry.function("pairs")
        def list_pairs(output: Any) -> Iterator[Any]:
            yield from (pair for pair in zip(output["lines"], output["lines"][1:], strict=False))

        @registry.function("describe")
        def describe(item: Any, index: int) -> str:
            return f"{index}: {item[1]['text']}"

        fields: dict[str, Any] = {"for_each": "python:pairs", "message": "python:describe"}
        result = await run_rule("item[0].text < item[1].text", registry=registry, **fields)
        assert brief(result.issues) == [(None, "0: Freight")]
        step = make_step(audits=(AuditSpec(name="A", rule="item", for_each="python:pairs"),))
        assert is_judged_in_python(step, registry) and not is_judged_in_python(make_step(), registry)


class TestFaults:
    @pytest.mark.parametrize(
        ("for_each", "rule", "words"),
        [
            ("output.title", "true", "its for_each gave text; a list is needed."),
            ("output", "true", "its for_each gave an object; a list is needed."),
            ("null", "true", "its for_each gave null"),
            ("output.missing", "true", "missing"),
            ("output.lines", "item.missing == 1", "at index 0 of for_each: There is no key 'missing'."),
            ("output.lines", "item.missing == 1", "It is the first of 3 elements with a fault."),
            ("output.lines", "[item]", "the rule gave a list; it must give true or false."),
            ("output.lines", "item.", "Line 1"),
            ("output.lines", "python:check", "a Python audit goes through the elements itself"),
            ("python:unknown", "true", "No function is registered as “unknown”."),
        ],
    )
    async def test_what_can_not_be_asked_is_a_critical_issue(self, for_each: str, rule: str, words: str) -> None:
        assert_broken(await run_rule(rule, for_each=for_each, severity="low"), words)

    async def test_a_fault_of_one_element_leaves_the_issues_of_the_others(self) -> None:
        result = await run_rule("item != 1 && 1 / item == 1", for_each="[2, 0, 1]")
        assert [issue.code for issue in result.issues] == ["cheap_lines", "cheap_lines", "audit_error"]
        assert "at index 1" in result.issues[-1].description and "first of" not in result.issues[-1].description


RULE = "item.n >= 2 || (has(item.ok) && item.ok)"
ELEMENTS = st.fixed_dictionaries({}, optional={"n": st.none() | st.integers(0, 4), "ok": st.booleans()})


def expect(items: list[dict[str, Any]]) -> list[tuple[str | None, str]]:
    """What ``RULE`` raises, in plain Python; an operand that is true saves the other one."""
    issues: list[tuple[str | None, str]] = []
    faults = 0
    for index, item in enumerate(items):
        is_large = None if item.get("n") is None else item["n"] >= 2
        if is_large or item.get("ok", False):
            continue
        faults += is_large is None
        issues += [] if is_large is None else [(f"/parts/{index}", f"{index} of {len(items)}")]
    return [*issues, *([(None, "fault")] if faults else [])]


async def find(items: list[dict[str, Any]]) -> list[tuple[str | None, str]]:
    audit = AuditSpec(name="A", for_each="output.parts", rule=RULE, message="string(index) + ' of ' + input.count")
    evaluator = Evaluator({"output": {"parts": items}, "input": {"count": str(len(items))}}, Registry())
    issues: list[Issue] = await run_audit(audit, evaluator, None)
    return [(one.path, "fault" if one.code == "audit_error" else one.description) for one in issues]


@given(st.lists(ELEMENTS, max_size=20))
def test_it_finds_what_a_loop_in_python_does(items: list[dict[str, Any]]) -> None:
    assert asyncio.run(find(items)) == expect(items)


@pytest.mark.parametrize(
    ("rule", "count", "is_quick"),
    [
        ("item.n >= 0", 500, True),
        ("item.n >= 0 && input.n >= 0", 500, True),
        ("index >= 0", 2_500, False),
        ("item.n >= 0 && output.parts[0].n >= 0", 50, True),
        ("item.n >= 0 && output.parts[0].n >= 0", 2_000, False),
        ("output.parts.all(part, part.n >= 0)", 20, True),
        ("output.parts.all(part, part.n >= item.n)", 200, False),
    ],
)
def test_what_all_elements_copy_and_loop_through_decides_where_they_are_asked(
    rule: str, count: int, is_quick: bool
) -> None:
    items = [{"n": index} for index in range(count)]
    expression = parse_expression(rule, variables=FIELD_VARIABLES["rule"] | ITEM_VARIABLES)
    answers = Scope({"output": {"parts": items}, "input": {"n": 1}, "steps": []}).ask_each(expression, items)
    assert (answers is not NEEDS_PROCESS) is is_quick


async def test_where_it_takes_longer_one_process_is_asked_of_all_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[dict[str, Any]] = [{"n": 1}, {"n": 3}, {}, {"ok": True}, {"n": 0, "ok": False}]
    monkeypatch.setattr(cel_evaluation, "MAX_INLINE_ITEMS", 2)
    assert await find(items) == expect(items)


async def test_all_elements_together_take_no_longer_than_one_expression() -> None:
    evaluator = make_evaluator(output={"lines": [{"n": index} for index in range(500)]})
    rule = "output.lines.all(a, output.lines.all(b, a.n + b.n + item.n >= 0))"
    issues = await run_audit(AuditSpec(name="Slow", for_each="output.lines", rule=rule), evaluator, None)
    assert [issue.code for issue in issues] == ["audit_error"]
    assert "took longer than" in issues[0].description or "too much memory" in issues[0].description
