"""The flow editor saves what can run and nothing else, says what it did, and loses nothing that was typed."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from tests.engine.builders import TEXT_SCHEMA, make_step
from tests.flows.editor_page import EditorPage, fill_new_flow, open_flow
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

AUDITS = [{"name": "One", "rule": "true"}]
UNCHANGED = ["Nothing changed since version 1, which is live: new runs use it."]


def read_log() -> list[str]:
    """What the log of the admin says, from the first entry on."""
    return list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))


def read_numbers() -> list[int]:
    return [version.number for version in FlowVersion.objects.order_by("number")]


class TestSaving:
    def test_a_new_flow_is_saved_with_steps_audits_and_note_and_its_first_version_is_live(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.fill(note="  A start.  ")
        assert page.save() == ["Saved as version 1, which is live: new runs use it."]
        assert (page.fields["note"], "A start." in page.words) == ("", True)
        version = Flow.objects.get().live_version
        assert version is not None
        assert (version.note, str(version.created_by), read_log()) == ("A start.", "ada", ["Saved as version 1."])
        (step,) = version.flow_spec.steps
        assert (step.name, step.audits[0].rule) == ("Extract", "output.text != ''")
        User.objects.all().delete()
        version.refresh_from_db()
        assert (version.note, version.created_by) == ("A start.", None)

    def test_a_flow_that_came_from_a_file_is_not_changed_by_saving_it(self, editor: Client) -> None:
        each = {"name": "Each", "for_each": "output.text.split(' ')", "rule": "item != ''\n  && index < 9"}
        audits = [{"name": "Lines", "rule": "output.text != ''\n  && true"}, each]
        step = make_step(
            system_message="Read {input.topic}.\n\nThen write\n  a summary.", description="A\nB", audits=audits
        )
        page = open_flow(editor, step, description="In\ntwo lines.")
        before = Flow.objects.values().get()
        # Browsers send line ends as CR LF.
        page.fields = {name: value.replace("\n", "\r\n") for name, value in page.fields.items()}
        assert (page.save(), read_log()) == (UNCHANGED, [])
        assert Flow.objects.values().get() == before

    def test_a_change_makes_the_next_version_which_is_live_if_one_says_so(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill("steps-0-", max_retries=1)
        (message,) = page.save()
        assert message.startswith("Saved as version 2. New runs still use version 1.")
        assert "Make version 2 live" in message
        assert page.save("_make_live") == ["Nothing changed since version 2, which is live: new runs use it."]
        page.fill("steps-0-", max_retries=2)
        assert page.save("_make_live") == ["Saved as version 3, which is live: new runs use it."]
        assert read_log() == ["Saved as version 2.", "Made version 2 live.", "Saved as version 3. Made version 3 live."]

    def test_a_page_posted_twice_by_a_double_click_is_saved_once(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill("steps-0-", max_retries=1)
        assert [page.post().status_code, page.post().status_code] == [302, 302]
        assert read_numbers() == [1, 2]

    def test_the_order_of_properties_is_a_change_and_is_kept(self, editor: Client) -> None:
        properties = {"reasoning": {"type": "string"}, "answer": {"type": "string"}}
        schema = {**TEXT_SCHEMA, "properties": properties, "required": ["reasoning", "answer"]}
        page = open_flow(editor, make_step(output_schema=schema))
        page.fill("steps-0-", output_schema={**schema, "properties": dict(reversed(properties.items()))})
        assert page.save()[0].startswith("Saved as version 2")
        assert list(StepDefinition.objects.get().output_schema["properties"]) == ["answer", "reasoning"]

    def test_doubts_are_told_after_saving_at_their_place(self, editor: Client) -> None:
        rule, template = "output.text == steps[1].output.text", "“{output.txet}” is empty."
        audits = [{"name": "Same", "rule": rule, "message_template": template}]
        page = open_flow(editor, make_step(1), make_step(2, name="Menu", audits=audits, include_results=[1]))
        page.fill("steps-0-", DELETE="on")
        page.fill("steps-1-", include_results="0", input_expression="{'a': previous.dish}")
        saved, *doubts = page.save()
        assert saved.startswith("Saved as version 2")
        for words in ("includes the results of step 0", "rule: steps[1] can’t be read here", "“text”?"):
            assert any(words in doubt for doubt in doubts), words

    def test_a_note_that_came_to_nothing_is_said_and_a_long_one_refused(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill(note="<b>Nothing</b> much.", max_runs_in_flight=5)
        _, warning = page.save()
        assert "<b>Nothing</b> much.”" in warning
        page.fill("steps-0-", max_retries=1)
        page.fill(note="x" * 501)
        assert "at most 500 characters" in page.save_in_vain()["note"][0]
        page.fill(note="<script>alert(1)</script>")
        page.save()
        assert "<script>alert(1)</script>" in page.words
        assert "<script>alert" not in editor.get(page.url).content.decode()

    def test_limits_are_logged_with_old_and_new_values(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill(max_runs_in_flight=5, total_cost_budget="25.5", budget_period="day")
        page.save()
        page.fill(max_runs_in_flight="")
        page.fill("steps-0-", max_retries=1)
        page.save()
        limits = (
            "Runs in flight none → 5, Budget of all runs (USD) none → 25.50, Budget of all runs, for each Month → Day."
        )
        assert read_log() == [
            f"Changed limits: {limits}",
            "Saved as version 2. Changed limits: Runs in flight 5 → none.",
        ]


class TestParts:
    """Order, removal and moving of steps and audits."""

    def test_steps_are_stored_in_the_posted_order_and_problems_shown_at_the_step_that_has_them(
        self, editor: Client
    ) -> None:
        page = open_flow(editor, make_step(1), make_step(2, include_results=[1]), make_step(3))
        for step, position in enumerate((1, 2, 0)):
            page.fill(f"steps-{step}-", position=position)
        page.fill("steps-1-", include_results="2")
        page.save()
        names = ["Step 3", "Step 1", "Step 2"]
        assert [step.name for step in StepDefinition.objects.all()] == names
        assert [step.name for step in FlowVersion.objects.latest("number").flow_spec.steps] == names
        page.fill("steps-2-", position=0)
        page.fill("steps-0-", position=2)
        assert list(page.save_in_vain()) == ["steps-2-include_results"]

    def test_a_deleted_step_goes_with_its_audits_and_what_is_wrong_with_it_does_not_matter(
        self, editor: Client
    ) -> None:
        page = open_flow(editor, make_step(1, audits=AUDITS), make_step(2))
        page.fill("steps-0-", DELETE="on", name="", output_schema="{")
        page.add_audit("steps-0-", name="")
        new = page.add_step(name="", output_schema="{")
        page.fields[f"{new}DELETE"] = "on"
        page.fill("steps-1-", max_retries=-1)
        assert "steps-1-max_retries" in page.save_in_vain()
        assert page.fields[f"{new}DELETE"] == page.fields["steps-0-DELETE"] == "on"
        page.fill("steps-1-", max_retries=1)
        page.save()
        assert [step.name for step in StepDefinition.objects.all()] == ["Step 2"]
        assert not AuditRule.objects.exists()

    def test_an_audit_can_be_moved_to_another_step_even_when_its_own_is_deleted(self, editor: Client) -> None:
        page = open_flow(editor, make_step(1, audits=AUDITS), make_step(2))
        audit = AuditRule.objects.get()
        # What dragging it over does to the page.
        for name in [name for name in page.fields if name.startswith("steps-0-audits-0-")]:
            page.fields[name.replace("steps-0-", "steps-1-", 1)] = page.fields.pop(name)
        page.fields["steps-1-audits-0-step"] = page.fields["steps-1-id"]
        for step, count in ((0, "0"), (1, "1")):
            page.fields |= {f"steps-{step}-audits-{kind}_FORMS": count for kind in ("TOTAL", "INITIAL")}
        page.fill("steps-0-", DELETE="on")
        page.save()
        audit.refresh_from_db()
        assert audit.step.name == "Step 2"


class TestMistakes:
    def test_all_of_all_forms_are_shown_at_once_in_place_and_nothing_is_stored(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.fill(input_schema='{"type": "object",\n "properties": {,}}', note="Shorter.")
        page.fill("steps-0-", tool_name="extract invoice", max_retries=-1)
        page.fill("steps-0-audits-0-", rule="outputs.text != ''", message="''", message_template="{item.number")
        page.add_step(name="Summarise", output_schema={**TEXT_SCHEMA, "required": []}, include_results="1, 5")
        typed = dict(page.fields)
        errors = page.save_in_vain()
        found = {field: " ".join(messages) for field, messages in errors.items()}
        told = {
            "input_schema": "Line 2, column ",
            "steps-0-tool_name": "",
            "steps-0-max_retries": "greater than or equal to 0",
            "steps-0-audits-0-rule": "Unknown variable “outputs”",
            "steps-0-audits-0-message_template": "Line 1, column 1: ",
            "steps-1-output_schema": "/required: ",
            "steps-1-include_results": "",
        }
        assert found.keys() == told.keys()
        assert {field for field, words in told.items() if words not in found[field]} == set()
        assert "Step 1 “Extract”, audit 1 “Not empty”, rule" in page.text
        assert page.fields == typed
        assert not Flow.objects.exists() and not StepDefinition.objects.exists()

    @pytest.mark.parametrize(
        ("field", "value", "expected"),
        [
            ("name", "Step 1", "Two steps are called “Step 1”"),
            ("name", "a\0b", "Null characters are not allowed."),
            ("output_schema", '{"type": "object" "properties": {}}', "Line 1, column 19: a comma is missing"),
            ("output_schema", '{"title": "a\\u0000b"}', "/title: Characters that can't be stored"),
            ("output_schema", '{"description": "' + "x" * 66_000 + '"}', "64 KB"),
            ("output_type", "no_such_type", "No output type is registered as “no_such_type”"),
            ("include_results", "[true]", "true is a boolean"),
            ("include_results", "[1", "The list is not closed"),
            ("max_retries", "101", "less than or equal to 100"),
            ("compute", "x" * 4001, "at most 4000 characters"),
        ],
    )
    def test_a_step_that_cannot_run_is_refused_at_its_field(
        self, editor: Client, field: str, value: str, expected: str
    ) -> None:
        page = open_flow(editor, make_step(1), make_step(2))
        page.fill("steps-1-", **{field: value})
        before = list(StepDefinition.objects.values())
        errors = page.save_in_vain()
        assert expected in " ".join(errors[f"steps-1-{field}"])
        assert (list(StepDefinition.objects.values()), FlowVersion.objects.count()) == (before, 1)

    @pytest.mark.parametrize(
        ("field", "value", "expected"),
        [
            ("name", "Invoice Extraction", "Use lower-case letters and digits"),
            ("name", "taken", "already exists"),
            ("input_schema", '{"type": "array"}', "object"),
        ],
    )
    def test_a_flow_that_cannot_run_is_refused_at_its_field(
        self, editor: Client, field: str, value: str, expected: str
    ) -> None:
        Flow.objects.create(name="taken", title="Taken")
        page = fill_new_flow(editor)
        page.fill(**{field: value})
        errors = page.save_in_vain()
        assert (list(errors), expected in errors[field][0]) == ([field], True)

    def test_a_flow_needs_a_step_and_one_that_was_added_and_left_empty_is_not_passed_over(self, editor: Client) -> None:
        page = EditorPage(editor)
        page.fill(title="Empty", name="empty")
        assert page.save_in_vain() == {}
        assert "A flow needs at least one step." in page.text
        page.add_step(tool_name="")
        assert page.save_in_vain()["steps-0-name"] == ["This field is required."]

    def test_a_schema_beside_a_type_that_it_contradicts_is_refused(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill("steps-0-", output_type="colour_suite")
        assert "made from the type" in " ".join(page.save_in_vain()["steps-0-output_schema"])
        page.fill("steps-0-", output_schema="")
        assert page.save()[0].startswith("Saved as version 2.")


@pytest.mark.parametrize(("typed", "stored"), [("", []), ("0, 1", [0, 1]), ("[0, 1]", [0, 1]), (" 1 , ", [1])])
def test_included_results_are_typed_as_numbers(editor: Client, typed: str, stored: list[int]) -> None:
    page = open_flow(editor, make_step(1), make_step(2))
    page.fill("steps-1-", include_results=typed)
    page.save()
    assert StepDefinition.objects.all()[1].include_results == stored
    assert page.fields["steps-1-include_results"] == ", ".join(map(str, stored))


def test_the_page_holds_no_inline_script_style_or_handler(editor: Client) -> None:
    page = open_flow(editor)
    for url in (page.url, "/admin/flows/flow/add/", "/admin/flows/flow/", "/admin/flows/flowversion/"):
        content = editor.get(url).content.decode()
        assert (InlineFinder(content).found, "javascript:" in content) == ([], False)


def test_markup_that_was_typed_is_shown_as_text(editor: Client) -> None:
    page = fill_new_flow(editor)
    evil = "<script>alert(1)</script>"
    page.fill(title=evil, description=f"</textarea>{evil}")
    page.fill("steps-0-", name=evil, compute=f"'</textarea>{evil}")
    page.fill("steps-0-audits-0-", name=evil, rule=evil)
    content = page.post().content.decode()
    assert (evil in content, "&lt;script&gt;" in content) == (False, True)


def test_rows_that_did_not_change_are_not_written_again(editor: Client, django_assert_max_num_queries: Any) -> None:
    audits = [{"name": f"Audit {number}", "rule": "true"} for number in range(10)]
    page = open_flow(editor, *(make_step(number, audits=audits) for number in range(1, 21)))
    page.fill("steps-7-", max_retries=0)
    with django_assert_max_num_queries(40):
        assert page.post().status_code == 302
    with django_assert_max_num_queries(10):
        editor.get(page.url)
    assert FlowVersion.objects.latest("number").flow_spec.steps[7].max_retries == 0
