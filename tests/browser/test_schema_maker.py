"""Making schemas in the flow editor without JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Locator, Page, expect

from flows.engine.spec import FlowSpec
from flows.portability import load_flow
from tests.browser.widths import assert_fits
from tests.engine.builders import INVOICE, closed, make_step

EDITOR = "admin:flows_flow_change"


@pytest.fixture(autouse=True)
def _database(transactional_db: None) -> None:
    pass


@pytest.fixture
def editor(admin_page: Page) -> Page:
    """The editor of a flow whose one step gives an invoice."""
    spec = FlowSpec(name="example", steps=(make_step(1, output_schema=INVOICE), make_step(2, compute="{}")))
    flow = load_flow(document=spec.to_document()).flow
    admin_page.goto(reverse(EDITOR, args=[flow.pk]))
    return admin_page


def output_field(page: Page) -> Locator:
    return page.locator("#id_steps-0-output_schema")


def open_maker(page: Page, card: str = "#steps-0") -> Locator:
    page.locator(card).get_by_role("button", name="Make a schema…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def choose_tab(dialog: Locator, name: str) -> None:
    dialog.get_by_role("tab", name=name).click()


def use(dialog: Locator, name: str = "Use this schema") -> None:
    """Wait for the server's schema, and use it."""
    button = dialog.get_by_role("button", name=name)
    expect(button).to_be_enabled()
    button.click()
    expect(dialog).to_be_hidden()


def schema_of(field: Locator) -> Any:
    return json.loads(field.input_value())


def count_inputs(page: Page, field: str) -> None:
    """Count on the page how often scripts are told that a field changed."""
    page.evaluate(
        """name => {
            window.inputs = 0;
            document.getElementsByName(name)[0].addEventListener("input", () => { window.inputs += 1; });
        }""",
        field,
    )


def test_an_example_becomes_the_schema_and_undo_brings_the_old_one_back(editor: Page) -> None:
    before = output_field(editor).input_value()
    count_inputs(editor, "steps-0-output_schema")
    dialog = open_maker(editor)
    choose_tab(dialog, "From an example")
    dialog.get_by_label("A JSON object as it should look").fill('{"mood": "calm", "tags": []}')
    expect(dialog.get_by_role("status")).to_contain_text("tags is an empty list")
    use(dialog)
    expected = closed(mood={"type": "string"}, tags={"type": "array", "items": {"type": "string"}})
    assert schema_of(output_field(editor)) == expected
    assert editor.evaluate("window.inputs") == 1, "feedback is told of it"

    editor.locator("#steps-0").get_by_role("button", name="Undo replacing the schema").click()
    assert output_field(editor).input_value() == before
    expect(editor.get_by_role("button", name="Undo replacing the schema")).to_have_count(0)


def test_undo_goes_away_once_the_schema_is_edited_by_hand(editor: Page) -> None:
    dialog = open_maker(editor)
    choose_tab(dialog, "From an example")
    dialog.get_by_label("A JSON object as it should look").fill('{"a": 1}')
    use(dialog)
    undo = editor.get_by_role("button", name="Undo replacing the schema")
    expect(undo).to_be_visible()
    output_field(editor).press("End")
    output_field(editor).press_sequentially(" ")
    expect(undo).to_have_count(0)


def test_a_broken_example_says_where_and_can_not_be_used(editor: Page) -> None:
    dialog = open_maker(editor)
    choose_tab(dialog, "From an example")
    dialog.get_by_label("A JSON object as it should look").fill('{\n"mood": calm}')
    expect(dialog.get_by_role("status")).to_contain_text("Line 2, column 9")
    expect(dialog.get_by_role("button", name="Use this schema")).to_be_disabled()


def test_a_python_type_takes_the_place_of_the_schema(editor: Page) -> None:
    dialog = open_maker(editor)
    choose_tab(dialog, "From a Python type")
    dialog.get_by_role("radio", name="colour_suite").check()
    expect(dialog.get_by_label("Schema", exact=True).last).to_contain_text("on_primary")
    use(dialog, "Use the type")
    output_type = editor.locator("#id_steps-0-output_type")
    expect(output_type).to_be_visible()
    assert (output_type.input_value(), output_field(editor).input_value()) == ("colour_suite", "")

    dialog = open_maker(editor)
    expect(dialog.get_by_text("The step has the Python type “colour_suite”. A schema takes its place.")).to_be_visible()
    use(dialog, "Copy its schema")
    assert output_type.input_value() == ""
    assert "on_primary" in schema_of(output_field(editor))["properties"]


def test_the_present_schema_is_shown_as_a_table(editor: Page) -> None:
    before = output_field(editor).input_value()
    dialog = open_maker(editor)
    rows = dialog.get_by_role("table").get_by_role("row")
    expect(rows).to_have_count(6)
    expect(rows.last).to_contain_text("lines[].amount")
    expect(dialog.get_by_role("button", name="Use this schema")).to_be_hidden()
    editor.keyboard.press("Escape")
    assert output_field(editor).input_value() == before


def test_the_input_keeps_its_example(editor: Page) -> None:
    dialog = open_maker(editor, ".field-input_schema")
    dialog.get_by_label("A JSON object as it should look").fill('{"topic": "tea", "year": 2026}')
    use(dialog)
    expected = closed(topic={"type": "string"}, year={"type": "integer"})
    assert schema_of(editor.locator("#id_input_schema")) == {**expected, "examples": [{"topic": "tea", "year": 2026}]}


def test_escape_closes_and_gives_the_focus_back(editor: Page) -> None:
    button = editor.locator("#steps-0").get_by_role("button", name="Make a schema…")
    button.press("Enter")
    dialog = editor.get_by_role("dialog", name="Make a schema for the output of “Step 1”")
    expect(dialog.get_by_role("tab", name="As a table")).to_be_focused()
    editor.keyboard.press("ArrowRight")
    expect(dialog.get_by_role("tab", name="From an example")).to_be_focused()
    expect(dialog.get_by_label("A JSON object as it should look")).to_be_visible()
    editor.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()


def test_what_was_typed_is_there_again_after_a_slip(editor: Page) -> None:
    dialog = open_maker(editor)
    choose_tab(dialog, "From an example")
    dialog.get_by_label("A JSON object as it should look").fill('{"mood": "calm"}')
    editor.keyboard.press("Escape")
    open_maker(editor)
    expect(dialog.get_by_label("A JSON object as it should look")).to_have_value('{"mood": "calm"}')


def test_a_new_step_has_the_button_too(editor: Page) -> None:
    editor.get_by_role("button", name="Add a step").last.click()
    dialog = open_maker(editor, "#steps-2")
    dialog.get_by_label("A JSON object as it should look").fill('{"a": 1}')
    use(dialog)
    assert schema_of(editor.locator("#id_steps-2-output_schema")) == closed(a={"type": "integer"})


def test_a_server_that_does_not_answer_is_told(editor: Page) -> None:
    dialog = open_maker(editor)
    choose_tab(dialog, "From an example")
    refusal = {"status": 200, "content_type": "text/html", "body": "<p>Something went wrong.</p>"}
    editor.route("**/flows/flow/schema/", lambda route: route.fulfill(**refusal))
    dialog.get_by_label("A JSON object as it should look").fill('{"a": 1}')
    expect(dialog.get_by_role("status")).to_contain_text("The server did not make a schema. Reload the page")


def test_the_dialog_fits_a_phone(editor: Page) -> None:
    editor.set_viewport_size({"width": 390, "height": 844})
    dialog = open_maker(editor)
    expect(dialog.get_by_role("row")).to_have_count(6)
    assert_fits(editor)
    wide = dialog.evaluate("part => part.querySelector('.maker-body').scrollWidth > part.clientWidth")
    assert not wide
