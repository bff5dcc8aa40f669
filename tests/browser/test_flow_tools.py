"""Beside the flow editor: schemas are made, and steps tried."""

from __future__ import annotations

import json

import pytest
from django.core.cache import cache
from playwright.sync_api import Locator, Page, expect

from flows import providers
from flows.engine.spec import AuditSpec
from flows.models import Flow
from flows.portability import load_flow
from runs.models import Run
from tests.browser.editor import field, open_flow
from tests.browser.widths import assert_fits, resize
from tests.engine.builders import INVOICE, closed, make_attempt, make_flow, make_issue, make_step
from tests.runs.pages.history_builders import make_stored_run

EXAMPLE = "An example JSON object"
SHORT = AuditSpec(name="Short", rule="output.text.size() < 3", path="'/text'", message="'Too long.'")
STEPS = (make_step(1, system_message="Name a colour."), make_step(2, system_message="Explain it.", audits=(SHORT,)))


# Making a schema


@pytest.fixture
def editor(admin_page: Page) -> Page:
    """The editor of a flow whose one step gives an invoice."""
    open_flow(admin_page, make_step(1, output_schema=INVOICE), make_step(2, compute="{}"))
    return admin_page


def open_maker(page: Page, card: str = "#steps-0", tab: str | None = "From an example") -> Locator:
    page.locator(card).get_by_role("button", name="Make a schema…").press("Enter")
    dialog = page.get_by_role("dialog")
    if tab:
        dialog.get_by_role("tab", name=tab).click()
    return dialog


def use(dialog: Locator, name: str = "Use this schema") -> None:
    """Wait for the server's schema, and use it."""
    button = dialog.get_by_role("button", name=name)
    expect(button).to_be_enabled()
    button.click()
    expect(dialog).to_be_hidden()


def test_an_example_becomes_the_schema_and_undo_brings_the_old_one_back(editor: Page) -> None:
    owner = field(editor, "steps-0-output_schema")
    undo = editor.get_by_role("button", name="Undo replacing the schema")
    before = owner.input_value()
    dialog = open_maker(editor)
    for text, told in (('{\n"mood": calm}', "Line 2, column 9"), ('{"mood": "calm", "tags": []}', "tags is an empty")):
        dialog.get_by_label(EXAMPLE).fill(text)
        expect(dialog.get_by_role("status")).to_contain_text(told)
    editor.keyboard.press("Escape")
    expect(editor.locator("#steps-0").get_by_role("button", name="Make a schema…")).to_be_focused()
    # What was typed is there again after a slip.
    use(open_maker(editor))
    expected = closed(mood={"type": "string"}, tags={"type": "array", "items": {"type": "string"}})
    assert json.loads(owner.input_value()) == expected
    undo.click()
    assert owner.input_value() == before
    use(open_maker(editor))
    # Undo goes away once the schema is edited by hand.
    owner.press_sequentially(" ")
    expect(undo).to_have_count(0)


def test_a_python_type_takes_the_place_of_the_schema_and_back(editor: Page) -> None:
    dialog = open_maker(editor, tab="As a table")
    expect(dialog.get_by_role("row").last).to_contain_text("lines[].amount")
    dialog.get_by_role("tab", name="From a Python type").click()
    dialog.get_by_role("radio", name="colour_suite").check()
    use(dialog, "Use the type")
    output_type, schema = field(editor, "steps-0-output_type"), field(editor, "steps-0-output_schema")
    assert (output_type.input_value(), schema.input_value()) == ("colour_suite", "")
    use(open_maker(editor, tab=None), "Copy its schema")
    assert output_type.input_value() == ""
    assert "on_primary" in json.loads(schema.input_value())["properties"]


def test_the_input_keeps_its_example_and_a_new_step_has_the_button_too(editor: Page) -> None:
    editor.get_by_role("button", name="Add a step").last.click()
    for card in (".field-input_schema", "#steps-2"):
        dialog = open_maker(editor, card)
        dialog.get_by_label(EXAMPLE).fill('{"year": 2026}')
        use(dialog)
    expected = closed(year={"type": "integer"})
    assert json.loads(field(editor, "steps-2-output_schema").input_value()) == expected
    assert json.loads(field(editor, "input_schema").input_value()) == {**expected, "examples": [{"year": 2026}]}


# Trying a step


def open_panel(page: Page) -> tuple[Run, Locator]:
    """Try the second step of a flow with one run, in which it failed and was cut off; gives the run and the panel."""
    cache.clear()
    too_long = make_issue("critical", "Too long.", audit="Short", path="/text")
    attempts = (
        make_attempt(1, output={"text": "green"}),
        make_attempt(2, 1, "failed", output={"text": "moss"}, issues=(too_long,)),
    )
    load_flow(document=make_flow(*STEPS).to_document())
    run = make_stored_run(*attempts, spec=make_flow(*STEPS), status="failed")
    resize(page, 1_400, 900)
    page.goto(f"/admin/flows/flow/{Flow.objects.get().pk}/change/")
    page.locator("#steps-1 details").first.evaluate("(fold) => { fold.open = true }")
    page.locator("#steps-1").get_by_role("button", name="Try this step").click()
    panel = page.get_by_role("dialog")
    expect(panel.get_by_role("heading", name="Try step 2 “Step 2”")).to_be_focused()
    return run, panel


def test_a_change_is_seen_in_the_request_and_held_against_a_stored_output_without_saving(admin_page: Page) -> None:
    run, panel = open_panel(admin_page)
    message, verdict = panel.get_by_role("group", name="System message"), panel.locator("#try-verdict")
    check = panel.get_by_role("button", name="Check this output")
    expect(panel.locator("#try-request")).to_contain_text('"green"')
    # Beside the panel the editor goes on to be used.
    field(admin_page, "steps-1-system_message").fill("Explain it in verse.")
    expect(panel.get_by_text("The page has changed since this was shown.")).to_be_visible()
    panel.get_by_role("button", name="Refresh").click()
    expect(message).to_have_text("Explain it in verse.")
    panel.get_by_label("As", exact=True).select_option(label="The retry after attempt 1 (failed)")
    expect(message).to_contain_text("## Current step attempts")
    check.click()
    expect(verdict.locator(".issue-place", has_text="/text")).to_be_visible()
    field(admin_page, "steps-1-audits-0-rule").fill("output.text.size() < 9")
    check.click()
    expect(panel.get_by_role("status")).to_have_text(f"Attempt 1 of run {run.pk}: Passed.")
    panel.get_by_label("Output", exact=True).select_option("pasted")
    panel.get_by_label("Pasted output").fill('{"text": "far too long"}')
    check.click()
    expect(verdict).to_contain_text("The pasted output Failed")
    panel.get_by_label("Typed values").check()
    panel.get_by_label("Output of step 1 “Step 1”").fill('{"text": "violet"}')
    panel.get_by_role("button", name="Show the request").click()
    expect(panel.locator("#try-request")).to_contain_text('"violet"')
    assert Flow.objects.get().versions.count() == 2


def test_one_call_of_the_model_is_shown_and_its_answer_is_at_hand(
    admin_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "SIMULATED_LATENCY", 0.0)
    _, panel = open_panel(admin_page)
    sent: list[str] = []
    admin_page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    expect(panel.get_by_text("The simulated model answers: nothing is billed.")).to_be_visible()
    panel.get_by_role("button", name="Send it to the model once").dblclick()
    expect(panel.get_by_role("heading", name="What the model answered")).to_be_visible()
    expect(panel.get_by_label("Pasted output")).not_to_be_empty()
    assert len(sent) == 1
    assert Run.objects.count() == 1


def test_the_panel_fits_a_phone_leads_to_problems_and_is_left_by_keyboard(admin_page: Page) -> None:
    _, panel = open_panel(admin_page)
    button = admin_page.locator("#steps-1").get_by_role("button", name="Try this step")
    resize(admin_page, 390)
    assert_fits(admin_page)
    assert panel.evaluate("(panel) => panel.scrollWidth <= panel.clientWidth")
    admin_page.keyboard.press("Escape")
    expect(button).to_be_focused()
    field(admin_page, "steps-1-name").fill("")
    button.click()
    panel.get_by_role("link", name="Step 2, name").click()
    expect(panel).to_be_hidden()
    expect(field(admin_page, "steps-1-name")).to_be_focused()
