"""The flow editor: one document, by keyboard alone, with all that is wrong told where it is, and nothing typed lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import reverse
from playwright.sync_api import BrowserContext, Page, expect

from flows import providers
from flows.engine.judging_process import close_processes
from flows.engine.spec import AuditSpec
from flows.models import FlowDraft, FlowVersion
from flows.publishing import publish_flow
from runs.models import Run
from tests.browser.conftest import sign_in_context
from tests.browser.editor import field, go_to, names, open_flow, outline, press_save, remarks, row, save, wait_for_draft
from tests.browser.widths import assert_fits, resize
from tests.engine.builders import closed, make_attempt, make_step
from tests.runs.pages.history_builders import make_page_flow, make_stored_run

NOT_EMPTY = {"name": "Not empty", "rule": "output.text != ''"}
CLAUSE = closed(number={"type": "string"}, score={"type": "integer"})
LIST = closed(clauses={"type": "array", "items": CLAUSE})
RULE = "/steps/0/audits/0/rule"
LONG = AuditSpec(name="Long", rule="output.text.size() > 2", path="'/text'")
MISTAKES = {
    "/time_limit": ("soon", "time_limit"),
    "/steps/0/max_retries": ("-1", "greater than or equal to 0"),
    "/steps/1/output_schema": ('{"type": "object",\n "properties": {,}}', "Line 2, column"),
    "/steps/1/audits/0/rule": ("outputs.text != ''", "Unknown variable “outputs”"),
    "/steps/2/input_expression": ("{'text': ", "Line 1"),
}
"""By place, what is typed and a part of what is reported."""


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    close_processes()


def test_a_flow_is_built_by_keyboard_alone_with_names_completed_from_the_schemas(admin_page: Page) -> None:
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

    # In a large flow too.
    ten = [{"name": f"Audit {number}", "rule": "output.text != ''"} for number in range(10)]
    scored = make_step(2, output_schema=LIST, audits=[{"name": "Scored", "rule": "true"}])
    others = (make_step(number, audits=ten) for number in range(3, 21))
    open_flow(page, make_step(1, output_schema=LIST), scored, *others)
    expect(outline(page).locator(".row")).to_have_count(203)
    resize(page, 390)
    assert_fits(page)
    resize(page, 1_440)
    row(page, "Scored").click()
    base = "/steps/1/audits/0"
    rule = field(page, f"{base}/rule")
    for typed, offered in (
        ("steps[1].output.", ["clauses"]),
        ("output.clauses.all(c, c.s", ["score"]),
    ):
        rule.fill("")
        rule.press_sequentially(typed)
        expect(page.get_by_role("listbox").locator("code")).to_have_text(offered)
    rule.press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    page.get_by_role("button", name="Variables for Passes when").click()
    tree = page.get_by_role("tree")
    expect(tree.get_by_role("treeitem").filter(has_text="clauses")).to_be_visible()
    tree.press("Escape")
    expect(tree).to_have_count(0)
    expect(rule).to_be_focused()
    # A rule of each item has the names of the item.
    rule.fill("")
    for name, typed in (("for_each", "output.cl"), ("rule", "item.s"), ("message_template", "Clause {item.n")):
        field(page, f"{base}/{name}").press_sequentially(typed)
        field(page, f"{base}/{name}").press("Enter")
    assert page.evaluate(f"ToolFlow.flow.get('{base}')") == {
        "name": "Scored",
        "for_each": "output.clauses",
        "rule": "item.score",
        "message_template": "Clause {item.number}",
    }


def test_parts_are_moved_and_mistakes_shown_and_nothing_typed_is_lost_or_overwritten(
    admin_page: Page, context: BrowserContext, base_url: str
) -> None:
    page = admin_page
    audits = [{"name": f"Audit {letter}", "rule": "true"} for letter in "AB"]
    open_flow(page, make_step(1), make_step(2, audits=audits), make_step(3, include_results=[1, 2]))
    row(page, "Step 2").click()
    page.get_by_role("button", name="Delete the step").click()
    assert names(page) == ["Step 1", "Step 3"]
    expect(page.get_by_role("status").filter(has_text="Undo brings it back")).to_be_attached()
    expect(page.get_by_role("group", name="Show attempts and issues of").get_by_role("checkbox")).to_be_checked()
    page.get_by_role("button", name="Undo").click()
    assert names(page) == ["Step 1", "Step 2", "Step 3"]
    row(page, "Audit A").press("Delete")
    expect(row(page, "Audit A")).to_have_count(0)
    # Outside of fields, the keys of undo are ours.
    page.keyboard.press("Control+z")
    expect(row(page, "Audit A")).to_be_visible()
    expect(page.locator("#editor-draft")).to_be_empty()
    field(page, "/steps/1/system_message").fill("Typed.")
    page.get_by_role("button", name="Undo").click()
    expect(field(page, "/steps/1/system_message")).not_to_have_value("Typed.")

    row(page, "Step 1").click()
    page.keyboard.press("Alt+Shift+ArrowDown")
    assert names(page) == ["Step 2", "Step 1", "Step 3"]
    expect(row(page, "Step 1")).to_be_focused()
    row(page, "Step 3").drag_to(row(page, "Step 2"))
    assert names(page) == ["Step 3", "Step 2", "Step 1"]
    row(page, "Audit B").click()
    grips = page.locator("[data-act=audit-grip]")
    grips.last.press("Alt+Shift+ArrowUp")
    expect(grips.first).to_be_focused()
    for _ in range(2):
        grips.last.drag_to(page.locator("[data-audit]").first)
    spec = save(page).flow_spec
    assert [step.name for step in spec.steps] == ["Step 3", "Step 2", "Step 1"]
    assert [audit.name for audit in spec.steps[1].audits] == ["Audit B", "Audit A"]
    # They come after it now.
    assert spec.steps[0].include_results == ()

    def switch() -> None:
        page.locator(".editor-menu summary").click()
        page.locator("#editor-mode").click()

    row(page, "Step 3").click()
    field(page, "/steps/0/system_message").fill("Typed before.")
    switch()
    area = page.get_by_role("textbox", name="The flow as a file")
    expect(area).to_have_value(re.compile("Typed before"))
    text = area.input_value()
    area.fill(text + "\n  - [")
    switch()
    expect(page.locator("#editor-problems")).to_contain_text("Line ")
    area.fill(text.replace("Typed before.", "Typed as text."))
    switch()
    expect(field(page, "/steps/0/system_message")).to_have_value("Typed as text.")
    switch()
    area.fill(text.replace("Typed before.", "Saved as text."))
    assert save(page, 3).flow_spec.steps[0].system_message == "Saved as text."

    flow = open_flow(page, make_step(1), make_step(2, audits=[NOT_EMPTY]), make_step(3), name="invoices")
    url = page.url
    for pointer, (typed, _) in MISTAKES.items():
        go_to(page, pointer)
        field(page, pointer).fill(typed)
    press_save(page)
    expect(field(page, "/time_limit")).to_be_focused()
    expect(page.get_by_role("button", name="5 problems to fix")).to_be_visible()
    for name, words in (("Flow and limits", "1 problem"), ("Step 2", "2 problems"), ("Not empty", "1 problem")):
        expect(row(page, name)).to_contain_text(words)
    for pointer, (_, sentence) in MISTAKES.items():
        go_to(page, pointer)
        expect(remarks(page, pointer)).to_contain_text(sentence)
        expect(field(page, pointer)).to_have_attribute("aria-invalid", "true")
    assert flow.versions.count() == 1
    # A draft may be anything, and survives a page that is closed.
    wait_for_draft(page)
    page.close(run_before_unload=False)
    page = context.new_page()
    page.goto(url)
    for pointer in ("/time_limit", "/steps/1/output_schema"):
        go_to(page, pointer)
        expect(field(page, pointer)).to_have_value(MISTAKES[pointer][0])
    page.locator(".editor-menu summary").click()
    page.get_by_role("button", name="Discard the draft").click()
    expect(page.locator("#editor-draft")).to_be_empty()
    assert not FlowDraft.objects.exists()

    bob = User.objects.create_user("bob")
    FlowDraft.objects.create(flow=flow, user=bob, document={"title": "Bob’s"}, base_version=1)
    go_to(page, "/steps/0/system_message")
    field(page, "/steps/0/system_message").fill("Mine.")
    expect(page.get_by_role("note").filter(has_text="bob has a draft")).to_be_visible()
    publish_flow(spec=make_page_flow(make_step(1), make_step(2), title="Theirs", name="invoices"), flow=flow, by=bob)
    press_save(page)
    conflict = page.get_by_role("region", name="Not saved: the flow was saved while you were editing it")
    expect(conflict).to_be_focused()
    expect(conflict).to_contain_text("Theirs")
    assert flow.versions.count() == 2
    # Pressed again the same way, it asks again.
    with page.expect_response(lambda answer: answer.status == 409):
        press_save(page)
    expect(page.locator(".is-saving")).to_have_count(0)
    conflict.get_by_role("button", name=re.compile("Save|Overwrite")).locator("visible=true").click()
    expect(page.get_by_text("Saved as version 3")).to_be_visible()
    assert flow.versions.get(number=3).flow_spec.steps[0].system_message == "Mine."
    assert FlowDraft.objects.get().user == bob

    reader = User.objects.create_user("reader", is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_flow"))
    sign_in_context(context, base_url, reader)
    page.goto(url)
    row(page, "Not empty").click()
    expect(field(page, "/steps/1/audits/0/rule")).not_to_be_editable()
    expect(page.get_by_role("button", name="Delete the step")).to_be_hidden()
    expect(page.get_by_role("button", name="Save", exact=True)).to_have_count(0)
    page.keyboard.press("Control+s")
    assert flow.versions.count() == 3


def test_settings_are_offered_schemas_made_in_each_way_and_rules_judged_while_one_types(
    admin_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = admin_page
    first = make_step(1, audits=[NOT_EMPTY], input_sanitizer="value")
    open_flow(page, first, make_step(2, output_schema=LIST), make_step(3, compute="previous"))
    base, part = "/steps/0/output_schema", page.locator("#editor-part")
    row(page, "Not empty").click()
    warns = page.get_by_role("group", name="What an issue does").get_by_role("button", name="Warns")
    warns.click()
    expect(warns).to_be_focused()
    expect(row(page, "Not empty")).to_contain_text("Warns")
    expect(field(page, "/steps/0/input_sanitizer")).to_be_visible()
    expect(field(page, "/steps/0/output_sanitizer")).to_be_hidden()
    # What a model refuses is greyed with its reason.
    row(page, "Step 1").first.click()
    field(page, "/steps/0/model").fill("gpt-5-mini")
    said, effort = page.locator("[data-model-said]"), field(page, "/steps/0/reasoning_effort")
    expect(said).to_contain_text("$0.25 in, $2.00 out per million tokens")
    expect(effort.locator("option", has_text="GPT-5 does not take it").first).to_be_disabled()
    effort.select_option("low")
    field(page, "/steps/0/service_tier").select_option("flex")
    expect(said).to_contain_text("$0.125 in")

    def choose(tab: str, button: str = "") -> None:
        part.get_by_role("tab", name=tab).click()
        if button:
            part.get_by_role("button", name=button).click()

    part.get_by_role("tab", name="Fields").press("ArrowRight")
    expect(part.get_by_role("tab", name="JSON")).to_be_focused()
    choose("From an example")
    part.get_by_label("An example JSON object").fill('{"mood": "calm", "tags": []}')
    choose("From an example", "Make the schema")
    expect(part.get_by_role("status")).to_contain_text("tags is an empty")
    expect(part.get_by_role("row").filter(has_text="mood")).to_be_visible()
    choose("From a step")
    part.get_by_label("Step whose schema is taken").select_option(label="2 Step 2")
    choose("From a step", "Take its schema")
    expect(part.get_by_role("row").filter(has_text="clauses[].score")).to_be_visible()
    choose("JSON")
    field(page, base).fill('{"type": "object", "properties": {"mood": {"type": "string"}}}')
    choose("JSON", "Make strict")
    part.get_by_role("button", name="May be null").click()
    expect(field(page, base)).to_have_value(re.compile('"null"'))
    choose("Registered type")
    part.get_by_label("Registered type", exact=True).last.select_option("colour_suite")
    choose("Registered type", "Use the type")
    expect(part.get_by_text("Outputs are of the registered type")).to_be_visible()
    part.get_by_role("button", name="Use a schema instead").click()
    part.get_by_label("Registered type", exact=True).last.select_option("colour_suite")
    choose("Registered type", "Copy its schema")
    expect(part.get_by_role("row").filter(has_text="on_primary").first).to_be_visible()
    page.get_by_role("group", name="Who does the step").get_by_role("button", name="Local step").click()
    expect(field(page, "/steps/0/compute")).to_have_value("previous")
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Save and make live").click()
    expect(page.get_by_text("Saved as version 2, which is live")).to_be_visible()
    step = FlowVersion.objects.get(number=2).flow_spec.steps[0]
    assert (step.model, step.reasoning_effort, step.audits[0].fail_at) == ("gpt-5-mini", "low", "never")
    assert step.output_type is None
    assert "on_primary" in (step.output_schema or {})["properties"]

    monkeypatch.setattr(providers, "SIMULATED_LATENCY", 0.0)
    spec = make_page_flow(make_step(1, audits=(LONG,)), make_step(2), name="judged")
    open_flow(page, *spec.steps, name="judged")
    for text in ("tea", "شاي أخضر", "green tea"):
        make_stored_run(make_attempt(1, output={"text": text}), spec=spec)
    newest = Run.objects.latest("pk")
    page.reload()
    row(page, "Long").click()
    rule, live = field(page, RULE), page.get_by_role("complementary", name="Live check")
    headline = live.locator("#live-judged h3")
    expect(headline).to_have_text("Judged again on the last 3 outputs: 3 pass, 0 fail; none would change")
    rule.fill("output.text.size() > 8")
    expect(headline).to_have_text("Judged again on the last 3 outputs: 1 pass, 2 fail; 2 would change")
    expect(live.locator(".live-square.would-change")).to_have_count(2)
    expect(live.locator(".live-value").first).to_have_attribute("dir", "rtl")
    # Half a rule can't be judged: the last answer stays, and the problem is reported with a way to it.
    rule.fill("output.text.size() >")
    expect(live.get_by_text("Can’t be judged.")).to_be_visible()
    expect(live.locator(".is-stale .live-square")).to_have_count(3)
    live.locator("#live-lint a").first.click()
    expect(rule).to_be_focused()
    rule.fill("output.text.size() > 2")
    expect(headline).to_have_text(re.compile("3 pass, 0 fail; none would change"))
    expect(live.locator(".is-stale")).to_have_count(0)

    # On a phone. Nothing would change: the list is open.
    page.set_viewport_size({"width": 390, "height": 844})
    live.locator("#live-others > summary").focus()
    # What is unfolded, and what has the focus, stays so with the next answer.
    page.evaluate(f"ToolFlow.flow.set('{RULE}', 'output.text.size() > 3')")
    expect(live.locator(".live-square.would-change")).to_have_count(1)
    expect(live.locator("#live-others[open] > summary")).to_be_focused()
    live.locator("#live-try > summary").press("Enter")
    expect(live.get_by_label("On", exact=True)).to_have_value(str(newest.pk))
    live.get_by_role("button", name="Invent an output").press("Enter")
    expect(live.locator("#try-verdict .state").first).to_be_visible()
    assert_fits(page)

    live.locator("#try-message-1 > summary").click()
    field(page, "/steps/0/system_message").fill("Answer in verse.")
    expect(live.locator("#try-message-1[open]")).to_contain_text("Answer in verse.")
    calls: list[str] = []
    page.on(
        "request", lambda request: calls.append(request.url) if "call" in (request.post_data or "")[-200:] else None
    )
    live.get_by_role("button", name="Send to the model once").dblclick()
    expect(live.get_by_text("What the model answered")).to_be_visible()
    # The answer is at hand, to be held against other rules.
    live.locator("#try-output-box > summary").click()
    expect(live.get_by_label("Output (JSON)")).not_to_be_empty()
    assert (len(calls), Run.objects.count()) == (1, 3)
    # Another step has outputs of its own.
    row(page, "Step 2").click()
    expect(live.get_by_text("No outputs to judge yet")).to_be_visible()
