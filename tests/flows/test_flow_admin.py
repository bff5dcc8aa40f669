"""The flow editor saves what can run and nothing else, and loses nothing that was typed."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from tests.engine.builders import TEXT_SCHEMA, make_step
from tests.flows.editor_page import EditorPage, fill_new_flow, open_flow

pytestmark = pytest.mark.django_db


# Saving


def test_a_new_flow_is_saved_with_steps_and_audits_and_its_first_version_is_live(editor: Client) -> None:
    messages = fill_new_flow(editor).save()
    assert messages == ["Saved as version 1, which is live: new runs use it."]
    flow = Flow.objects.get()
    assert flow.live_version is not None
    spec = flow.live_version.flow_spec
    assert [step.name for step in spec.steps] == ["Extract"]
    assert spec.steps[0].audits[0].rule == "output.text != ''"
    created_by = flow.live_version.created_by
    assert created_by is not None
    assert created_by.get_username() == "ada"


def test_saving_again_without_a_change_makes_no_version(editor: Client) -> None:
    page = fill_new_flow(editor)
    page.save()
    assert page.save() == ["Nothing changed since version 1, which is live: new runs use it."]
    assert FlowVersion.objects.count() == 1


def test_a_flow_that_came_from_a_file_is_not_changed_by_saving_it(editor: Client) -> None:
    message = "Read it.\n\nThen write\n  a summary."
    audits = [{"name": "Lines", "rule": "output.text != ''\n  && true"}]
    page = open_flow(editor, make_step(system_message=message, audits=audits), description="In\ntwo lines.")
    # Browsers send line ends as CR LF.
    page.fields = {name: value.replace("\n", "\r\n") for name, value in page.fields.items()}
    assert page.save() == ["Nothing changed since version 1, which is live: new runs use it."]


def test_a_change_makes_the_next_version_and_the_live_one_stays(editor: Client) -> None:
    page = open_flow(editor)
    page.fill("steps-0-", max_retries=1)
    (message,) = page.save()
    assert message.startswith("Saved as version 2. New runs still use version 1.")
    assert "Make version 2 live" in message
    flow = Flow.objects.get()
    assert [version.number for version in flow.versions.all()] == [2, 1]
    assert flow.live_version is not None
    assert flow.live_version.number == 1


def test_save_and_make_live_does_both(editor: Client) -> None:
    page = open_flow(editor)
    page.fill("steps-0-", max_retries=1)
    assert page.save("_make_live") == ["Saved as version 2, which is live: new runs use it."]


def test_save_and_make_live_makes_an_unchanged_latest_version_live(editor: Client) -> None:
    page = open_flow(editor)
    page.fill("steps-0-", max_retries=1)
    page.save()
    assert page.save("_make_live") == ["Nothing changed since version 2, which is live: new runs use it."]


def test_the_order_of_properties_is_a_change_and_is_kept(editor: Client) -> None:
    properties = {"reasoning": {"type": "string"}, "answer": {"type": "string"}}
    schema = {**TEXT_SCHEMA, "properties": properties, "required": ["reasoning", "answer"]}
    page = open_flow(editor, make_step(output_schema=schema))
    turned = {**schema, "properties": dict(reversed(properties.items()))}
    page.fill("steps-0-", output_schema=turned)
    assert page.save()[0].startswith("Saved as version 2")
    assert list(StepDefinition.objects.get().output_schema["properties"]) == ["answer", "reasoning"]
    stored = FlowVersion.objects.first()
    assert stored is not None
    assert list(stored.flow_spec.steps[0].output_schema["properties"]) == ["answer", "reasoning"]  # type: ignore[index]  # it has one


def test_doubts_are_told_after_saving(editor: Client) -> None:
    page = fill_new_flow(editor)
    page.fill("steps-0-", include_results="0")
    saved, *doubts = page.save()
    assert saved.startswith("Saved as version 1")
    assert len(doubts) == 1
    assert "includes the results of step 0" in doubts[0]


# Order, removal, moving


def test_steps_are_stored_in_the_posted_order(editor: Client) -> None:
    page = open_flow(editor, make_step(1), make_step(2), make_step(3))
    page.fill("steps-2-", position=0)
    page.fill("steps-0-", position=1)
    page.fill("steps-1-", position=2)
    page.save()
    assert [step.name for step in StepDefinition.objects.all()] == ["Step 3", "Step 1", "Step 2"]
    latest = FlowVersion.objects.first()
    assert latest is not None
    assert [step.name for step in latest.flow_spec.steps] == ["Step 3", "Step 1", "Step 2"]


def test_an_audit_has_a_message_or_a_template_and_one_that_can_be_read(editor: Client) -> None:
    page = fill_new_flow(editor)
    page.fill("steps-0-audits-0-", message="'Empty.'", message_template="Clause {item.number")
    errors = page.save_in_vain()
    assert list(errors) == ["steps-0-audits-0-message_template"]
    assert "Line 1, column 8: " in " ".join(errors["steps-0-audits-0-message_template"])
    page.fill("steps-0-audits-0-", message="", message_template="“{output.txet}” is empty.", fail_at="")
    _, *warnings = page.save()
    assert len(warnings) == 1
    assert "Did you mean “text”?" in warnings[0]
    (audit,) = FlowVersion.objects.get().flow_spec.step(1).audits
    assert (audit.message_template, audit.threshold) == ("“{output.txet}” is empty.", audit.severity)


def test_problems_are_shown_at_the_step_that_has_them_also_after_reordering(editor: Client) -> None:
    page = open_flow(editor, make_step(1), make_step(2, include_results=[1]))
    page.fill("steps-1-", position=0)
    page.fill("steps-0-", position=1)
    errors = page.save_in_vain()
    assert list(errors) == ["steps-1-include_results"]
    assert "Step 1 can't include the results of step 1" in errors["steps-1-include_results"][0]


def test_a_deleted_step_goes_with_its_audits_and_what_is_wrong_with_it_does_not_matter(editor: Client) -> None:
    page = open_flow(editor, make_step(1, audits=[{"name": "One", "rule": "true"}]), make_step(2))
    page.fill("steps-0-", DELETE="on", name="", output_schema="{")
    page.fill("steps-0-audits-0-", rule="")
    page.add_audit("steps-0-", name="")
    page.save()
    assert [step.name for step in StepDefinition.objects.all()] == ["Step 2"]
    assert not AuditRule.objects.exists()


def test_an_audit_can_be_moved_to_another_step_even_when_its_own_is_deleted(editor: Client) -> None:
    page = open_flow(editor, make_step(1, audits=[{"name": "Wanderer", "rule": "true"}]), make_step(2))
    audit = AuditRule.objects.get()
    # What dragging it over does to the page.
    moved = {
        name.replace("steps-0-audits-0-", "steps-1-audits-0-"): page.fields.pop(name)
        for name in list(page.fields)
        if name.startswith("steps-0-audits-0-")
    }
    page.fields.update(moved)
    page.fields["steps-1-audits-0-step"] = page.fields["steps-1-id"]
    page.fields.update({"steps-0-audits-TOTAL_FORMS": "0", "steps-0-audits-INITIAL_FORMS": "0"})
    page.fields.update({"steps-1-audits-TOTAL_FORMS": "1", "steps-1-audits-INITIAL_FORMS": "1"})
    page.fill("steps-0-", DELETE="on")
    page.save()
    audit.refresh_from_db()
    assert audit.step.name == "Step 2"


# What can't run is not saved


def test_all_mistakes_of_all_forms_are_shown_at_once_in_place_and_nothing_is_stored(editor: Client) -> None:
    page = fill_new_flow(editor)
    page.fill(input_schema='{"type": "object",\n "properties": {,}}')
    page.fill("steps-0-", tool_name="extract invoice", max_retries=-1)
    page.fill("steps-0-audits-0-", rule="outputs.text != ''")
    schema = {**TEXT_SCHEMA, "required": []}
    page.add_step(name="Summarise", tool_name="summarise", output_schema=schema, include_results="1, 5")
    typed = dict(page.fields)
    errors = page.save_in_vain()
    assert set(errors) == {
        "input_schema",
        "steps-0-tool_name",
        "steps-0-max_retries",
        "steps-0-audits-0-rule",
        "steps-1-output_schema",
        "steps-1-include_results",
    }
    assert errors["input_schema"][0].startswith("Line 2, column ")
    assert "Unknown variable “outputs”" in errors["steps-0-audits-0-rule"][0]
    assert errors["steps-1-output_schema"][0].startswith("/required: ")
    assert "Not saved: 6 things must be mended first." in page.text
    assert "Step 1 “Extract”, audit 1 “Not empty”, rule" in page.text
    assert page.fields == typed
    assert not Flow.objects.exists()
    assert not StepDefinition.objects.exists()


def test_a_stored_flow_stays_as_it_was_when_saving_fails(editor: Client) -> None:
    page = open_flow(editor)
    page.fill(title="Changed")
    page.fill("steps-0-", name="Changed", compute="nonsense(")
    assert list(page.save_in_vain()) == ["steps-0-compute"]
    assert Flow.objects.get().title != "Changed"
    assert StepDefinition.objects.get().name == "Step 1"
    assert FlowVersion.objects.count() == 1


def test_a_flow_without_steps_gets_one_clear_error(editor: Client) -> None:
    page = EditorPage(editor)
    page.fill(title="Empty", name="empty")
    errors = page.save_in_vain()
    assert errors == {}
    assert "A flow needs at least one step." in page.text
    assert not Flow.objects.exists()


def test_a_step_that_was_added_and_left_empty_is_not_passed_over(editor: Client) -> None:
    page = EditorPage(editor)
    page.fill(title="Empty", name="empty")
    page.add_step(tool_name="")
    assert page.save_in_vain()["steps-0-name"] == ["This field is required."]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", "", "required"),
        ("tool_name", "", "needs a tool name"),
        ("tool_name", "tool_1", "Two steps have the tool name “tool_1”"),
        ("name", "Step 1", "Two steps are called “Step 1”"),
        ("output_schema", "", "needs an output schema"),
        ("output_schema", "[1]", "A JSON object is expected, got a list."),
        ("output_schema", '{"type": "object" "properties": {}}', "Line 1, column 19: a comma is missing"),
        ("output_schema", "{'type': 'object'}", "Line 1, column 2: a key in double quotes"),
        ("output_schema", '{"type": NaN}', "NaN is not a JSON number"),
        ("output_schema", '{"title": "a\\u0000b"}', "/title: Characters that can't be stored"),
        ("output_schema", '{"a":' * 200 + "1" + "}" * 200, "nested deeper than"),
        ("output_type", "no_such_type", "No output type is registered as “no_such_type”"),
        ("include_results", "2", "Step 2 can't include the results of step 2"),
        ("include_results", "-1", "Step 2 can't include the results of step -1"),
        ("include_results", "1, 1", "Step 1 is included twice"),
        ("include_results", "true", "“true” is no number of a step"),
        ("include_results", "[true]", "true is a boolean and no number of a step"),
        ("include_results", '["1"]', '"1" is text and no number of a step'),
        ("include_results", "[1.0]", "1.0 is a number and no number of a step"),
        ("include_results", "[1", "The list is not closed"),
        ("include_results", "1.5", "“1.5” is no number of a step"),
        ("max_retries", "101", "less than or equal to 100"),
        ("temperature", "nan", "Enter a number"),
        ("temperature", "3", "less than or equal to 2"),
        ("max_tokens", "0", "greater than or equal to 1"),
        ("input_expression", "steps[0].output.", "Line 1, column"),
        ("pass_expression", "python:no_such_function", "no_such_function"),
        ("compute", "x" * 4001, "at most 4000 characters"),
    ],
)
def test_a_step_that_cannot_run_is_refused_at_its_field(editor: Client, field: str, value: str, expected: str) -> None:
    page = open_flow(editor, make_step(1), make_step(2))
    page.fill("steps-1-", **{field: value})
    errors = page.save_in_vain()
    assert expected in " ".join(errors[f"steps-1-{field}"])
    assert page.fields[f"steps-1-{field}"] == value
    assert FlowVersion.objects.count() == 1


def test_a_schema_beside_a_type_that_it_contradicts_is_refused(editor: Client) -> None:
    page = open_flow(editor)
    page.fill("steps-0-", output_type="colour_suite")
    errors = page.save_in_vain()
    assert "made from the type" in " ".join(errors["steps-0-output_schema"])
    page.fill("steps-0-", output_schema="")
    assert page.save()[0].startswith("Saved as version 2.")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", "Invoice Extraction", "Use lower-case letters and digits"),
        ("name", "taken", "There is a flow of this name already"),
        ("input_schema", '{"type": "array"}', "object"),
        ("input_schema", '{"type": "objekt"}', "/type: "),
    ],
)
def test_a_flow_that_cannot_run_is_refused_at_its_field(editor: Client, field: str, value: str, expected: str) -> None:
    Flow.objects.create(name="taken", title="Taken")
    page = fill_new_flow(editor)
    page.fill(**{field: value})
    errors = page.save_in_vain()
    assert list(errors) == [field]
    assert expected in errors[field][0]


@pytest.mark.parametrize(
    ("typed", "stored"), [("", []), ("1", [1]), ("0, 1", [0, 1]), ("0 1", [0, 1]), ("[0, 1]", [0, 1]), (" 1 , ", [1])]
)
def test_included_results_are_typed_as_numbers(editor: Client, typed: str, stored: list[int]) -> None:
    page = open_flow(editor, make_step(1), make_step(2))
    page.fill("steps-1-", include_results=typed)
    page.save()
    assert StepDefinition.objects.all()[1].include_results == stored
    assert page.fields["steps-1-include_results"] == ", ".join(map(str, stored))


# Reading


def test_a_page_of_many_steps_takes_few_queries_to_open(editor: Client, django_assert_max_num_queries: Any) -> None:
    audits = [{"name": f"Audit {number}", "rule": "true"} for number in range(5)]
    page = open_flow(editor, *(make_step(number, audits=audits) for number in range(1, 11)))
    with django_assert_max_num_queries(10):
        editor.get(page.url)


def test_the_page_holds_no_inline_script_style_or_handler(editor: Client) -> None:
    from tests.site.test_content_security import InlineFinder

    page = open_flow(editor)
    for url in (page.url, "/admin/flows/flow/add/", "/admin/flows/flow/", "/admin/flows/flowversion/"):
        content = editor.get(url).content.decode()
        assert InlineFinder(content).found == []
        assert "javascript:" not in content
