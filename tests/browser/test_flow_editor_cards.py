"""The cards of the flow editor: moved, copied, added and deleted, by mouse and by keyboard; nothing typed is lost."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from playwright.sync_api import BrowserContext, Locator, Page, expect

from flows.models import AuditRule, Flow, StepDefinition
from flows.portability import load_flow
from tests.browser.widths import assert_fits, open_all_folds
from tests.engine.builders import make_flow, make_step

AUDITS = [{"name": "Not empty", "rule": "output.text != ''"}, {"name": "Short", "rule": "output.text != 'long'"}]


@pytest.fixture
def editor(admin_page: Page) -> Page:
    """The editor of a flow of three steps: the second includes the first, the third both; the first has two audits."""
    open_flow(
        admin_page,
        make_step(1, name="Extract", tool_name="extract", audits=AUDITS),
        make_step(2, name="Check", tool_name="check", include_results=[1]),
        make_step(3, name="Book", tool_name="book", include_results=[0, 1, 2]),
    )
    return admin_page


def open_flow(page: Page, *steps: Any) -> None:
    flow = load_flow(document=make_flow(*steps).to_document()).flow
    page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))


def step(page: Page, name: str) -> Locator:
    """The card of the step with this name."""
    return page.get_by_role("group", name=f"“{name}”").and_(page.locator(".step"))


def tool(card: Locator, name: str) -> Locator:
    """A button of the card itself."""
    return card.locator(":scope > .card-tools").get_by_role("button", name=name, exact=True)


def titles(page: Page) -> list[str]:
    """The names of the steps from top to bottom, without those that are deleted."""
    return page.locator(".step:not(.djn-empty-form, .grp-predelete) .step-title").all_inner_texts()


def included(page: Page, name: str) -> Locator:
    return step(page, name).locator("[name$=-include_results]")


def save(page: Page) -> None:
    with page.expect_navigation():
        page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 2")).to_be_visible()


def stored_names() -> list[str]:
    return [row.name for row in StepDefinition.objects.all()]


def status(page: Page) -> Locator:
    return page.locator(".editor-status")


# Moving


def test_steps_are_moved_by_keyboard_and_the_focus_stays_on_the_button(editor: Page) -> None:
    down = tool(step(editor, "Extract"), "Move down")
    down.focus()
    editor.keyboard.press("Enter")
    expect(status(editor)).to_contain_text("Step “Extract” moved to place 2 of 3.")
    expect(down).to_be_focused()
    editor.keyboard.press("Space")
    assert titles(editor) == ["Check", "Book", "Extract"]
    editor.keyboard.press("Enter")
    expect(status(editor)).to_have_text("Step “Extract” is the last already.")
    tool(step(editor, "Check"), "Move down").focus()
    editor.keyboard.press("Enter")
    expect(editor.get_by_role("group", name="Step 1 “Book”")).to_be_visible()


def test_a_moved_order_is_saved(editor: Page) -> None:
    tool(step(editor, "Book"), "Move up").click()
    included(editor, "Book").evaluate("(field) => { field.value = '' }")
    tool(step(editor, "Book"), "Move up").click()
    save(editor)
    assert stored_names() == ["Book", "Extract", "Check"]
    assert titles(editor) == ["Book", "Extract", "Check"]


def drag(page: Page, card: Locator, target: Locator) -> None:
    """Take a card by its handle and let it go at the lower end of another."""
    card.locator(":scope > .card-tools > .drag-handler").hover()
    page.mouse.down()
    box = target.bounding_box()
    assert box is not None
    middle = box["x"] + 40
    for part in (0.3, 0.6, 0.9, 0.95):
        page.mouse.move(middle, box["y"] + box["height"] * part, steps=4)
    page.mouse.up()


def test_a_step_is_moved_with_the_mouse(editor: Page) -> None:
    editor.get_by_role("button", name="Collapse all").click()
    drag(editor, step(editor, "Extract"), step(editor, "Check"))
    expect(status(editor)).to_contain_text("Step “Extract” moved to place 2 of 3.")
    assert titles(editor) == ["Check", "Extract", "Book"]
    expect(included(editor, "Book")).to_have_value("0, 2, 1")


def test_an_audit_is_dragged_into_another_step(editor: Page) -> None:
    step(editor, "Check").locator("summary").first.click()
    step(editor, "Check").get_by_role("button", name="Add an audit").click()
    editor.keyboard.type("Second")
    step(editor, "Check").get_by_label("Rule").first.fill("true")
    first, second = step(editor, "Extract").locator(".audit").first, step(editor, "Check").locator(".audit").first
    editor.set_viewport_size({"width": 1280, "height": 3000})
    drag(editor, first, second)
    expect(status(editor)).to_contain_text("Audit “Not empty” moved to place 2 of 2.")
    expect(step(editor, "Check").locator(".step-audits")).to_have_text("2 audits")
    save(editor)
    assert AuditRule.objects.get(name="Not empty").step.name == "Check"


def test_audits_are_moved_and_copied(editor: Page) -> None:
    audits = step(editor, "Extract").get_by_role("group", name="Audit")
    tool(audits.first, "Move down").press("Enter")
    expect(status(editor)).to_have_text("Audit “Not empty” moved to place 2 of 2.")
    tool(audits.first, "Duplicate").press("Enter")
    expect(editor.locator(":focus")).to_have_value("Short copy")
    save(editor)
    assert [row.name for row in AuditRule.objects.all()] == ["Short", "Short copy", "Not empty"]


# Adding


def test_a_step_is_copied_with_its_audits_and_what_is_typed_in_them(editor: Page) -> None:
    card = step(editor, "Extract")
    card.get_by_label("System message").fill("Read it.\nTwice.")
    card.get_by_label("Retries").fill("7")
    card.get_by_label("Stop on failure").uncheck()
    card.get_by_label("Rule").last.fill("output.text == 'x'")
    card.get_by_label("Severity", exact=True).last.select_option("low")
    tool(card, "Duplicate").click()
    expect(editor.locator(":focus")).to_have_value("Extract copy")
    expect(status(editor)).to_contain_text("was duplicated with 2 audits: the copy is at place 2 of 4.")
    expect(included(editor, "Book")).to_have_value("0, 1, 3")
    tool(card, "Duplicate").click()
    assert titles(editor) == ["Extract", "Extract copy 2", "Extract copy", "Check", "Book"]
    save(editor)
    copy = StepDefinition.objects.get(name="Extract copy")
    assert (copy.tool_name, copy.system_message, copy.max_retries) == ("extract_copy", "Read it.\nTwice.", 7)
    assert copy.stop_on_failure is False
    assert copy.output_schema == StepDefinition.objects.get(name="Extract").output_schema
    assert [(row.name, row.rule, row.severity) for row in copy.audits.all()] == [
        ("Not empty", "output.text != ''", "critical"),
        ("Short", "output.text == 'x'", "low"),
    ]
    assert StepDefinition.objects.get(name="Extract copy 2").tool_name == "extract_copy_2"


def test_a_step_is_added_between_two_others(editor: Page) -> None:
    tool(step(editor, "Extract"), "Insert a step after this one").click()
    expect(status(editor)).to_contain_text("A step was added at place 2 of 4.")
    editor.keyboard.type("Look up")
    assert titles(editor) == ["Extract", "Look up", "Check", "Book"]
    added = step(editor, "Look up")
    expect(added.get_by_label("Tool name")).to_have_value("look_up")
    expect(included(editor, "Book")).to_have_value("0, 1, 3")
    added.get_by_text("No model: compute the output here").click()
    added.get_by_label("Compute the output").fill("{'text': 'x'}")
    expect(added.get_by_label("System message")).to_be_hidden()
    expect(added.locator("summary").first).to_contain_text("computed here")
    save(editor)
    assert stored_names() == ["Extract", "Look up", "Check", "Book"]
    assert StepDefinition.objects.get(name="Book").include_results == [0, 1, 3]


# Deleting


def test_a_stored_step_is_deleted_and_kept_and_numbers_follow(editor: Page) -> None:
    tool(step(editor, "Extract"), "Delete").press("Enter")
    expect(editor.get_by_text("Step “Extract” will be deleted when you save")).to_be_visible()
    assert titles(editor) == ["Check", "Book"]
    expect(included(editor, "Check")).to_have_value("")
    expect(included(editor, "Book")).to_have_value("0, 1")
    expect(status(editor)).to_contain_text("step “Book”: 0, 1, 2 → 0, 1")
    expect(editor.get_by_role("button", name="Keep it")).to_be_focused()
    editor.keyboard.press("Enter")
    assert titles(editor) == ["Extract", "Check", "Book"]
    expect(included(editor, "Check")).to_have_value("1")
    expect(included(editor, "Book")).to_have_value("0, 1, 2")
    expect(tool(step(editor, "Extract"), "Delete")).to_be_focused()
    editor.keyboard.press("Enter")
    save(editor)
    assert stored_names() == ["Check", "Book"]


def test_a_new_step_is_deleted_and_kept_with_what_was_typed(editor: Page) -> None:
    editor.get_by_role("button", name="Add a step").click()
    editor.keyboard.type("Fourth")
    card = step(editor, "Fourth")
    tool(card, "Delete").click()
    expect(editor.get_by_text("Step “Fourth” is new and will not be saved")).to_be_visible()
    editor.get_by_role("button", name="Keep it").click()
    expect(card.get_by_label("Name").first).to_have_value("Fourth")
    tool(card, "Delete").click()
    step(editor, "Check").locator("summary").first.click()
    step(editor, "Check").get_by_label("Retries").fill("1")
    save(editor)
    assert stored_names() == ["Extract", "Check", "Book"]


def test_what_was_deleted_is_deleted_still_after_a_save_that_failed(editor: Page) -> None:
    audit = step(editor, "Extract").get_by_role("group", name="Audit 1")
    tool(audit, "Delete").click()
    step(editor, "Extract").get_by_label("Tool name").fill("no good name")
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(editor.get_by_role("alert")).to_contain_text("Not saved: one thing must be mended first.")
    expect(editor.get_by_text("Audit “Not empty” will be deleted when you save")).to_be_visible()
    editor.get_by_role("button", name="Keep it").click()
    step(editor, "Extract").get_by_label("Tool name").fill("good_name")
    save(editor)
    assert AuditRule.objects.count() == 2


def test_numbers_that_would_name_a_later_step_stay_for_the_server_to_tell(editor: Page) -> None:
    tool(step(editor, "Check"), "Move up").click()
    expect(included(editor, "Check")).to_have_value("2")
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(editor.get_by_role("alert")).to_contain_text("Step 1 can't include the results of step 2")


# Folding


def test_all_cards_are_folded_and_unfolded_but_those_with_problems_stay_open(editor: Page) -> None:
    editor.get_by_role("button", name="Expand all").click()
    expect(editor.locator(".djn-item > .step-fold[open]")).to_have_count(3)
    step(editor, "Check").get_by_label("Tool name").fill("no good name")
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(step(editor, "Check").locator("summary").first).to_contain_text("1 problem")
    editor.get_by_role("button", name="Expand all").click()
    editor.get_by_role("button", name="Collapse all").click()
    expect(editor.locator(".djn-item > .step-fold[open]")).to_have_count(1)
    expect(step(editor, "Check").get_by_label("Tool name")).to_be_visible()


def test_cards_stay_open_over_a_save(editor: Page) -> None:
    editor.get_by_role("button", name="Collapse all").click()
    step(editor, "Book").locator("summary").first.click()
    step(editor, "Book").get_by_label("Retries").fill("1")
    save(editor)
    expect(step(editor, "Book").get_by_label("Retries")).to_be_visible()
    expect(step(editor, "Extract").get_by_label("Retries")).to_be_hidden()


def test_everything_fits_a_phone(editor: Page) -> None:
    editor.set_viewport_size({"width": 390, "height": 800})
    open_all_folds(editor)
    assert_fits(editor)
    tool(step(editor, "Check"), "Delete").click()
    tool(step(editor, "Extract"), "Duplicate").click()
    assert_fits(editor)


def test_every_button_and_field_has_a_name(editor: Page) -> None:
    open_all_folds(editor)
    nameless = editor.get_by_role("button", name="").or_(editor.get_by_role("textbox", name=""))
    for control in nameless.all():
        assert control.get_attribute("title") or control.inner_text() or control.get_attribute("id"), control


def test_whoever_may_only_see_flows_folds_cards_and_reads(page: Page, context: BrowserContext, base_url: str) -> None:
    viewer = User.objects.create_user("vera", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_flow"))
    client = Client()
    client.force_login(viewer)
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": base_url}])
    open_flow(page, make_step(1, name="Extract", audits=AUDITS), make_step(2))
    expect(page.get_by_text("output.text != ''")).to_be_visible()
    page.get_by_role("button", name="Collapse all").click()
    expect(page.get_by_text("output.text != ''")).to_be_hidden()
    expect(page.locator(".steps button:visible")).to_have_count(2)
    expect(page.locator(".steps").locator("input:visible, textarea, select")).to_have_count(0)
    assert Flow.objects.count() == 1
