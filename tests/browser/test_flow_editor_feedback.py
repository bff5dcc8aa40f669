"""Feedback while one types in the flow editor: at schemas, at expressions, and with the values of an earlier run."""

from __future__ import annotations

import json
from itertools import product

import pytest
from playwright.sync_api import Locator, Page, expect

from flows.models import Flow
from flows.portability import load_flow
from runs.models import Run, RunStatus
from tests.engine.builders import INVOICE, NOON, closed, make_attempt, make_step
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_page_flow, store_attempt

PREVIOUS = "the output of the step before; in a local step the step’s input"
INPUT_SCHEMA = {"type": "object", "properties": {"document": {"type": "string"}}}
OUTPUT = {
    "supplier": "Nordwind <img src=x onerror=alert(1)>",
    "total": 131.5,
    "lines": [{"text": "Paper", "amount": 120.0}, {"text": "Freight", "amount": 11.5}],
}
LOOSE = (
    '{\n  "type": "object",\n  "properties": {"total": {"type": "number", "default": 0}, "note": {"type": "string"}}\n}'
)

FORMATTED = """{
  "type": "object",
  "properties": {
    "a": {
      "type": "number",
      "minimum": 1.50,
      "maximum": 1e3
    }
  }
}"""


@pytest.fixture
def flow(transactional_db: None) -> Flow:
    audit = {"name": "Adds up", "rule": "output.total > 1.0"}
    steps = (make_step(1, name="Extract", output_schema=INVOICE, audits=[audit]), make_step(2, name="Book"))
    spec = make_page_flow(*steps, name="invoices", title="Invoices", input_schema=INPUT_SCHEMA)
    return load_flow(document=spec.to_document()).flow


@pytest.fixture
def run(flow: Flow) -> Run:
    """A run that went through the first step."""
    run = make_run(flow.live_version, input={"document": "INVOICE 417"})
    store_attempt(run, make_attempt(1, 1, output=OUTPUT))
    Run.objects.filter(pk=run.pk).update(status=RunStatus.SUCCEEDED, started_at=NOON, ended_at=NOON)
    return run


@pytest.fixture
def editor(admin_page: Page, flow: Flow) -> Page:
    admin_page.goto(f"/admin/flows/flow/{flow.pk}/change/")
    return admin_page


def field(page: Page, name: str) -> Locator:
    return page.locator(f"[name={name}]")


def rule(page: Page) -> Locator:
    return field(page, "steps-0-audits-0-rule")


def schema(page: Page) -> Locator:
    return field(page, "steps-0-output_schema")


def tools(owner: Locator) -> Locator:
    """What stands below a field."""
    return owner.locator("xpath=following-sibling::*[contains(@class, 'field-tools')]")


def status(owner: Locator) -> Locator:
    return tools(owner).locator(".field-status > [role=status]")


def panel(page: Page) -> Locator:
    return page.get_by_role("region", name="Variables and functions")


def caret(owner: Locator) -> int:
    return owner.evaluate("field => field.selectionStart")


def test_opening_the_page_asks_nothing_of_the_server(admin_page: Page, flow: Flow) -> None:
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url))
    admin_page.goto(f"/admin/flows/flow/{flow.pk}/change/", wait_until="networkidle")
    assert [url for url in asked if "/feedback/" in url or "/values/" in url or "value_panel" in url] == []
    rule(admin_page).focus()
    expect(status(rule(admin_page))).to_have_text("Valid: reads output")
    assert any("/feedback/" in url for url in asked)


def test_broken_json_is_told_with_line_and_column_and_a_click_goes_there(editor: Page) -> None:
    text = '{\n  "type": "object"\n  "properties": {}\n}'
    schema(editor).fill(text)
    expect(status(schema(editor))).to_have_text("Line 3, column 3: a comma is missing.")
    expect(schema(editor)).to_have_attribute("aria-invalid", "true")
    assert "steps-0-output_schema_status" in (schema(editor).get_attribute("aria-describedby") or "")
    status(schema(editor)).get_by_role("button").click()
    expect(schema(editor)).to_be_focused()
    assert caret(schema(editor)) == text.index('"properties"')


def test_a_loose_schema_is_made_strict_and_taken_back(editor: Page) -> None:
    schema(editor).fill(LOOSE)
    bar = tools(schema(editor))
    expect(status(schema(editor))).to_have_text("3 things must be mended:")
    bar.get_by_role("button", name="/properties/total/default").click()
    expect(schema(editor)).to_be_focused()
    assert caret(schema(editor)) == LOOSE.index('"default"')
    bar.get_by_role("button", name="Make strict").click()
    expect(bar.get_by_text("What becomes of “total”, “note”?")).to_be_visible()
    expect(bar.get_by_role("button", name="May be null")).to_be_focused()
    editor.keyboard.press("Enter")
    expect(status(schema(editor))).to_have_text("Valid JSON Schema, strict: 2 properties")
    expect(bar.locator(".schema-report")).to_contain_text("Made strict: ")
    assert json.loads(schema(editor).input_value())["required"] == ["total", "note"]
    bar.get_by_role("button", name="Undo making strict").click()
    expect(schema(editor)).to_have_value(LOOSE)
    expect(status(schema(editor))).to_have_text("3 things must be mended:")
    bar.get_by_role("button", name="Make strict").click()
    bar.get_by_role("button", name="Always given").click()
    expect(status(schema(editor))).to_have_text("Valid JSON Schema, strict: 2 properties")
    assert json.loads(schema(editor).input_value())["properties"]["note"] == {"type": "string"}


def test_formatting_changes_the_layout_alone(editor: Page) -> None:
    owner = field(editor, "input_schema")
    text = '{"type":"object","properties":{"a":{"type":"number","minimum":1.50,"maximum":1e3}}}'
    owner.fill(text)
    tools(owner).get_by_role("button", name="Format").click()
    expect(owner).to_have_value(FORMATTED)
    expect(tools(owner).get_by_role("button", name="Make strict")).to_have_count(0)
    expect(status(owner)).to_have_text("Valid JSON Schema: 1 property")
    editor.keyboard.press("ControlOrMeta+z")
    expect(owner).to_have_value(text)


def test_a_mistake_in_an_expression_is_told_while_it_is_typed(editor: Page) -> None:
    rule(editor).fill("output.total = 3.0")
    expect(status(rule(editor))).to_have_text("Line 1, column 14: “=” can't stand here; write “==”.")
    rule(editor).fill("outptu.total == 3.0")
    expect(status(rule(editor))).to_contain_text("Unknown variable “outptu”")
    rule(editor).fill("")
    expect(status(rule(editor))).to_be_empty()


def test_a_property_that_the_schema_on_the_page_lacks_is_doubted(editor: Page) -> None:
    rule(editor).fill("output.lines.all(line, line.amuont > 0.0)")
    expect(status(rule(editor))).to_have_text("Valid: reads output, but one thing is doubtful:")
    doubt = tools(rule(editor)).get_by_role("button", name="Did you mean “amount”?")
    doubt.click()
    expect(rule(editor)).to_be_focused()
    assert caret(rule(editor)) == len("output.lines.all(line, line.")
    # The schema is the one that is being written, not the one that was saved.
    schema(editor).fill(json.dumps(closed(lines={"type": "array", "items": closed(amuont={"type": "number"})})))
    rule(editor).focus()
    expect(status(rule(editor))).to_have_text("Valid: reads output")


def test_a_real_value_is_put_into_the_rule_by_keyboard(editor: Page, run: Run) -> None:
    rule(editor).fill("1.0 < out")
    tree = panel(editor).get_by_role("tree")
    expect(tree.get_by_role("treeitem", name=".lines")).to_be_visible()
    expect(panel(editor).get_by_label("Values of")).to_have_value(str(run.pk))
    assert not editor.locator(".value-panel img").count()
    expect(tree.get_by_role("treeitem", name=".supplier")).to_contain_text("<img src=x onerror=alert(1)>")
    tree.get_by_role("treeitem", name="output").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
        editor.keyboard.press(key)
    expect(tree.get_by_role("treeitem", name=".text")).to_be_focused()
    editor.keyboard.press("ArrowDown")
    expect(editor.locator(":focus")).to_contain_text("120.0")
    editor.keyboard.press("Enter")
    expect(rule(editor)).to_have_value("1.0 < output.lines[0].amount")
    expect(rule(editor)).to_be_focused()
    expect(status(rule(editor))).to_have_text("Valid: reads output")
    editor.keyboard.press("ControlOrMeta+z")
    expect(rule(editor)).to_have_value("1.0 < out")


def test_the_panel_is_reached_with_tab_and_closed_with_escape(editor: Page, run: Run) -> None:
    rule(editor).focus()
    expect(panel(editor).get_by_label("Values of")).to_be_visible()
    expect(rule(editor)).to_be_focused()
    for _ in range(3):
        editor.keyboard.press("Tab")
    expect(panel(editor).get_by_role("treeitem", name="output")).to_be_focused()
    editor.keyboard.press("Escape")
    expect(panel(editor)).to_have_count(0)
    expect(rule(editor)).to_be_focused()
    editor.keyboard.type(" ")
    expect(panel(editor)).to_have_count(0)


def test_an_earlier_step_is_unfolded_when_it_is_asked_for(editor: Page, run: Run) -> None:
    owner = field(editor, "steps-1-input_expression")
    editor.get_by_role("group", name="Step 2 “Book”").locator("summary").first.click()
    owner.focus()
    tree = panel(editor).get_by_role("tree")
    tree.get_by_role("treeitem", name="steps").locator(".twisty").click()
    tree.get_by_role("treeitem", name="“Extract”, passed").locator(".twisty").click()
    tree.get_by_role("treeitem", name=".output").locator(".twisty").click()
    tree.get_by_role("treeitem", name=".total").last.click()
    expect(owner).to_have_value("steps[1].output.total")


def test_functions_are_found_and_put_in(editor: Page, run: Run) -> None:
    rule(editor).fill("output.lines")
    panel(editor).get_by_text("Functions", exact=True).click()
    panel(editor).get_by_label("Find a function").fill("at least one")
    panel(editor).get_by_label("Find a function").press("Enter")
    panel(editor).get_by_role("button", name="list.exists(x, condition)").click()
    expect(rule(editor)).to_have_value("output.lines.exists(x, condition)")
    expect(editor).to_have_url(editor.url)


def test_the_field_that_is_written_in_stays_where_it_is(editor: Page, run: Run) -> None:
    rule(editor).scroll_into_view_if_needed()
    before = rule(editor).bounding_box()
    rule(editor).click()
    expect(panel(editor).get_by_label("Values of")).to_be_visible()
    rule(editor).press_sequentially(" && tru")
    expect(status(rule(editor))).to_contain_text("Unknown variable")
    assert rule(editor).bounding_box() == before
    # A click below the panel hits what it was meant for, though the panel goes with it.
    button = editor.get_by_role("button", name="Add an audit").first
    button.click()
    expect(editor.locator("[name=steps-0-audits-1-name]")).to_be_focused()


FAKE_ANSWER = """answer => {
  window.asked = 0;
  window.fetch = async () => {
    window.asked += 1;
    if (answer === null) throw new TypeError("Failed to fetch");
    return new Response(JSON.stringify(answer.body), { status: answer.status, headers: answer.headers });
  };
}"""


def test_checks_that_come_too_often_pause_and_go_on(editor: Page) -> None:
    rule(editor).focus()
    expect(panel(editor)).to_be_visible()
    expect(status(rule(editor))).to_have_text("Valid: reads output")
    editor.evaluate("window.realFetch = window.fetch")
    body = {"error": "That was too often in a short time. Try again in 1 second."}
    headers = {"Content-Type": "application/json", "Retry-After": "1"}
    editor.evaluate(FAKE_ANSWER, {"status": 429, "headers": headers, "body": body})
    rule(editor).fill("output.total = 3.0")
    expect(status(rule(editor))).to_contain_text(
        "That was too often in a short time. Try again in 1 second. Checks pause"
    )
    editor.evaluate("window.fetch = window.realFetch")
    expect(status(rule(editor))).to_contain_text("write “==”")


def test_that_the_server_is_away_is_told_once(editor: Page) -> None:
    rule(editor).focus()
    expect(status(rule(editor))).to_have_text("Valid: reads output")
    editor.evaluate(FAKE_ANSWER, None)
    rule(editor).fill("output.total = 3.0")
    expect(status(rule(editor))).to_have_text("The server can’t be reached. Checks pause; saving checks everything.")
    schema(editor).fill("{")
    expect(status(schema(editor))).to_be_empty()
    rule(editor).fill("output.total == 3.0")
    expect(status(rule(editor))).to_contain_text("Checks pause")


def test_what_is_typed_while_an_answer_is_on_its_way_counts(editor: Page) -> None:
    rule(editor).focus()
    expect(status(rule(editor))).to_have_text("Valid: reads output")
    for text in ("outpu", "output.total =", "output.total == 1.0 && input.document != ''"):
        rule(editor).fill(text)
    expect(status(rule(editor))).to_have_text("Valid: reads input, output")


def test_a_new_flow_has_variables_without_values(admin_page: Page, transactional_db: None) -> None:
    admin_page.goto("/admin/flows/flow/add/")
    admin_page.get_by_role("button", name="Add a step").click()
    owner = field(admin_page, "steps-0-input_expression")
    owner.focus()
    expect(panel(admin_page)).to_contain_text("Gives a map: the input of this step.")
    expect(panel(admin_page)).to_contain_text("Real values stand here once the flow has run.")
    expect(panel(admin_page).get_by_role("treeitem", name="previous")).to_contain_text("the output of the step before")
    owner.fill("{'a': previous.b}")
    expect(status(owner)).to_have_text("Valid: reads previous")


def test_before_the_first_run_types_of_the_schemas_are_put_in_by_keyboard(
    admin_page: Page, transactional_db: None
) -> None:
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url))
    admin_page.goto("/admin/flows/flow/add/")
    for _ in range(2):
        admin_page.get_by_role("button", name="Add a step").click()
    field(admin_page, "steps-0-name").fill("Extract <b>")
    tree_schema = {**INVOICE, "$defs": {"node": closed(next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})}}
    tree_schema["properties"] = {**INVOICE["properties"], "in": {"$ref": "#/$defs/node"}, "<i>": {"type": "integer"}}
    schema(admin_page).fill(json.dumps(tree_schema))
    field(admin_page, "input_schema").fill(json.dumps(INPUT_SCHEMA))
    owner = field(admin_page, "steps-1-input_expression")
    owner.focus()
    tree = panel(admin_page).get_by_role("tree")
    row = tree.get_by_role("treeitem")
    expect(panel(admin_page)).to_contain_text("Types from the schemas; real values stand here once the flow has run.")
    expect(row.filter(has_text="previous")).to_have_text(f"previous object {PREVIOUS}")
    lines = [".supplier text", ".total number", ".lines list", '["in"] object', '["<i>"] whole number']
    expect(row).to_have_text(
        [
            f"previous object {PREVIOUS}",
            *lines,
            "input object the input of the run",
            "steps 2 elements the input, steps[0], and the steps before this one",
        ]
    )
    row.first.focus()
    for key in ("End", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight"):
        admin_page.keyboard.press(key)
    expect(admin_page.locator(":focus")).to_have_text(".output object")
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        admin_page.keyboard.press(key)
    expect(owner).to_have_value("steps[1].output.total")
    expect(owner).to_be_focused()
    assert not [url for url in asked if "/values/" in url]
    # A schema that can't be read says nothing, and the input of the first step is that of the run.
    schema(admin_page).fill("{")
    owner.focus()
    expect(row.filter(has_text="previous")).to_have_text(f"previous {PREVIOUS}")
    field(admin_page, "steps-0-input_expression").focus()
    expect(row.nth(1)).to_have_text(".document text")


def test_a_stored_flow_that_never_ran_shows_types_too(editor: Page) -> None:
    rule(editor).focus()
    row = panel(editor).get_by_role("treeitem")
    expect(row.nth(1)).to_have_text(".supplier text")
    expect(panel(editor)).to_contain_text("Types from the schemas")
    row.filter(has_text=".lines").locator(".twisty").click()
    row.filter(has_text="[0] object").locator(".twisty").click()
    rule(editor).fill("")
    row.filter(has_text=".amount").click()
    expect(rule(editor)).to_have_value("output.lines[0].amount")


def test_a_step_that_can_no_longer_be_read_is_told_once_steps_moved(editor: Page) -> None:
    book = field(editor, "steps-1-input_expression")
    editor.get_by_role("group", name="Step 2 “Book”").locator("summary").first.click()
    book.fill("{'a': steps[1].output.supplier}")
    expect(status(book)).to_have_text("Valid: reads steps")
    card = editor.get_by_role("group", name="“Book”")
    card.locator("> .card-tools [data-tool=up]").click()
    out_of_reach = "steps[1] can’t be read here: only the input, steps[0], comes before this step."
    expect(tools(book).get_by_role("button", name=out_of_reach)).to_be_visible()
    card.locator("> .card-tools [data-tool=down]").click()
    expect(status(book)).to_have_text("Valid: reads steps")
    extract = editor.locator("#steps-0")
    extract.locator("> .card-tools [data-tool=delete]").click()
    expect(tools(book).get_by_role("button", name=out_of_reach)).to_be_visible()
    extract.locator("[data-tool=keep]").click()
    expect(status(book)).to_have_text("Valid: reads steps")


def test_all_of_it_fits_a_narrow_screen(editor: Page, run: Run) -> None:
    editor.set_viewport_size({"width": 390, "height": 800})
    rule(editor).fill("output.lines[0].amuont_of_a_very_long_name_that_goes_on_and_on_without_any_end == 1.0")
    expect(status(rule(editor))).to_contain_text("doubtful")
    panel(editor).get_by_text("Functions", exact=True).click()
    schema(editor).fill(LOOSE)
    expect(status(schema(editor))).to_have_text("3 things must be mended:")
    for theme, part in product(("light", "dark"), (tools(rule(editor)), tools(schema(editor)))):
        editor.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # each is one of its literals
        box = part.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
