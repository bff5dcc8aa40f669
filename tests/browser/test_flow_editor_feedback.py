"""Feedback while one types in the flow editor: at schemas, at expressions, and with the values of an earlier run."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Locator, Page, expect

from flows.models import Flow
from flows.portability import load_flow
from runs.models import Run, RunStatus
from tests.browser.editor import field
from tests.browser.widths import resize
from tests.engine.builders import INVOICE, NOON, closed, make_attempt, make_step
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_page_flow, store_attempt

OUTPUT = {
    "supplier": "Nordwind <img src=x onerror=alert(1)>",
    "total": 131.5,
    "lines": [{"text": "Paper", "amount": 120.0}, {"text": "Freight", "amount": 11.5}],
}
LOOSE = (
    '{\n  "type": "object",\n  "properties": {"total": {"type": "number", "default": 0}, "note": {"type": "string"}}\n}'
)


@pytest.fixture
def flow(transactional_db: None) -> Flow:
    audit = {"name": "Adds up", "rule": "output.total > 1.0"}
    steps = (make_step(1, name="Extract", output_schema=INVOICE, audits=[audit]), make_step(2, name="Book"))
    schema = {"type": "object", "properties": {"document": {"type": "string"}}}
    spec = make_page_flow(*steps, name="invoices", title="Invoices", input_schema=schema)
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
    place: int = owner.evaluate("field => field.selectionStart")
    return place


def test_mistakes_are_told_with_line_and_column_and_a_click_goes_there(editor: Page) -> None:
    text = '{\n  "type": "object"\n  "properties": {}\n}'
    schema(editor).fill(text)
    expect(status(schema(editor))).to_contain_text("Line 3, column 3")
    expect(schema(editor)).to_have_attribute("aria-invalid", "true")
    assert "steps-0-output_schema_status" in (schema(editor).get_attribute("aria-describedby") or "")
    status(schema(editor)).get_by_role("button").click()
    expect(schema(editor)).to_be_focused()
    assert caret(schema(editor)) == text.index('"properties"')
    rule(editor).fill("output.total = 3.0")
    expect(status(rule(editor))).to_contain_text("Line 1, column 14")
    rule(editor).fill("")
    expect(status(rule(editor))).to_be_empty()
    # What is typed while an answer is on its way counts.
    for text in ("outpu", "output.total =", "output.total == 1.0 && input.document != ''"):
        rule(editor).fill(text)
    expect(status(rule(editor))).to_have_text("Valid: reads input, output")


def test_a_loose_schema_is_made_strict_taken_back_and_formatted(editor: Page) -> None:
    schema(editor).fill(LOOSE)
    bar = tools(schema(editor))
    bar.get_by_role("button", name="/properties/total/default").click()
    assert caret(schema(editor)) == LOOSE.index('"default"')
    bar.get_by_role("button", name="Make strict").click()
    expect(bar.get_by_role("button", name="May be null")).to_be_focused()
    editor.keyboard.press("Enter")
    expect(status(schema(editor))).to_have_text("Valid JSON Schema, strict: 2 properties")
    assert json.loads(schema(editor).input_value())["required"] == ["total", "note"]
    bar.get_by_role("button", name="Undo making strict").click()
    expect(schema(editor)).to_have_value(LOOSE)
    bar.get_by_role("button", name="Make strict").click()
    bar.get_by_role("button", name="Always given").click()
    expect(status(schema(editor))).to_have_text("Valid JSON Schema, strict: 2 properties")
    assert json.loads(schema(editor).input_value())["properties"]["note"] == {"type": "string"}
    # Formatting changes the layout alone.
    owner, text = field(editor, "input_schema"), '{"type":"object","properties":{"a":{"maximum":1.50}}}'
    owner.fill(text)
    tools(owner).get_by_role("button", name="Format").click()
    expect(owner).to_have_value(json.dumps(json.loads(text), indent=2).replace("1.5", "1.50"))
    editor.keyboard.press("ControlOrMeta+z")
    expect(owner).to_have_value(text)


def test_a_property_that_the_schema_on_the_page_lacks_is_doubted(editor: Page) -> None:
    rule(editor).fill("output.lines.all(line, line.amuont > 0.0)")
    tools(rule(editor)).get_by_role("button", name="Did you mean “amount”?").click()
    expect(rule(editor)).to_be_focused()
    assert caret(rule(editor)) == len("output.lines.all(line, line.")
    # The schema is the one that is being written, not the one that was saved.
    schema(editor).fill(json.dumps(closed(lines={"type": "array", "items": closed(amuont={"type": "number"})})))
    rule(editor).focus()
    expect(status(rule(editor))).to_have_text("Valid: reads output")
    resize(editor, 390)
    rule(editor).fill("output.lines[0].a_very_long_name_that_goes_on_and_on_without_any_end_at_all == 1.0")
    expect(status(rule(editor))).to_have_attribute("data-tone", "doubtful")
    box = tools(rule(editor)).bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_a_real_value_is_put_into_the_rule_by_keyboard(editor: Page, run: Run) -> None:
    rule(editor).scroll_into_view_if_needed()
    before = rule(editor).bounding_box()
    rule(editor).click()
    expect(panel(editor).get_by_label("Values of")).to_have_value(str(run.pk))
    assert rule(editor).bounding_box() == before
    rule(editor).fill("1.0 < out")
    tree = panel(editor).get_by_role("tree")
    expect(tree.get_by_role("treeitem", name=".supplier")).to_contain_text("<img src=x onerror=alert(1)>")
    assert not editor.locator(".value-panel img").count()
    tree.get_by_role("treeitem", name="output").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", *["ArrowRight"] * 4, "ArrowDown"):
        editor.keyboard.press(key)
    expect(editor.locator(":focus")).to_contain_text("120.0")
    editor.keyboard.press("Enter")
    expect(rule(editor)).to_have_value("1.0 < output.lines[0].amount")
    expect(rule(editor)).to_be_focused()
    editor.keyboard.press("ControlOrMeta+z")
    expect(rule(editor)).to_have_value("1.0 < out")
    rule(editor).fill("output.lines")
    panel(editor).get_by_text("Functions", exact=True).click()
    panel(editor).get_by_label("Find a function").fill("at least one")
    panel(editor).get_by_role("button", name="list.exists(x, condition)").click()
    expect(rule(editor)).to_have_value("output.lines.exists(x, condition)")
    editor.keyboard.press("Escape")
    expect(panel(editor)).to_have_count(0)
    expect(rule(editor)).to_be_focused()


def test_an_earlier_step_is_unfolded_when_it_is_asked_for_and_told_once_it_is_out_of_reach(
    editor: Page, run: Run
) -> None:
    owner = field(editor, "steps-1-input_expression")
    editor.get_by_role("group", name="Step 2 “Book”").locator("summary").first.click()
    owner.focus()
    tree = panel(editor).get_by_role("tree")
    for name in ("steps", "“Extract”, passed", ".output"):
        tree.get_by_role("treeitem", name=name).locator(".twisty").click()
    tree.get_by_role("treeitem", name=".total").last.click()
    expect(owner).to_have_value("steps[1].output.total")
    owner.fill("{'a': steps[1].output.total}")
    expect(status(owner)).to_have_text("Valid: reads steps")
    out_of_reach = tools(owner).get_by_role("button", name="steps[1] can’t be read here")
    book, extract = editor.get_by_role("group", name="“Book”"), editor.locator("#steps-0")
    book.locator("> .card-tools [data-tool=up]").click()
    expect(out_of_reach).to_be_visible()
    book.locator("> .card-tools [data-tool=down]").click()
    expect(status(owner)).to_have_text("Valid: reads steps")
    extract.locator("> .card-tools [data-tool=delete]").click()
    expect(out_of_reach).to_be_visible()
    extract.locator("[data-tool=keep]").click()
    expect(status(owner)).to_have_text("Valid: reads steps")


def test_before_the_first_run_types_of_the_schemas_are_put_in(admin_page: Page, transactional_db: None) -> None:
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url))
    admin_page.goto("/admin/flows/flow/add/")
    for _ in range(2):
        admin_page.get_by_role("button", name="Add a step").click()
    field(admin_page, "steps-0-name").fill("Extract <b>")
    schema(admin_page).fill(
        json.dumps({**INVOICE, "properties": {**INVOICE["properties"], "<i>": {"type": "integer"}}})
    )
    owner = field(admin_page, "steps-1-input_expression")
    owner.focus()
    row = panel(admin_page).get_by_role("treeitem")
    expect(panel(admin_page)).to_contain_text("Types from the schemas; real values stand here once the flow has run.")
    shown = row.all_inner_texts()
    assert [" ".join(text.split()) for text in shown[1:5]] == [
        ".supplier text", ".total number", ".lines list", '["<i>"] whole number',
    ]  # fmt: skip
    row.nth(2).click()
    expect(owner).to_have_value("previous.total")
    assert not [url for url in asked if "/values/" in url]


FAKE_ANSWER = """answer => {
  window.realFetch = window.fetch;
  window.fetch = async () => {
    if (answer === null) throw new TypeError("Failed to fetch");
    return new Response(JSON.stringify(answer.body), { status: answer.status, headers: answer.headers });
  };
}"""


def test_nothing_is_asked_on_opening_and_checks_that_are_refused_pause_and_go_on(admin_page: Page, flow: Flow) -> None:
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url))
    admin_page.goto(f"/admin/flows/flow/{flow.pk}/change/", wait_until="networkidle")
    assert [url for url in asked if "/feedback/" in url or "/values/" in url or "value_panel" in url] == []
    rule(admin_page).focus()
    expect(status(rule(admin_page))).to_have_text("Valid: reads output")
    body = {"error": "That was too often in a short time. Try again in 1 second."}
    headers = {"Content-Type": "application/json", "Retry-After": "1"}
    admin_page.evaluate(FAKE_ANSWER, {"status": 429, "headers": headers, "body": body})
    rule(admin_page).fill("output.total = 3.0")
    expect(status(rule(admin_page))).to_contain_text("Try again in 1 second. Checks pause")
    admin_page.evaluate("window.fetch = window.realFetch")
    expect(status(rule(admin_page))).to_contain_text("write “==”")
    # That the server is away is told once.
    admin_page.evaluate(FAKE_ANSWER, None)
    rule(admin_page).fill("output.total == 3.0")
    expect(status(rule(admin_page))).to_contain_text("The server can’t be reached. Checks pause")
    schema(admin_page).fill("{")
    expect(status(schema(admin_page))).to_be_empty()
