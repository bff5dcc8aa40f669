"""Audits: CEL rules, and the issues that come of their findings."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.history import Issue, Severity
from flows.engine.judging import MAX_ISSUES, AuditResult
from flows.engine.spec import AuditSpec
from tests.engine.audit_parts import assert_broken, run_rule, the_issue


class TestBoolRules:
    async def test_true_passes_without_an_issue(self) -> None:
        assert await run_rule("output.title == 'October'") == AuditResult((), passed=True)

    async def test_false_raises_one_issue_named_after_the_audit(self) -> None:
        result = await run_rule("output.title == 'May'")
        assert the_issue(result) == Issue(
            code="cheap_lines",
            severity=Severity.CRITICAL,
            description="The audit “Cheap lines” did not pass.",
            audit="Cheap lines",
        )
        assert not result.passed

    async def test_it_sees_output_input_and_steps(self) -> None:
        rule = "output.title == 'October' && input.plan == 'team' && steps[0].output.plan == 'team'"
        assert (await run_rule(rule)).passed

    async def test_message_path_and_suggestions_say_what_is_wrong_where_and_what_would_be_right(self) -> None:
        result = await run_rule(
            "false",
            message="'The title is ' + output.title + ' for ' + input.plan + '.'",
            path="'/title'",
            suggestions="['Write November.', 'Write ' + output.title + ' 2026.']",
        )
        issue = the_issue(result)
        assert (issue.description, issue.path, issue.suggestions) == (
            "The title is October for team.",
            "/title",
            ("Write November.", "Write October 2026."),
        )

    async def test_a_suggestion_may_be_one_text(self) -> None:
        assert the_issue(await run_rule("false", suggestions="'Be brief.'")).suggestions == ("Be brief.",)

    async def test_item_is_null_where_the_rule_gave_false(self) -> None:
        assert (
            the_issue(await run_rule("false", message="item == null ? 'Nothing.' : 'Item.'")).description == "Nothing."
        )


class TestListRules:
    async def test_an_empty_list_passes(self) -> None:
        assert await run_rule("output.lines.filter(line, line.amount > 500.0)") == AuditResult((), passed=True)

    async def test_each_element_is_an_issue_and_its_message_sees_it_as_item(self) -> None:
        result = await run_rule(
            "lists.range(size(output.lines)).filter(i, output.lines[i].amount < 20.0)",
            message="output.lines[item].text + ' is cheap.'",
            path="'/lines/' + string(item) + '/amount'",
            suggestions="'Drop ' + output.lines[item].text + '.'",
        )
        assert [(issue.description, issue.path, issue.suggestions) for issue in result.issues] == [
            ("Freight is cheap.", "/lines/1/amount", ("Drop Freight.",)),
            ("Tape is cheap.", "/lines/2/amount", ("Drop Tape.",)),
        ]

    async def test_fields_of_a_map_are_fields_of_the_issue(self) -> None:
        result = await run_rule(
            "[{'severity': 'low', 'code': 'vat', 'description': 'VAT is missing.', 'path': '/lines', "
            "'context': {'rate': 19}, 'suggestions': ['Add VAT.']}]"
        )
        assert the_issue(result) == Issue(
            code="vat",
            severity=Severity.LOW,
            description="VAT is missing.",
            audit="Cheap lines",
            path="/lines",
            context={"rate": 19},
            suggestions=("Add VAT.",),
        )

    async def test_what_a_map_leaves_out_comes_from_the_audit(self) -> None:
        issue = the_issue(await run_rule("[{'description': 'Odd.'}]", severity="medium"))
        assert (issue.code, issue.severity, issue.audit) == ("cheap_lines", Severity.MEDIUM, "Cheap lines")

    async def test_keys_that_are_no_field_of_an_issue_are_kept_as_added_fields(self) -> None:
        issue = the_issue(
            await run_rule("[{'description': 'Odd.', 'ratio': 2.5, 'pair': ['a', 'b'], 'nearest': null}]")
        )
        assert issue.added_fields == {"ratio": 2.5, "pair": ["a", "b"], "nearest": None}

    async def test_added_fields_may_have_any_name_and_survive_json(self) -> None:
        rule = (
            "[{'description': 'Odd.', 'fingerprint': 'f', 'model_dump': 1, 'added_fields': [2], 'deep': {'a': [1.5]}}]"
        )
        issue = the_issue(await run_rule(rule))
        added = {"fingerprint": "f", "model_dump": 1, "added_fields": [2], "deep": {"a": [1.5]}}
        assert issue.added_fields == added
        again = Issue.model_validate_json(issue.model_dump_json())
        assert again == issue and again.added_fields == added

    @pytest.mark.parametrize("written", ["HIGH", "High", " high "])
    async def test_a_severity_may_be_in_any_case(self, written: str) -> None:
        assert the_issue(await run_rule(f"[{{'severity': '{written}'}}]")).severity is Severity.HIGH

    async def test_every_element_of_an_expression_is_an_issue_also_null(self) -> None:
        assert len((await run_rule("[null, true, false]")).issues) == 3

    async def test_a_null_in_a_standard_field_says_nothing(self) -> None:
        issue = the_issue(await run_rule("[{'severity': null, 'path': null, 'code': null, 'suggestions': null}]"))
        assert (issue.code, issue.severity, issue.path, issue.suggestions) == (
            "cheap_lines",
            Severity.CRITICAL,
            None,
            (),
        )

    async def test_message_path_and_suggestions_of_the_audit_win_over_those_of_an_element(self) -> None:
        issue = the_issue(
            await run_rule(
                "[{'description': 'Own.', 'path': '/own', 'suggestions': ['Own.'], 'code': 'own'}]",
                message="'Audit: ' + item.description",
                path="'/audit'",
                suggestions="['Audit.']",
            )
        )
        assert (issue.description, issue.path, issue.suggestions, issue.code) == (
            "Audit: Own.",
            "/audit",
            ("Audit.",),
            "own",
        )

    async def test_a_text_is_the_description(self) -> None:
        assert [issue.description for issue in (await run_rule("['One.', 'Two.']")).issues] == ["One.", "Two."]

    async def test_numbers_and_lists_are_kept_in_the_context_as_item(self) -> None:
        result = await run_rule("[7, [1, 2]]")
        assert [issue.context for issue in result.issues] == [{"item": 7}, {"item": [1, 2]}]
        assert result.issues[0].description == "The audit “Cheap lines” found 7."

    async def test_what_was_found_is_cut_in_a_description_nobody_wrote(self) -> None:
        issue = the_issue(await run_rule("[lists.range(2000)]"))
        assert len(issue.description) < 600
        assert len(issue.context["item"]) == 2000


class TestMessageTemplates:
    async def test_a_template_is_the_description_with_the_values_at_its_paths(self) -> None:
        result = await run_rule(
            "output.lines.filter(line, line.amount < 20.0)",
            message_template="{item.text} for {item.amount} is cheap in {output.title} ({input.plan}).",
        )
        assert [issue.description for issue in result.issues] == [
            "Freight for 11.5 is cheap in October (team).",
            "Tape for 3 is cheap in October (team).",
        ]

    async def test_it_wins_over_what_an_element_says(self) -> None:
        issue = the_issue(await run_rule("[{'description': 'Own.'}]", message_template="Audit: {item.description}"))
        assert issue.description == "Audit: Own."


class TestPassing:
    @pytest.mark.parametrize(
        ("severity", "fail_at", "passes"),
        [
            ("low", "critical", True),
            ("high", "critical", True),
            ("critical", "critical", False),
            ("medium", "medium", False),
            ("low", "medium", True),
            ("critical", "low", False),
        ],
    )
    async def test_it_passes_when_no_issue_reaches_fail_at(self, severity: str, fail_at: str, passes: bool) -> None:
        result = await run_rule("false", severity=severity, fail_at=fail_at)
        assert (result.passed, len(result.issues)) == (passes, 1)

    async def test_the_severity_of_an_element_counts_and_not_that_of_the_audit(self) -> None:
        assert (await run_rule("[{'severity': 'low'}]", severity="critical")).passed
        assert not (await run_rule("[{'severity': 'critical'}]", severity="low", fail_at="high")).passed

    async def test_one_issue_of_many_is_enough(self) -> None:
        assert not (await run_rule("[{'severity': 'low'}, {'severity': 'critical'}, {'severity': 'low'}]")).passed

    @pytest.mark.parametrize("severity", list(Severity))
    async def test_without_fail_at_its_own_severity_fails_it(self, severity: Severity) -> None:
        assert not (await run_rule("false", severity=severity)).passed
        milder = [other for other in Severity if other < severity]
        assert all([(await run_rule(f"[{{'severity': '{one}'}}]", severity=severity)).passed for one in milder])

    async def test_by_default_issues_are_critical(self) -> None:
        assert AuditSpec(name="a", rule="true").threshold is Severity.CRITICAL

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

    async def test_just_500_are_just_500(self) -> None:
        assert len((await run_rule("lists.range(500)")).issues) == 500


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

    async def test_an_error_fails_the_audit_whatever_its_fail_at(self) -> None:
        for fail_at in Severity:
            assert not (await run_rule("1 / 0 == 1", fail_at=fail_at)).passed

    async def test_elements_that_can_not_be_issues_leave_the_others_and_one_error(self) -> None:
        result = await run_rule(
            "[{'severity': 'low'}, {'severity': 'urgent'}, {'description': 7}, {'description': 'Odd.'}]"
        )
        assert [issue.code for issue in result.issues] == ["cheap_lines", "cheap_lines", "audit_error"]
        error = result.issues[-1]
        assert error.severity is Severity.CRITICAL
        assert "could not be fully evaluated" in error.description and "“severity” is wrong" in error.description
        assert error.description.endswith("It is the first of 2 faults.")

    async def test_a_message_that_fails_for_one_element_leaves_the_others(self) -> None:
        result = await run_rule("[{'name': 'Tape'}, {'size': 3}]", message="item.name")
        assert [issue.description for issue in result.issues][:1] == ["Tape"]
        assert [issue.code for issue in result.issues] == ["cheap_lines", "audit_error"]
