"""What changed between two definitions of a flow, as a person would tell it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.differences.change_summary import summarise_changes
from flows.engine.differences.spec_diff import compare_specs
from flows.engine.issues import Severity
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from tests.engine.builders import INVOICE, closed, make_flow, make_step
from tests.engine.differences.spec_changes import draw, flows, list_all, tell

EXTRACT = make_step(1, name="Extract", tool_name="extract_invoice", system_message="You read invoices.")
CHECK = make_step(2, name="Check", tool_name="check_invoice", system_message="You look for mistakes of others.")
BOOK = make_step(3, name="Book", tool_name="book_invoice", system_message="You prepare what accountants do.")

ADDS_UP = AuditSpec(name="Adds up", rule="output.total == output.net + output.tax")
HAS_DATE = AuditSpec(name="Has a date", rule="output.date != ''")
POSITIVE = AuditSpec(name="Positive", rule="output.total > 0.0")


def change(step: StepSpec, **fields: Any) -> StepSpec:
    return step.model_copy(update=fields)


def tell_step(**fields: Any) -> list[str]:
    """What is told of a step that got these fields."""
    return tell(make_flow(EXTRACT), make_flow(change(EXTRACT, **fields)))


# Fields


def test_the_same_definition_has_no_changes() -> None:
    assert compare_specs(make_flow(EXTRACT, CHECK), make_flow(EXTRACT, CHECK)) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_retries": 1}, "max_retries 3 → 1"),
        ({"model": None}, "model gpt-4.1 → that of the flow"),
        ({"temperature": 0.5}, "temperature that of the flow → 0.5"),
        ({"max_tokens": 20_000}, "max_tokens that of the flow → 20,000"),
        ({"stop_on_failure": False}, "stop_on_failure on → off"),
        ({"time_limit": 90}, "time_limit none → 90 s"),
        ({"issue_severity_filter": "low"}, "issue_severity_filter high → low"),
        ({"input_expression": "{'a': 1}"}, "input_expression none → {'a': 1}"),
        ({"description": "Reads it."}, "description none → “Reads it.”"),
        ({"output_type": "invoice"}, "output_type none → invoice"),
        ({"output_schema": None}, "output_schema …"),
    ],
)
def test_a_field_is_told_with_its_values_in_words(fields: dict[str, Any], told: str) -> None:
    step = StepSpec.model_validate({**EXTRACT.model_dump(), **fields})
    assert tell(make_flow(EXTRACT), make_flow(step)) == [f"Step 1 “Extract”: {told}"]


def test_the_fields_of_the_flow_come_first() -> None:
    new = make_flow(change(EXTRACT, max_retries=0), model="gpt-5", token_budget=20_000, cost_budget="0.5")
    assert tell(make_flow(EXTRACT), new) == [
        "Flow: model that of the installation → gpt-5; token_budget none → 20,000 tokens; cost_budget none → 0.5 USD",
        "Step 1 “Extract”: max_retries 3 → 0",
    ]


def test_an_empty_schema_is_not_the_same_as_none() -> None:
    (told,) = compare_specs(make_flow(EXTRACT), make_flow(EXTRACT, input_schema={}))
    assert [(field.old_words, field.new_words) for field in told.fields] == [("none", "anything")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"properties": {"a": {}, "b": {}}}, {"properties": {"b": {}, "a": {}}}),
        ({"minimum": 1}, {"minimum": 1.0}),
        ({"const": 1}, {"const": True}),
    ],
)
def test_schemas_that_only_python_takes_for_equal_differ(before: dict[str, Any], after: dict[str, Any]) -> None:
    (told,) = compare_specs(make_flow(EXTRACT, input_schema=before), make_flow(EXTRACT, input_schema=after))
    (field,) = told.fields
    assert (field.field, len(field.notes)) == ("input_schema", 1)


def test_a_long_text_is_told_line_by_line() -> None:
    old, new = ("\n".join(["You read invoices.", "Copy them.", f"Sums have {n} places."]) for n in (2, 3))
    (told,) = compare_specs(
        make_flow(change(EXTRACT, system_message=old)), make_flow(change(EXTRACT, system_message=new))
    )
    assert draw(told.fields[0].difference) == [
        "  You read invoices.",
        "  Copy them.",
        "- Sums have [2] places.",
        "+ Sums have [3] places.",
    ]


def test_of_white_space_alone_it_is_said_that_nothing_else_differs() -> None:
    text = "one\ntwo"
    old = make_flow(change(EXTRACT, system_message=text))
    new = make_flow(change(EXTRACT, system_message=f"{text}\r\n"))
    (told,) = compare_specs(old, new)
    assert told.fields[0].notes == ("only white space differs",)
    assert draw(told.fields[0].difference)[-3:] == ["- two", "+ two[␍]", "+ "]


# Steps


def test_a_step_that_came_is_told_with_what_is_set() -> None:
    step = change(CHECK, audits=(ADDS_UP,), max_retries=1)
    assert tell(make_flow(EXTRACT), make_flow(EXTRACT, step)) == [
        (
            "Step 2 “Check” added: tool_name check_invoice; system_message “You look for mistakes of others.”; "
            "output_schema …; model gpt-4.1; max_retries 1"
        ),
        "Audit “Adds up” added: rule output.total == output.net + output.tax",
    ]


def test_a_step_that_went_is_told_where_it_stood() -> None:
    told = tell(make_flow(EXTRACT, CHECK, BOOK), make_flow(EXTRACT, change(BOOK, max_retries=1)))
    assert [line.partition(":")[0] for line in told] == ["Step 2 “Check” removed", "Step 2 “Book”"]


def test_only_the_steps_that_really_moved_are_told() -> None:
    assert tell(make_flow(EXTRACT, CHECK, BOOK), make_flow(BOOK, EXTRACT, CHECK)) == [
        "Step 1 “Book”: moved from place 3 to 1"
    ]


def test_steps_behind_a_new_one_have_not_moved() -> None:
    told = tell(make_flow(EXTRACT, BOOK), make_flow(CHECK, EXTRACT, BOOK))
    assert [line.partition(":")[0] for line in told] == ["Step 1 “Check” added"]


@pytest.mark.parametrize(
    "renamed",
    [
        change(CHECK, name="Reconcile"),
        change(CHECK, name="Reconcile", system_message="Another message, with no word of the old one."),
        change(CHECK, name="Reconcile", tool_name="reconcile"),
    ],
    ids=["name alone", "same tool name", "likeness"],
)
def test_a_step_with_another_name_is_renamed_and_not_a_new_one(renamed: StepSpec) -> None:
    (told,) = tell(make_flow(EXTRACT, CHECK, BOOK), make_flow(EXTRACT, renamed, BOOK))
    assert told.startswith("Step 2 “Reconcile”: name “Check” → “Reconcile”")


def test_a_step_that_has_nothing_in_common_is_a_new_one() -> None:
    other = StepSpec(name="Sum", compute="{'total': 1}")
    told = tell(make_flow(EXTRACT, CHECK), make_flow(EXTRACT, other))
    assert [line.partition(":")[0] for line in told] == ["Step 2 “Check” removed", "Step 2 “Sum” added"]


# Which steps are included


def test_included_steps_are_told_by_name() -> None:
    old, new = (make_flow(EXTRACT, CHECK, change(BOOK, include_results=which)) for which in ((1,), (0, 2)))
    assert tell(old, new) == ["Step 3 “Book”: include_results 1 “Extract” → 0, 2 “Check”"]


def test_included_steps_that_only_moved_are_said_to_be_the_same() -> None:
    old = make_flow(EXTRACT, CHECK, change(BOOK, include_results=(1,)))
    new = make_flow(CHECK, EXTRACT, change(BOOK, include_results=(2,)))
    assert "include_results 1 “Extract” → 2 “Extract” (the same steps, at their new places)" in tell(old, new)[-1]


def test_numbers_that_mean_another_step_now_are_told_although_they_stayed() -> None:
    book = change(BOOK, include_results=(1,))
    assert tell(make_flow(EXTRACT, CHECK, book), make_flow(CHECK, EXTRACT, book))[-1] == (
        "Step 3 “Book”: `include_results` still lists 1, which is now 1 “Check”, and was 1 “Extract”"
    )


# Audits


def audited(*audits: AuditSpec, step: StepSpec = EXTRACT) -> StepSpec:
    return change(step, audits=audits)


def test_an_audit_whose_rule_changed_shows_both() -> None:
    rule = AuditSpec(name="Adds up", rule="output.total > 0", fail_at=Severity.HIGH)
    assert tell(make_flow(audited(ADDS_UP)), make_flow(audited(rule))) == [
        "Step 1 “Extract”",
        "Audit “Adds up”: rule output.total == output.net + output.tax → output.total > 0; fail_at its severity → high",
    ]


def test_audits_come_go_and_move() -> None:
    old = make_flow(audited(ADDS_UP, HAS_DATE, AuditSpec(name="Short", rule="size(output.text) > 99"), POSITIVE))
    new = make_flow(audited(POSITIVE, ADDS_UP, HAS_DATE, AuditSpec(name="Fresh", rule="output.lines != []")))
    assert tell(old, new) == [
        "Step 1 “Extract”",
        "Audit “Short” removed: rule size(output.text) > 99",
        "Audit “Positive”: moved from place 4 to 1",
        "Audit “Fresh” added: rule output.lines != []",
    ]


def test_an_audit_with_another_name_is_renamed() -> None:
    renamed = ADDS_UP.model_copy(update={"name": "Sums"})
    assert tell(make_flow(audited(ADDS_UP)), make_flow(audited(renamed)))[1:] == [
        "Audit “Sums”: name “Adds up” → “Sums”"
    ]


def test_an_audit_that_went_to_another_step_is_neither_added_nor_removed() -> None:
    old = make_flow(audited(ADDS_UP, HAS_DATE), CHECK)
    new = make_flow(audited(HAS_DATE), audited(ADDS_UP, step=CHECK))
    assert tell(old, new) == ["Step 2 “Check”", "Audit “Adds up”: moved here from step “Extract”"]


# All in one line


@pytest.mark.parametrize(
    ("new", "summary"),
    [
        (make_flow(EXTRACT, CHECK), "No difference"),
        (make_flow(change(EXTRACT, max_retries=1), CHECK), "“Extract”: max_retries 3 → 1"),
        (make_flow(EXTRACT, CHECK, title="Invoices"), "Title none → “Invoices”"),
        (make_flow(EXTRACT, change(CHECK, output_schema=INVOICE)), "“Check”: output_schema changed"),
        (make_flow(CHECK, EXTRACT), "Step “Extract” moved"),
        (make_flow(EXTRACT, change(CHECK, name="Reconcile")), "Step “Check” renamed to “Reconcile”"),
        (make_flow(EXTRACT, CHECK, BOOK), "Step “Book” added"),
        (make_flow(audited(ADDS_UP), audited(ADDS_UP, step=CHECK)), "Audit “Adds up” added, audit “Adds up” added"),
        (
            make_flow(change(EXTRACT, max_retries=1, audits=(ADDS_UP, HAS_DATE)), change(CHECK, max_retries=1), BOOK),
            "2 steps changed, 1 added; 2 audits added",
        ),
    ],
)
def test_all_changes_fit_in_a_line(new: FlowSpec, summary: str) -> None:
    assert summarise_changes(compare_specs(make_flow(EXTRACT, CHECK), new)) == summary


# Whatever the two are


@given(flows, flows)
def test_there_are_changes_exactly_if_the_definitions_differ(old: FlowSpec, new: FlowSpec) -> None:
    changes = compare_specs(old, new)
    assert bool(changes) == (old.digest != new.digest)
    assert (summarise_changes(changes) == "No difference") == (old.digest == new.digest)
    for one in list_all(changes):
        assert one.title
        for field in one.fields:
            assert field.old_words != field.new_words or field.notes or field.difference.blocks


EDITS = {
    "max_retries": 7, "model": "other", "temperature": 0.25, "stop_on_failure": False, "time_limit": 7,
    "system_message": "other\nlines", "compute": "other", "output_schema": closed(other={"type": "null"}),
    "tool_name": "other", "description": "other", "include_results": (77,), "output_type": "other",
}  # fmt: skip


@given(flows, st.data())
def test_an_edit_is_told_by_the_name_of_its_field(old: FlowSpec, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(old.steps) - 1))
    field = data.draw(st.sampled_from(sorted(EDITS)))
    steps = list(old.steps)
    steps[place] = change(steps[place], **{field: EDITS[field]})
    new = FlowSpec.from_document({**old.to_document(), "steps": [step.model_dump(mode="json") for step in steps]})
    told = [(one.place, field.field) for one in list_all(compare_specs(old, new)) for field in one.fields if one.place]
    if old.digest != new.digest and len({step.name for step in old.steps}) == len(old.steps):
        assert told == [(place + 1, field)]


def test_a_flow_as_large_as_they_come_is_compared_without_every_pair_of_texts() -> None:
    def build(word: str) -> FlowSpec:
        audits = [AuditSpec(name=f"{word} {n}", rule=f"output.{word} == {n} && " * 30 + "true") for n in range(50)]
        schema = closed(**{f"{word}_{n}": {"type": "string", "description": word * 9} for n in range(400)})
        return make_flow(*[make_step(n, audits=tuple(audits), output_schema=schema) for n in range(50)])

    changes = compare_specs(build("net"), build("tax"))
    assert summarise_changes(changes) == "50 steps changed; 2500 audits added, 2500 removed"
    fields = [field for one in list_all(changes) for field in one.fields]
    shown = [field for field in fields if field.has_lines and not field.is_left_out]
    assert 0 < sum(len(str(field.old)) + len(str(field.new)) for field in shown) < 400_000
