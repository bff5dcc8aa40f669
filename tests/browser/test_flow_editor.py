"""The flow editor: one document, by keyboard alone, with all that is wrong told where it is, and nothing typed lost."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import reverse
from playwright.sync_api import BrowserContext, Page, expect

from flows.models import Flow, FlowDraft, FlowVersion
from flows.publishing import publish_flow
from tests.browser.conftest import sign_in_context
from tests.browser.editor import field, names, open_flow, outline, press_save, remarks, row, save, wait_for_draft
from tests.browser.widths import assert_fits, resize
from tests.engine.builders import closed, make_flow, make_step

NOT_EMPTY = {"name": "Not empty", "rule": "output.text != ''"}
CLAUSE = closed(number={"type": "string"}, score={"type": "integer"})
LIST = closed(clauses={"type": "array", "items": CLAUSE})
MISTAKES = {
    "/time_limit": ("soon", "time_limit"),
    "/steps/0/max_retries": ("-1", "greater than or equal to 0"),
    "/steps/1/output_schema": ('{"type": "object",\n "properties": {,}}', "Line 2, column"),
    "/steps/1/audits/0/rule": ("outputs.text != ''", "Unknown variable “outputs”"),
    "/steps/2/input_expression": ("{'text': ", "Line 1"),
}
"""By place, what is typed and a part of what is told."""


@pytest.fixture
def editor(admin_page: Page) -> Page:
    """The editor of a flow with three steps, the second of which has an audit."""
    open_flow(admin_page, make_step(1), make_step(2, audits=[NOT_EMPTY]), make_step(3), title="Invoices")
    return admin_page


def go_to(page: Page, pointer: str) -> None:
    """Show the part that a field is in, with its folds open."""
    step = re.match(r"/steps/(\d+)", pointer)
    if step:
        row(page, names(page)[int(step[1])]).first.click()
    else:
        row(page, "Flow and limits").click()
    for audit in page.locator("#editor-part [data-act=audit-open][aria-expanded=false]").all():
        audit.click()
    if pointer.endswith("_schema"):
        page.get_by_role("tab", name="JSON").click()


def test_a_flow_with_two_steps_is_built_by_keyboard_alone(admin_page: Page) -> None:
    page, keys = admin_page, admin_page.keyboard
    page.goto(reverse("admin:flows_flow_add"))
    expect(outline(page)).to_be_visible()

    def tab_to(label: str) -> None:
        for _ in range(60):
            keys.press("Tab")
            if page.evaluate("label => document.activeElement === document.querySelector(label)", label):
                return
        raise AssertionError(f"Tab does not reach {label}.")

    def type_into(pointer: str, text: str) -> None:
        tab_to(f"#editor-part [data-pointer='{pointer}']:not(.ef-switch) > :is(input, textarea)")
        keys.type(text)

    type_into("/title", "Colour theme")
    expect(field(page, "/name")).to_have_value("colour-theme")
    # The flow, its input, the first step.
    keys.press("Alt+ArrowDown")
    keys.press("Alt+ArrowDown")
    for number, name in enumerate(("Choose colours", "Name it")):
        base = f"/steps/{number}"
        if number:
            page.locator("#step-add").focus()
            keys.press("Enter")
            keys.type(name)
        else:
            type_into(f"{base}/name", name)
        type_into(f"{base}/system_message", "Name {in")
        expect(page.get_by_role("option", name="input")).to_be_visible()
        keys.press("Enter")
        expect(field(page, f"{base}/system_message")).to_have_value("Name {input}")
        tab_to("#editor-part [data-schema-example]")
        keys.type('{"text": "red", "count": 3}')
        tab_to("#editor-part [data-schema-act=example]")
        keys.press("Enter")
        expect(page.get_by_role("row").filter(has_text="whole number")).to_be_visible()
    tab_to("#editor-part [data-act=audit-add]")
    keys.press("Enter")
    keys.type("Counted")
    type_into("/steps/1/audits/0/rule", "output.c")
    expect(page.get_by_role("option", name="count")).to_be_visible()
    keys.press("Tab")
    keys.type(" > 0")
    type_into("/steps/1/audits/0/message_template", "Only {output.count} colours.")
    press_save(page)
    expect(page.get_by_text("Saved as version 1")).to_be_visible()
    spec = FlowVersion.objects.get().flow_spec
    assert [(step.name, step.tool_name) for step in spec.steps] == [
        ("Choose colours", "choose_colours"),
        ("Name it", "name_it"),
    ]
    [audit] = spec.steps[1].audits
    assert (audit.name, audit.rule, audit.message_template) == (
        "Counted",
        "output.count > 0",
        "Only {output.count} colours.",
    )


def test_five_mistakes_are_told_at_once_at_their_fields_and_in_the_outline(editor: Page) -> None:
    for pointer, (text, _) in MISTAKES.items():
        go_to(editor, pointer)
        field(editor, pointer).fill(text)
    press_save(editor)
    expect(field(editor, "/time_limit")).to_be_focused()
    expect(editor.get_by_role("button", name="5 problems to fix")).to_be_visible()
    expect(row(editor, "Flow and limits")).to_contain_text("1 problem")
    for name, words in (("Step 1", "1 problem"), ("Step 2", "2 problems"), ("Not empty", "1 problem")):
        expect(row(editor, name)).to_contain_text(words)
    for pointer, (text, sentence) in MISTAKES.items():
        go_to(editor, pointer)
        expect(field(editor, pointer)).to_have_value(text)
        expect(remarks(editor, pointer)).to_contain_text(sentence)
        expect(field(editor, pointer)).to_have_attribute("aria-invalid", "true")
    assert FlowVersion.objects.count() == 1


def test_a_draft_survives_a_closed_page_and_is_forgotten_on_saving(editor: Page, context: BrowserContext) -> None:
    # Neither is valid: a draft may be anything.
    go_to(editor, "/steps/1/output_schema")
    field(editor, "/steps/1/output_schema").fill('{"type":')
    wait_for_draft(editor)
    row(editor, "Step 1").click()
    field(editor, "/steps/0/system_message").fill("Typed in the last moment.")
    url = editor.url
    editor.close(run_before_unload=False)
    page = context.new_page()
    page.goto(url)
    go_to(page, "/steps/1/output_schema")
    expect(field(page, "/steps/1/output_schema")).to_have_value('{"type":')
    page.locator(".editor-menu summary").click()
    page.get_by_role("button", name="Discard the draft").click()
    expect(page.locator("#editor-draft")).to_be_empty()
    assert not FlowDraft.objects.exists()
    field(page, "/steps/1/system_message").fill("Kept.")
    wait_for_draft(page)
    assert save(page).flow_spec.steps[1].system_message == "Kept."
    assert not FlowDraft.objects.exists()


def test_two_editors_are_told_of_each_other_and_overwrite_nothing_unseen(editor: Page) -> None:
    flow = Flow.objects.get()
    bob = User.objects.create_user("bob")
    FlowDraft.objects.create(flow=flow, user=bob, document={"title": "Bob’s"}, base_version=1)
    field(editor, "/steps/0/system_message").fill("Mine.")
    expect(editor.get_by_role("note").filter(has_text="bob has a draft")).to_be_visible()
    theirs = make_flow(make_step(1), make_step(2), title="Theirs")
    publish_flow(spec=theirs, flow=flow, by=bob)
    press_save(editor)
    conflict = editor.get_by_role("region", name="Not saved: the flow was saved while you were editing it")
    expect(conflict).to_be_focused()
    expect(conflict).to_contain_text("Theirs")
    assert FlowVersion.objects.count() == 2
    # Pressed again the same way, it asks again.
    with editor.expect_response(lambda answer: answer.status == 409):
        press_save(editor)
    expect(editor.locator(".is-saving")).to_have_count(0)
    conflict.get_by_role("button", name=re.compile("Save|Overwrite")).locator("visible=true").click()
    expect(editor.get_by_text("Saved as version 3")).to_be_visible()
    assert FlowVersion.objects.get(number=3).flow_spec.steps[0].system_message == "Mine."


def test_a_deleted_step_comes_back_and_what_refers_to_it(admin_page: Page) -> None:
    open_flow(admin_page, make_step(1), make_step(2, audits=[NOT_EMPTY]), make_step(3, include_results=[1, 2]))
    row(admin_page, "Step 2").click()
    admin_page.get_by_role("button", name="Delete the step").click()
    assert names(admin_page) == ["Step 1", "Step 3"]
    expect(admin_page.get_by_role("status").filter(has_text="Undo brings it back")).to_be_attached()
    expect(admin_page.get_by_role("group", name="Show attempts and issues of").get_by_role("checkbox")).to_be_checked()
    admin_page.get_by_role("button", name="Undo").click()
    assert names(admin_page) == ["Step 1", "Step 2", "Step 3"]
    row(admin_page, "Not empty").press("Delete")
    expect(row(admin_page, "Not empty")).to_have_count(0)
    # Outside of fields, the keys of undo are ours.
    admin_page.keyboard.press("Control+z")
    expect(row(admin_page, "Not empty")).to_be_visible()
    expect(admin_page.locator("#editor-draft")).to_be_empty()
    field(admin_page, "/steps/1/system_message").fill("Typed.")
    admin_page.get_by_role("button", name="Undo").click()
    expect(field(admin_page, "/steps/1/system_message")).not_to_have_value("Typed.")


def test_steps_and_audits_move_by_keys_and_by_dragging(admin_page: Page) -> None:
    audits = [{"name": f"Audit {letter}", "rule": "true"} for letter in "AB"]
    open_flow(admin_page, make_step(1), make_step(2, audits=audits), make_step(3, include_results=[1]))
    row(admin_page, "Step 1").click()
    admin_page.keyboard.press("Alt+Shift+ArrowDown")
    assert names(admin_page) == ["Step 2", "Step 1", "Step 3"]
    expect(row(admin_page, "Step 1")).to_be_focused()
    row(admin_page, "Step 3").drag_to(row(admin_page, "Step 2"))
    assert names(admin_page) == ["Step 3", "Step 2", "Step 1"]
    row(admin_page, "Audit B").click()
    admin_page.locator("[data-act=audit-grip]").last.press("Alt+Shift+ArrowUp")
    expect(admin_page.locator("[data-act=audit-grip]").first).to_be_focused()
    admin_page.locator("[data-act=audit-grip]").last.drag_to(admin_page.locator("[data-audit]").first)
    admin_page.locator("[data-act=audit-grip]").last.drag_to(admin_page.locator("[data-audit]").first)
    spec = save(admin_page).flow_spec
    assert [step.name for step in spec.steps] == ["Step 3", "Step 2", "Step 1"]
    assert [audit.name for audit in spec.steps[1].audits] == ["Audit B", "Audit A"]
    # Its step comes after it now.
    assert spec.steps[0].include_results == ()


def test_the_document_is_edited_as_yaml_and_back(editor: Page) -> None:
    row(editor, "Step 1").click()
    field(editor, "/steps/0/system_message").fill("Typed before.")

    def switch() -> None:
        editor.locator(".editor-menu summary").click()
        editor.locator("#editor-mode").click()

    switch()
    area = editor.get_by_role("textbox", name="The flow as a file")
    expect(area).to_have_value(re.compile("Typed before"))
    text = area.input_value()
    area.fill(text.replace("Typed before.", "Typed as text.") + "\n  - [")
    switch()
    expect(editor.locator("#editor-problems")).to_contain_text("Line ")
    expect(area).to_be_visible()
    area.fill(text.replace("Typed before.", "Typed as text."))
    switch()
    expect(field(editor, "/steps/0/system_message")).to_have_value("Typed as text.")
    switch()
    area.fill(text.replace("Typed before.", "Saved as text."))
    assert save(editor).flow_spec.steps[0].system_message == "Saved as text."


def test_names_are_completed_from_the_schemas(admin_page: Page) -> None:
    audits = [{"name": "Scored", "rule": "true"}]
    open_flow(admin_page, make_step(1, output_schema=LIST), make_step(2, output_schema=LIST, audits=audits))
    row(admin_page, "Scored").click()
    rule = field(admin_page, "/steps/1/audits/0/rule")
    for typed, offered in (
        ("output.", ["clauses"]),
        ("steps[1].output.", ["clauses"]),
        ("output.clauses[3].", ["number", "score"]),
        ("output.clauses.all(c, c.s", ["score"]),
    ):
        rule.fill("")
        rule.press_sequentially(typed)
        expect(admin_page.get_by_role("listbox").locator("code")).to_have_text(offered)
    rule.press("Escape")
    expect(admin_page.get_by_role("listbox")).to_have_count(0)
    rule.fill("output.clauses.filter(c, c.score < 0)")
    message = field(admin_page, "/steps/1/audits/0/message_template")
    message.press_sequentially("Clause {item.n")
    message.press("Enter")
    expect(message).to_have_value("Clause {item.number}")
    admin_page.get_by_role("button", name="Variables for Passes when").click()
    tree = admin_page.get_by_role("tree")
    expect(tree.get_by_role("treeitem").filter(has_text="clauses")).to_be_visible()
    tree.press("Escape")
    expect(tree).to_have_count(0)
    expect(rule).to_be_focused()


def test_a_rule_of_each_item_has_the_names_of_the_item(admin_page: Page) -> None:
    audits = [{"name": "Scored", "rule": "true"}]
    open_flow(admin_page, make_step(1, output_schema=LIST, audits=audits))
    row(admin_page, "Scored").click()
    base = "/steps/0/audits/0"
    field(admin_page, f"{base}/rule").fill("")
    for name, typed in (("for_each", "output.cl"), ("rule", "item.s"), ("message_template", "Clause {item.n")):
        field(admin_page, f"{base}/{name}").press_sequentially(typed)
        field(admin_page, f"{base}/{name}").press("Enter")
    admin_page.get_by_role("button", name="Variables for Passes when").click()
    tree = admin_page.get_by_role("tree").get_by_role("treeitem")
    expect(tree.filter(has_text="item").first).to_be_visible()
    expect(tree.filter(has_text="index")).to_be_visible()
    assert admin_page.evaluate(f"ToolFlow.flow.get('{base}')") == {
        "name": "Scored",
        "for_each": "output.clauses",
        "rule": "item.score",
        "message_template": "Clause {item.number}",
    }


def test_blocks_or_warns_is_one_switch_and_set_settings_are_shown(admin_page: Page) -> None:
    open_flow(admin_page, make_step(1, audits=[NOT_EMPTY], input_sanitizer="value"), make_step(2))
    row(admin_page, "Not empty").click()
    switch = admin_page.get_by_role("group", name="What an issue does")
    switch.get_by_role("button", name="Warns").click()
    expect(switch.get_by_role("button", name="Warns")).to_be_focused()
    expect(row(admin_page, "Not empty")).to_contain_text("Warns")
    expect(field(admin_page, "/steps/0/input_sanitizer")).to_be_visible()
    expect(field(admin_page, "/steps/0/output_sanitizer")).to_be_hidden()
    assert save(admin_page).flow_spec.steps[0].audits[0].fail_at == "never"


def test_a_schema_is_made_from_an_example_a_step_and_a_registered_type(admin_page: Page) -> None:
    open_flow(admin_page, make_step(1), make_step(2, output_schema=LIST), make_step(3, compute="previous"))
    base, part = "/steps/0/output_schema", admin_page.locator("#editor-part")

    def choose(tab: str, button: str = "") -> None:
        part.get_by_role("tab", name=tab).click()
        if button:
            part.get_by_role("button", name=button).click()

    part.get_by_role("tab", name="Fields").press("ArrowRight")
    expect(part.get_by_role("tab", name="JSON")).to_be_focused()
    choose("From an example")
    part.get_by_label("An example JSON object").fill('{"mood": calm}')
    choose("From an example", "Make the schema")
    expect(part.get_by_role("status")).to_contain_text("Line 1, column 10")
    part.get_by_label("An example JSON object").fill('{"mood": "calm", "tags": []}')
    choose("From an example", "Make the schema")
    expect(part.get_by_role("status")).to_contain_text("tags is an empty")
    expect(part.get_by_role("row").filter(has_text="mood")).to_be_visible()
    choose("From a step")
    part.get_by_label("Step whose schema is taken").select_option(label="2 Step 2")
    choose("From a step", "Take its schema")
    expect(part.get_by_role("row").filter(has_text="clauses[].score")).to_be_visible()
    choose("JSON")
    field(admin_page, base).fill('{"type": "object", "properties": {"mood": {"type": "string"}}}')
    choose("JSON", "Make strict")
    part.get_by_role("button", name="May be null").click()
    expect(field(admin_page, base)).to_have_value(re.compile('"null"'))
    choose("Registered type")
    part.get_by_label("Registered type", exact=True).last.select_option("colour_suite")
    choose("Registered type", "Use the type")
    expect(part.get_by_text("Outputs are of the registered type")).to_be_visible()
    part.get_by_role("button", name="Use a schema instead").click()
    part.get_by_label("Registered type", exact=True).last.select_option("colour_suite")
    choose("Registered type", "Copy its schema")
    expect(part.get_by_role("row").filter(has_text="on_primary").first).to_be_visible()
    admin_page.get_by_role("group", name="Who does the step").get_by_role("button", name="Local step").click()
    expect(field(admin_page, "/steps/0/compute")).to_have_value("previous")
    admin_page.get_by_role("button", name="Undo").click()
    admin_page.get_by_role("button", name="Save and make live").click()
    expect(admin_page.get_by_text("Saved as version 2, which is live")).to_be_visible()
    spec = FlowVersion.objects.get(number=2).flow_spec
    assert spec.steps[0].output_type is None
    assert "on_primary" in (spec.steps[0].output_schema or {})["properties"]


def test_what_a_model_refuses_is_greyed_with_its_reason(editor: Page) -> None:
    row(editor, "Step 1").click()
    field(editor, "/steps/0/model").fill("gpt-5-mini")
    expect(editor.locator("[data-model-said]")).to_contain_text("$0.25 in, $2.00 out per million tokens")
    effort = field(editor, "/steps/0/reasoning_effort")
    refused = effort.locator("option", has_text="GPT-5 does not take it")
    expect(refused.first).to_be_disabled()
    effort.select_option("low")
    field(editor, "/steps/0/service_tier").select_option("flex")
    expect(editor.locator("[data-model-said]")).to_contain_text("$0.125 in")
    spec = save(editor).flow_spec
    assert (spec.steps[0].model, spec.steps[0].reasoning_effort) == ("gpt-5-mini", "low")


def test_a_large_flow_loads_and_fits(admin_page: Page) -> None:
    audits = [{"name": f"Audit {number}", "rule": "output.text != ''"} for number in range(10)]
    open_flow(admin_page, *(make_step(number, audits=audits) for number in range(1, 21)))
    expect(outline(admin_page).locator(".row")).to_have_count(222)
    for width in (1_440, 390):
        resize(admin_page, width)
        assert_fits(admin_page)


def test_who_may_only_see_changes_nothing(page: Page, context: BrowserContext, base_url: str) -> None:
    reader = User.objects.create_user("reader", is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_flow"))
    sign_in_context(context, base_url, reader)
    open_flow(page, make_step(1, audits=[NOT_EMPTY]))
    row(page, "Not empty").click()
    expect(field(page, "/steps/0/audits/0/rule")).not_to_be_editable()
    expect(page.get_by_role("button", name="Delete the step")).to_be_hidden()
    expect(page.get_by_role("button", name="Save", exact=True)).to_have_count(0)
    page.keyboard.press("Control+s")
    assert FlowVersion.objects.count() == 1
