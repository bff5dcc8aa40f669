"""Audits: CEL rules, and the issues that come of their findings."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.history import Issue, Severity
from flows.engine.judging import MAX_ISSUES
from tests.engine.audit_parts import assert_broken, run_rule, the_issue


def found(description: str = "The audit “Cheap lines” did not pass.", **fields: Any) -> Issue:
    """An issue of the audit, with these fields in place of its own."""
    own = {"code": "cheap_lines", "severity": Severity.CRITICAL, "audit": "Cheap lines", "description": description}
    return Issue.model_validate({**own, **fields})


OWN = "[{'description': 'Own.', 'path': '/own', 'suggestions': ['Own.'], 'code': 'own'}]"


VAT = (
    "[{'severity': 'low', 'code': 'vat', 'description': 'VAT is missing.', 'path': '/lines', "
    "'context': {'rate': 19}, 'suggestions': ['Add VAT.']}]"
)


class TestFindings:
    @pytest.mark.parametrize(
        ("rule", "issues"),
        [
            ("output.title == 'October' && input.plan == 'team' && steps[0].output.plan == 'team'", []),
            ("output.lines.filter(line, line.amount > 500.0)", []),
            ("output.title == 'May'", [found()]),
            ("['One.', 'Two.']", [found("One."), found("Two.")]),
            ("[null, true]", [found(), found("The audit “Cheap lines” found true.", context={"item": True})]),
            ("[7]", [found("The audit “Cheap lines” found 7.", context={"item": 7})]),
            ("[{'description': 'Odd.', 'ratio': 2.5, 'nearest': null}]", [found("Odd.", ratio=2.5, nearest=None)]),
            ("[{'description': 'Odd.', 'added_fields': [2]}]", [found("Odd.", added_fields=[2])]),
            ("[{'description': 'Odd.', 'severity': ' HIGH '}]", [found("Odd.", severity="high")]),
            ("[{'description': 'Odd.', 'severity': null, 'path': null, 'code': null}]", [found("Odd.")]),
            (
                VAT,
                [
                    found(
                        "VAT is missing.",
                        severity="low",
                        code="vat",
                        path="/lines",
                        context={"rate": 19},
                        suggestions=("Add VAT.",),
                    )
                ],
            ),
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
                "false",
                {"path": "'/title'", "suggestions": "'Be brief.'"},
                [found(path="/title", suggestions=("Be brief.",))],
            ),
            (
                "lists.range(size(output.lines)).filter(i, output.lines[i].amount < 10.0)",
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
            (
                OWN,
                {"message_template": "Audit: {item.description}"},
                [found("Audit: Own.", code="own", path="/own", suggestions=("Own.",))],
            ),
            ("[{'description': 'Odd.'}]", {"severity": "medium"}, [found("Odd.", severity="medium")]),
        ],
    )
    async def test_settings_of_the_audit_say_what_is_wrong_where_and_what_would_be_right(
        self, rule: str, fields: dict[str, Any], issues: list[Issue]
    ) -> None:
        assert list((await run_rule(rule, **fields)).issues) == issues


class TestPassing:
    async def test_the_severity_of_an_element_counts_and_not_that_of_the_audit(self) -> None:
        assert (await run_rule("[{'severity': 'low'}]", severity="critical")).passed
        assert not (await run_rule("[{'severity': 'critical'}]", severity="low", fail_at="high")).passed

    @pytest.mark.parametrize("severity", list(Severity))
    async def test_without_fail_at_its_own_severity_fails_it(self, severity: Severity) -> None:
        assert not (await run_rule("false", severity=severity)).passed
        milder = [other for other in Severity if other < severity]
        assert all([(await run_rule(f"[{{'severity': '{one}'}}]", severity=severity)).passed for one in milder])

    @pytest.mark.parametrize("rule", ["false", "[{'severity': 'critical'}]", "1 / 0 == 1"])
    async def test_one_that_never_fails_only_warns(self, rule: str) -> None:
        result = await run_rule(rule, fail_at="never")
        assert (result.passed, the_issue(result).severity) == (True, Severity.CRITICAL)


class TestManyIssues:
    async def test_500_are_kept_and_one_more_says_how_many_there_were(self) -> None:
        result = await run_rule("lists.range(1234)", severity="medium", fail_at="medium")
        assert len(result.issues) == MAX_ISSUES + 1
        more = result.issues[-1]
        assert (more.code, more.severity) == ("more_issues", Severity.MEDIUM)
        assert more.description == "The audit “Cheap lines” found 734 more; the first 500 are kept."
        assert not result.passed


class TestBrokenRules:
    @pytest.mark.parametrize(
        ("rule", "words"),
        [
            ("output.missing == 1", "missing"),
            ("1 / 0 == 1", "zero"),
            ("'yes'", "the rule gave text; a rule gives true, false or a list."),
            ("1", "the rule gave an integer"),
            ("null", "the rule gave null"),
            ("{'a': 1}", "the rule gave an object"),
            ("python:unknown", "No audit is registered as “unknown”. Registered: none."),
            ("[{'severity': 'urgent'}]", "it raised an issue whose “severity” is wrong"),
            ("[{'description': 7}]", "it raised an issue whose “description” is wrong"),
            ("[{'context': 'text'}]", "it raised an issue whose “context” is wrong"),
            ("[{'suggestions': [1]}]", "it raised an issue whose “suggestions.0” is wrong"),
            ("[{'code': ''}]", "it raised an issue whose “code” is wrong"),
        ],
    )
    async def test_a_rule_that_cannot_be_evaluated_is_a_critical_issue(self, rule: str, words: str) -> None:
        assert_broken(await run_rule(rule, severity="low"), words)

    @pytest.mark.parametrize(
        ("field", "text", "words"),
        [
            ("message", "7", "its message gave an integer; a text is needed."),
            ("message", "item.missing", ""),
            ("path", "['/a']", "its path gave a list; a text is needed."),
            ("suggestions", "7", "it raised an issue whose “suggestions.0” is wrong"),
            ("message", "python:unknown", "No function is registered as “unknown”."),
        ],
    )
    async def test_so_is_a_message_that_cannot_be_evaluated(self, field: str, text: str, words: str) -> None:
        fields: dict[str, Any] = {field: text}
        assert_broken(await run_rule("false", **fields), words)

    async def test_elements_that_can_not_be_issues_leave_the_others_and_one_error(self) -> None:
        result = await run_rule(
            "[{'severity': 'low'}, {'severity': 'urgent'}, {'description': 7}, {'description': 'Odd.'}]"
        )
        assert [issue.code for issue in result.issues] == ["cheap_lines", "cheap_lines", "audit_error"]
        error = result.issues[-1]
        assert error.severity is Severity.CRITICAL
        assert "could not be fully evaluated" in error.description and "“severity” is wrong" in error.description
        assert error.description.endswith("It is the first of 2 faults.")
