"""Why an attempt passed or failed, from its step's definition and its issues."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from flows.engine.history import Issue
from flows.engine.spec import AuditSpec
from runs import models
from runs.history.checklist import MAX_VALUES, Checklist, RuleRow, build_checklist
from runs.stored_history import build_issues
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import attempt_address, get_page, read_words, sign_in

SHORT = AuditSpec(name="Short", rule="output.text.size() < 9")
TONE = AuditSpec(name="Tone", rule="output.text != ''", severity="medium", fail_at="never")
WEIGHED = "!issues.exists(issue, issue.severity == 'critical') && issues.map(issue, weight(issue.severity)).sum() <= 4"


def explain(outcome: str, *issues: Issue, output: Any = None, is_brief: bool = False, **fields: Any) -> Checklist:
    step = make_step(1, **{"audits": (SHORT, TONE), **fields})
    rows = build_issues(models.Attempt(number=2), issues)
    if is_brief:
        for row in rows:
            del row.__dict__["context"]
    checklist = build_checklist(step, outcome, rows, output or {"text": "green tea"}, prefix="s1a2-")
    assert checklist is not None
    return checklist


def explain_rule(outcome: str, *issues: Issue, **fields: Any) -> RuleRow:
    rule = explain(outcome, *issues, **fields).rule
    assert rule is not None
    return rule


def list_states(checklist: Checklist) -> list[tuple[str, str, str]]:
    rows = [*checklist.checks, *([checklist.rule] if checklist.rule else [])]
    return [(row.name, row.state, row.role) for row in rows]


def of_short(severity: str = "critical", **fields: Any) -> Issue:
    return make_issue(severity, audit="Short", path="/text", **fields)


def of_tone(severity: str = "medium", **fields: Any) -> Issue:
    return make_issue(severity, audit="Tone", **fields)


@pytest.mark.parametrize(
    ("outcome", "issues", "states"),
    [
        ("passed", (), ["passed", "passed", "passed", "passed"]),
        ("passed", (of_tone(),), ["passed", "passed", "passed", "warned"]),
        ("passed", (of_short("low"),), ["passed", "passed", "warned", "passed"]),
        ("failed", (of_short(), of_tone()), ["passed", "passed", "failed", "warned"]),
        ("failed", (of_short(code="audit_error"),), ["passed", "passed", "error", "passed"]),
        ("passed", (make_issue("low", code="cleaned_output"),), ["passed"] * 4),
        ("invalid", (make_issue(code="no_tool_call"),), ["failed", "unreached", "unreached", "unreached"]),
        (
            "invalid",
            (make_issue(code="schema_mismatch", path="/text"),),
            ["passed", "failed", "unreached", "unreached"],
        ),
    ],
)
def test_checks_are_listed_in_their_order(outcome: str, issues: tuple[Issue, ...], states: list[str]) -> None:
    found = list_states(explain(outcome, *issues))
    assert [name for name, _, _ in found] == ["Tool call", "Output schema", "Short", "Tone"]
    assert [state for _, state, _ in found] == states
    assert [role for _, _, role in found] == ["Blocks", "Blocks", "Blocks", "Warns"]


@pytest.mark.parametrize("outcome", ["", "errored", "interrupted", "cancelled"])
def test_without_an_output_there_is_no_checklist(outcome: str) -> None:
    assert build_checklist(make_step(1), outcome, [], None, prefix="") is None


def test_sanitizer_and_type_have_rows_of_their_own() -> None:
    fields = {"output_sanitizer": "value", "output_type": "Offer"}
    broken = explain("invalid", make_issue(code="sanitizer_error"), **fields)
    assert list_states(broken)[:4] == [
        ("Tool call", "passed", "Blocks"),
        ("Output sanitizer", "error", "Blocks"),
        ("Output schema", "unreached", "Blocks"),
        ("Output type Offer", "unreached", "Blocks"),
    ]
    audited = explain("failed", make_issue(audit="Offer"), **fields)
    assert ("Offer", "failed", "Blocks") in list_states(audited)


def test_the_first_values_are_shown_with_their_places() -> None:
    issues = [make_issue(audit="Short", path=f"/lines/{place}") for place in range(MAX_VALUES + 2)]
    row = explain("failed", *issues, output={"lines": ["ok", "\u202eevil", 7, {"a": 1}]}).checks[2]
    assert (row.found, row.more) == ("6 issues", 2)
    assert [(one.href, one.place) for one in row.places][:2] == [
        ("#s1a2-i0", "/lines/0"),
        ("#s1a2-i1", "/lines/1"),
    ]
    values = [one.value for one in row.places]
    assert (values[0], values[2:]) == ("ok", ["7", "1 key"]) and "\u202e" not in values[1]


class TestPassRule:
    def test_decides_instead_of_the_audits_and_shows_its_values(self) -> None:
        issues = (of_tone(), of_tone(), of_short("low"), of_short("low"))
        checklist = explain("failed", *issues, pass_expression=WEIGHED)
        assert list_states(checklist)[2:] == [
            ("Short", "warned", "Warns"),
            ("Tone", "warned", "Warns"),
            ("Pass rule", "failed", "Blocks"),
        ]
        assert [row.weight for row in checklist.checks] == ["", "", "1 + 1", "2 + 2"]
        rule = checklist.rule
        assert rule is not None and rule.explanation is not None and rule.weight == "6"
        assert [(one.values, one.holds) for one in rule.explanation.conditions] == [
            ("0 critical issues, none allowed", True),
            ("2 + 2 + 1 + 1 = 6, limit 4", False),
        ]
        assert checklist.weights

    def test_says_of_audits_without_issues_whether_one_would_block(self) -> None:
        checklist = explain("passed", pass_expression=WEIGHED)
        assert [row.role for row in checklist.checks[2:]] == ["Blocks", "Warns"]
        assert [row.weight for row in checklist.checks[2:]] == ["0", "0"]

    def test_does_not_read_the_issue_that_it_led_to(self) -> None:
        rule = explain_rule("failed", make_issue(code="not_accepted"), pass_expression="issues.size() > 0")
        assert [one.values for one in rule.explanation.conditions] == ["0 issues, must be above 0"]

    @pytest.mark.parametrize(
        ("fields", "state"),
        [
            ({"pass_expression": "python:accept"}, "failed"),
            # What is stored gives another result than what was judged.
            ({"pass_expression": "size(output.text) > 1"}, "failed"),
            ({"pass_expression": "issues.all(issue, has(issue.context))", "is_brief": True}, "failed"),
        ],
    )
    def test_is_shown_plainly_where_its_values_are_not_known(self, fields: dict[str, Any], state: str) -> None:
        rule = explain_rule("failed", of_short(), **fields)
        assert (rule.state, rule.explanation, rule.text != "") == (state, None, True)
        assert "python:" not in rule.text

    def test_that_failed_says_why(self) -> None:
        issue = make_issue(description="It could not be evaluated.", code="audit_error")
        rule = explain_rule("failed", issue, pass_expression="output.missing > 1")
        assert (rule.state, rule.found) == ("error", "It could not be evaluated.")

    def test_is_not_reached_by_an_invalid_output(self) -> None:
        rule = explain_rule("invalid", make_issue(code="no_tool_call"), pass_expression="true")
        assert rule.state == "unreached"


@pytest.mark.django_db
class TestRunPage:
    def test_shows_passed_audits_and_the_pass_rule_beside_what_was_found(self, client: Client) -> None:
        spec = make_flow(make_step(1, audits=(SHORT, TONE), pass_expression=WEIGHED))
        issues = (of_short("high"), of_short("low"))
        run = make_stored_run(make_attempt(1, 1, "failed", output={"text": "سعر البيع"}, issues=issues), spec=spec)
        part = get_page(sign_in(client, "view_run"), attempt_address(run, 1, 1))
        section = part[part.index("data-checklist") :].partition("</section>")[0]
        assert [row.partition('"')[0] for row in section.split('data-check="')[1:]] == [
            *("passed", "passed", "failed", "passed", "failed")
        ]
        words = read_words(f"<section {section}")
        assert "Why it failed" in words and "4 + 1 = 5, limit 4 : no" in words and "Tone Warns No issues" in words
        assert 'href="#i0"' in section and 'dir="rtl">سعر البيع' in section

    def test_shows_what_audits_and_rules_hold_as_text(self, client: Client) -> None:
        hostile = "<img src=x onerror=alert(1)>\u202e"
        audit = AuditSpec(name=hostile, rule="true")
        spec = make_flow(make_step(1, audits=(audit,), pass_expression=f"output.text != '{hostile}'"))
        issue = make_issue(audit=hostile, path="/text")
        run = make_stored_run(make_attempt(1, 1, "failed", output={"text": hostile}, issues=(issue,)), spec=spec)
        part = get_page(sign_in(client, "view_run"), attempt_address(run, 1, 1))
        assert "data-checklist" in part and "<img" not in part and "\u202e" not in part

    def test_is_without_values_once_the_output_is_removed(self, client: Client) -> None:
        spec = make_flow(make_step(1, pass_expression="size(output.text) > 5"))
        run = make_stored_run(make_attempt(1, 1, output={"text": "green tea"}), spec=spec)
        models.Attempt.objects.update(output=None)
        words = read_words(get_page(sign_in(client, "view_run"), attempt_address(run, 1, 1)))
        assert "size(output.text) > 5 Accepts the output" in words
