"""Audits: CEL rules, Python functions and message templates, and the issues that come of their findings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import date
from decimal import Decimal
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from flows.engine.audits import MAX_ISSUES
from flows.engine.history import Issue, Severity
from flows.engine.message_template import MAX_VALUE_LENGTH, parse_template
from tests.engine.audit_parts import OUTPUT, assert_broken, run_python, run_rule, the_issue


def found(description: str = "The audit “Cheap lines” did not pass.", **fields: Any) -> Issue:
    """An issue of the audit, with these fields in place of its own."""
    own = {"code": "cheap_lines", "severity": Severity.CRITICAL, "audit": "Cheap lines", "description": description}
    return Issue.model_validate({**own, **fields})


OWN = "[{'description': 'Own.', 'path': '/own', 'suggestions': ['Own.'], 'code': 'own'}]"
VAT = (
    "[{'severity': 'low', 'code': 'vat', 'description': 'VAT is missing.', 'path': '/lines', "
    "'context': {'rate': 19}, 'suggestions': ['Add VAT.']}]"
)
VAT_FIELDS = {"severity": "low", "code": "vat", "path": "/lines", "context": {"rate": 19}, "suggestions": ("Add VAT.",)}
CHEAP = "lists.range(size(output.lines)).filter(i, output.lines[i].amount < 10.0)"


class TestFindings:
    @pytest.mark.parametrize(
        ("rule", "issues"),
        [
            ("output.title == 'October' && input.plan == 'team' && steps[0].output.plan == 'team'", []),
            ("output.lines.filter(line, line.amount > 500.0)", []),
            ("output.title == 'May'", [found()]),
            ("['One.', 'Two.']", [found("One."), found("Two.")]),
            ("[null, true]", [found(), found("The audit “Cheap lines” found true.", context={"item": True})]),
            ("[{'description': 'Odd.', 'ratio': 2.5, 'nearest': null}]", [found("Odd.", ratio=2.5, nearest=None)]),
            ("[{'description': 'Odd.', 'severity': ' HIGH '}]", [found("Odd.", severity="high")]),
            ("[{'description': 'Odd.', 'severity': null, 'path': null, 'code': null}]", [found("Odd.")]),
            (VAT, [found("VAT is missing.", **VAT_FIELDS)]),
        ],
    )
    async def test_each_finding_of_a_rule_is_an_issue(self, rule: str, issues: list[Issue]) -> None:
        result = await run_rule(rule)
        is_passed = all(issue.severity < Severity.CRITICAL for issue in issues)
        assert (list(result.issues), result.passed) == (issues, is_passed)
        assert [Issue.model_validate_json(one.model_dump_json()) for one in issues] == issues

    @pytest.mark.parametrize(
        ("rule", "fields", "issues"),
        [
            ("false", {"message": "item == null ? 'No ' + output.title : ''"}, [found("No October")]),
            (
                CHEAP,
                {"message": "output.lines[item].text + ' is cheap.'", "path": "'/lines/' + string(item)"},
                [found("Tape is cheap.", path="/lines/2", context={"item": 2})],
            ),
            (
                OWN,
                {"message": "'Audit: ' + item.description", "path": "'/audit'", "suggestions": "['Audit.']"},
                [found("Audit: Own.", code="own", path="/audit", suggestions=("Audit.",))],
            ),
            (
                "output.lines.filter(line, line.amount < 10.0)",
                {"message_template": "{item.text} for {item.amount} is cheap in {output.title} ({input.plan})."},
                [found("Tape for 3 is cheap in October (team).", text="Tape", amount=3.0)],
            ),
            ("[{'description': 'Odd.'}]", {"severity": "medium"}, [found("Odd.", severity="medium")]),
        ],
    )
    async def test_settings_of_the_audit_say_what_is_wrong_where_and_what_would_be_right(
        self, rule: str, fields: dict[str, Any], issues: list[Issue]
    ) -> None:
        assert list((await run_rule(rule, **fields)).issues) == issues

    @pytest.mark.parametrize(
        "fields", [{"rule": "lists.range(1234)"}, {"rule": "false", "for_each": "lists.range(1234)"}]
    )
    async def test_of_very_many_500_are_kept_and_one_more_says_how_many_there_were(
        self, fields: dict[str, Any]
    ) -> None:
        result = await run_rule(**fields, severity="medium", fail_at="medium")
        assert (len(result.issues), result.passed) == (MAX_ISSUES + 1, False)
        more = result.issues[-1]
        assert (more.code, more.severity, "734 more" in more.description) == ("more_issues", Severity.MEDIUM, True)

    @pytest.mark.parametrize(("own", "last", "passed"), [("low", "critical", False), ("critical", "low", True)])
    async def test_what_is_not_kept_counts_by_its_worst_severity(self, own: str, last: str, passed: bool) -> None:
        rule = f"lists.range({MAX_ISSUES + 1}).map(i, {{'severity': i < {MAX_ISSUES} ? 'low' : '{last}'}})"
        result = await run_rule(rule, severity=own, fail_at="critical")
        assert (result.issues[-1].severity, result.passed) == (last, passed)


class TestPassing:
    @pytest.mark.parametrize("rule", ["false", "[{'severity': 'critical'}]", "1 / 0 == 1"])
    async def test_one_that_never_fails_only_warns(self, rule: str) -> None:
        result = await run_rule(rule, fail_at="never")
        assert (result.passed, the_issue(result).severity) == (True, Severity.CRITICAL)


class TestBrokenRules:
    @pytest.mark.parametrize(
        ("rule", "fields", "words"),
        [
            ("1 / 0 == 1", {}, "zero"),
            ("'yes'", {}, "the rule gave text; a rule gives true, false or a list."),
            ("python:unknown", {}, "No audit is registered as “unknown”. Registered: none."),
            ("[{'severity': 'urgent'}]", {}, "it raised an issue whose “severity” is wrong"),
            ("[{'suggestions': [1]}]", {}, "it raised an issue whose “suggestions.0” is wrong"),
            ("false", {"message": "7"}, "its message gave an integer; a text is needed."),
            ("false", {"path": "['/a']"}, "its path gave a list; a text is needed."),
            ("false", {"message": "python:unknown"}, "No function is registered as “unknown”."),
        ],
    )
    async def test_a_rule_or_a_message_that_cannot_be_evaluated_is_a_critical_issue(
        self, rule: str, fields: dict[str, Any], words: str
    ) -> None:
        assert_broken(await run_rule(rule, severity="low", **fields), words)

    async def test_elements_that_can_not_be_issues_leave_the_others_and_one_error(self) -> None:
        result = await run_rule(
            "[{'severity': 'low'}, {'severity': 'urgent'}, {'description': 7}, {'description': 'Odd.'}]"
        )
        assert [issue.code for issue in result.issues] == ["cheap_lines", "cheap_lines", "audit_error"]
        error = result.issues[-1]
        assert error.severity is Severity.CRITICAL
        assert "“severity” is wrong" in error.description and "the first of 2 faults" in error.description


class Finding(BaseModel):
    description: str
    line: int


async def give_later(output: Any) -> str:
    return "Later."


def hand_back(output: Any) -> Any:
    return give_later(output)


async def generate_later(output: Any) -> AsyncIterator[str]:
    yield "One."
    await asyncio.sleep(0)
    yield "Two."


class TestPythonAudits:
    @pytest.mark.parametrize(
        ("give", "found"),
        [
            (lambda output: False, ["The audit “Cheap lines” did not pass."]),
            (lambda output: "", [""]),
            (lambda output: MappingProxyType({"description": "Odd."}), ["Odd."]),
            (lambda output: deque(["One.", "Two."]), ["One.", "Two."]),
            (generate_later, ["One.", "Two."]),
            (hand_back, ["Later."]),
            (
                lambda output: ["Text.", {"description": "Map."}, None, Finding(description="Odd.", line=2), 7, True],
                ["Text.", "Map.", "Odd.", "The audit “Cheap lines” found 7."],
            ),
        ],
    )
    async def test_whatever_it_gives_is_one_issue_for_each_finding(self, give: Any, found: list[str]) -> None:
        assert [issue.description for issue in (await run_python(give)).issues] == found


class TestPythonFaults:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (KeyError("amount"), "“python:check” raised KeyError: 'amount'"),
            (StopIteration(), "raised "),
            (SystemExit(2), "raised SystemExit: 2"),
            (RuntimeError("NUL \0 and \ud800" + "x" * 1_000_000), "raised RuntimeError: NUL \ufffd and \ufffd"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
    )
    @pytest.mark.parametrize("kind", ["sync", "generator", "async"])
    async def test_whatever_it_raises_is_a_critical_issue_and_no_crash(
        self, kind: str, error: BaseException, words: str
    ) -> None:
        def check(output: Any) -> Any:
            raise error

        def check_lazily(output: Any) -> Any:
            yield from ()
            raise error

        async def check_later(output: Any) -> Any:
            raise error

        functions: dict[str, Callable[..., Any]] = {"sync": check, "generator": check_lazily, "async": check_later}
        result = await run_python(functions[kind])
        assert_broken(result, words)
        assert len(the_issue(result).description) < 2_000

    @pytest.mark.parametrize("finding", [object(), {"thing": object()}, {("a", "b"): 1}, {"code": "x" * 100_000}])
    async def test_what_can_be_no_issue_is_an_audit_error(self, finding: Any) -> None:
        assert_broken(await run_python(lambda output: finding), "")

    async def test_a_pattern_is_not_found_in_what_is_no_text(self) -> None:
        for value in ("null", "5", "[]"):
            assert_broken(await run_rule(f"dyn({value}).matches('^INV-')"), "")

    async def test_an_endless_generator_is_an_audit_error(self) -> None:
        assert_broken(await run_python(lambda output: count()), "more than 1,000,000 elements")

    async def test_what_cannot_be_stored_is_cleaned_in_every_field(self) -> None:
        seen = ["first"]
        finding = {
            "description": "a\0b",
            "path": "/x\ud800",
            "suggestions": ["c\0"],
            "context": {"ratio": float("nan"), "k\0": "v\ud800"},
            "due": date(2026, 11, 21),
            "sum": Decimal("1.50"),
            "seen": seen,
        }
        issue = the_issue(await run_python(lambda output: finding))
        seen.append("what an audit changes later changes no issue")
        assert issue.model_dump(include=set(finding)) == {
            "description": "a\ufffdb",
            "path": "/x\ufffd",
            "suggestions": ("c\ufffd",),
            "context": {"ratio": None, "k\ufffd": "v\ufffd"},
            "due": "2026-11-21",
            "sum": "1.50",
            "seen": ["first"],
        }
        assert Issue.model_validate_json(issue.model_dump_json()) == issue


class TestTemplates:
    ITEM: dict[str, Any] = {"number": 3, "ok": True, "note": None, "größe": 4.0, "tags": ["a", {"b": 1.5}]}
    VARIABLES: dict[str, Any] = {"item": ITEM, "output": OUTPUT, "input": "A line.\nAnother.", "steps": []}

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("{output.lines[1].text} is on line { item.number }", "Freight is on line 3"),
            ("{item.ok} {item.note} {item.tags} {item.tags[1].b}", 'true null ["a",{"b":1.5}] 1.5'),
            ("{item.größe} cm", "4 cm"),
            ("{{item.number}} and {{{item.number}}}", "{item.number} and {3}"),
            ("{item.nmae} {item.number.x} {output.lines[9].text} {steps[0].output} {item[0]}", "? ? ? ? ?"),
        ],
    )
    def test_paths_become_values_and_those_that_lead_nowhere_a_question_mark(self, template: str, message: str) -> None:
        assert parse_template(template).render(self.VARIABLES) == message

    def test_a_long_value_is_cut(self) -> None:
        message = parse_template("{item}!").render({"item": ["x" * 10_000]})
        assert (len(message), message[-2:]) == (MAX_VALUE_LENGTH + 1, "…!")
