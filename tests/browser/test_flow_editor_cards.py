"""The cards of the flow editor: moved, copied, added and deleted, by mouse and by keyboard; nothing typed is lost."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from playwright.sync_api import BrowserContext, Locator, Page, expect

from flows.models import AuditRule, StepDefinition
from tests.browser.conftest import sign_in_context
from tests.browser.editor import open_flow, press_save, save, step, tool
from tests.browser.widths import assert_fits, open_all_folds, resize
from tests.engine.builders import make_step

TWO_AUDITS = [{"name": "Not empty", "rule": "output.text != ''"}, {"name": "Short", "rule": "output.text != 'long'"}]


@pytest.fixture
def editor(admin_page: Page) -> Page:
    """The editor of a flow of three steps: the second includes the first, the third both; the first has two audits."""
    open_flow(
        admin_page,
        make_step(1, name="Extract", tool_name="extract", audits=TWO_AUDITS),
        make_step(2, name="Check", tool_name="check", include_results=[1]),
        make_step(3, name="Book", tool_name="book", include_results=[0, 1, 2]),
    )
    return admin_page


def titles(page: Page) -> list[str]:
    """The names of the steps from top to bottom, without those that are deleted."""
    return page.locator(".step:not(.djn-empty-form, .grp-predelete) .step-title").all_inner_texts()


def included(page: Page, name: str) -> Locator:
    return step(page, name).locator("[name$=-include_results]")


def stored_names() -> list[str]:
    return [row.name for row in StepDefinition.objects.all()]


def status(page: Page) -> Locator:
    return page.locator(".editor-status")


def drag(page: Page, card: Locator, target: Locator) -> None:
    """Take a card by its handle and let it go at the lower end of another."""
    card.locator(":scope > .card-tools > .drag-handler").hover()
    page.mouse.down()
    box = target.bounding_box()
    assert box is not None
    for part in (0.3, 0.6, 0.9, 0.95):
        page.mouse.move(box["x"] + 40, box["y"] + box["height"] * part, steps=4)
    page.mouse.up()


def test_steps_are_moved_by_keyboard_and_saved_in_their_new_order(editor: Page) -> None:
    down = tool(step(editor, "Extract"), "Move down")
    down.press("Enter")
    expect(status(editor)).to_contain_text("Step “Extract” moved to place 2 of 3.")
    expect(down).to_be_focused()
    editor.keyboard.press("Space")
    editor.keyboard.press("Enter")
    expect(status(editor)).to_have_text("Step “Extract” is the last already.")
    assert titles(editor) == ["Check", "Book", "Extract"]
    # Numbers that would name a later step stay, for the server to tell.
    expect(included(editor, "Check")).to_have_value("3")
    press_save(editor)
    expect(editor.get_by_role("alert")).to_contain_text("can't include the results of step 3")
    for name in ("Check", "Book"):
        included(editor, name).fill("0")
    save(editor)
    assert stored_names() == ["Check", "Book", "Extract"]


def test_steps_and_audits_are_moved_with_the_mouse(editor: Page) -> None:
    extract, check = step(editor, "Extract"), step(editor, "Check")
    check.locator("summary").first.click()
    check.get_by_role("button", name="Add an audit").click()
    editor.keyboard.type("Second")
    check.get_by_label("Rule").first.fill("true")
    resize(editor, 1_280, 3_000)
    drag(editor, extract.locator(".audit").first, check.locator(".audit").first)
    expect(status(editor)).to_contain_text("Audit “Not empty” moved to place 2 of 2.")
    editor.get_by_role("button", name="Collapse all").click()
    drag(editor, extract, check)
    expect(status(editor)).to_contain_text("Step “Extract” moved to place 2 of 3.")
    expect(included(editor, "Book")).to_have_value("0, 2, 1")
    included(editor, "Check").evaluate("(field) => { field.value = '' }")
    save(editor)
    assert stored_names() == ["Check", "Extract", "Book"]
    assert AuditRule.objects.get(name="Not empty").step.name == "Check"


def test_a_step_is_copied_with_its_audits_and_what_is_typed_in_them(editor: Page) -> None:
    card = step(editor, "Extract")
    card.get_by_label("System message").fill("Read it.\nTwice.")
    card.get_by_label("Stop on failure").uncheck()
    card.get_by_label("Rule").last.fill("output.text == 'x'")
    card.get_by_label("Severity", exact=True).last.select_option("low")
    tool(card.get_by_role("group", name="Audit").first, "Move down").press("Enter")
    tool(card, "Duplicate").click()
    expect(editor.locator(":focus")).to_have_value("Extract copy")
    expect(status(editor)).to_contain_text("was duplicated with 2 audits: the copy is at place 2 of 4.")
    expect(included(editor, "Book")).to_have_value("0, 1, 3")
    tool(card, "Duplicate").click()
    assert titles(editor) == ["Extract", "Extract copy 2", "Extract copy", "Check", "Book"]
    save(editor)
    copy = StepDefinition.objects.get(name="Extract copy")
    assert (copy.tool_name, copy.system_message, copy.stop_on_failure) == ("extract_copy", "Read it.\nTwice.", False)
    assert [(row.name, row.rule, row.severity) for row in copy.audits.all()] == [
        ("Short", "output.text == 'x'", "low"),
        ("Not empty", "output.text != ''", "critical"),
    ]


def test_a_step_is_added_between_two_others(editor: Page) -> None:
    tool(step(editor, "Extract"), "Insert a step after this one").click()
    editor.keyboard.type("Look up")
    assert titles(editor) == ["Extract", "Look up", "Check", "Book"]
    added = step(editor, "Look up")
    expect(added.get_by_label("Tool name")).to_have_value("look_up")
    added.get_by_text("Local step").click()
    added.get_by_label("Compute the output").fill("{'text': 'x'}")
    expect(added.get_by_label("System message")).to_be_hidden()
    save(editor)
    assert stored_names() == ["Extract", "Look up", "Check", "Book"]
    assert StepDefinition.objects.get(name="Book").include_results == [0, 1, 3]


def test_steps_are_deleted_and_kept_and_numbers_follow(editor: Page) -> None:
    tool(step(editor, "Extract"), "Delete").press("Enter")
    expect(editor.get_by_text("Step “Extract” will be deleted when you save")).to_be_visible()
    expect(included(editor, "Book")).to_have_value("0, 1")
    expect(status(editor)).to_contain_text("step “Book”: 0, 1, 2 → 0, 1")
    expect(editor.get_by_role("button", name="Keep it")).to_be_focused()
    editor.keyboard.press("Enter")
    expect(included(editor, "Book")).to_have_value("0, 1, 2")
    expect(tool(step(editor, "Extract"), "Delete")).to_be_focused()
    editor.keyboard.press("Enter")
    editor.get_by_role("button", name="Add a step").click()
    editor.keyboard.type("Fourth")
    card = step(editor, "Fourth")
    tool(card, "Delete").click()
    expect(editor.get_by_text("Step “Fourth” is new and will not be saved")).to_be_visible()
    editor.get_by_role("button", name="Keep it").last.click()
    expect(card.get_by_label("Name").first).to_have_value("Fourth")
    tool(card, "Delete").click()
    # What was deleted is deleted still after a save that failed.
    step(editor, "Check").get_by_label("Tool name").evaluate("(field) => { field.value = 'no good name' }")
    press_save(editor)
    expect(editor.get_by_role("alert")).to_contain_text("Not saved: 1 problem to fix")
    expect(editor.get_by_text("Step “Extract” will be deleted when you save")).to_be_visible()
    # Cards with problems stay open.
    editor.get_by_role("button", name="Collapse all").click()
    step(editor, "Check").get_by_label("Tool name").fill("good_name")
    save(editor)
    assert stored_names() == ["Check", "Book"]


def test_cards_fit_a_phone_and_stay_open_over_a_save(editor: Page) -> None:
    resize(editor, 390)
    open_all_folds(editor)
    tool(step(editor, "Extract"), "Duplicate").click()
    tool(step(editor, "Extract copy"), "Delete").click()
    assert_fits(editor)
    editor.get_by_role("button", name="Collapse all").click()
    step(editor, "Book").locator("summary").first.click()
    step(editor, "Book").get_by_label("Retries").fill("1")
    save(editor)
    expect(step(editor, "Book").get_by_label("Retries")).to_be_visible()
    expect(step(editor, "Extract").get_by_label("Retries")).to_be_hidden()


def test_whoever_may_only_see_flows_folds_cards_and_reads(page: Page, context: BrowserContext, base_url: str) -> None:
    viewer = User.objects.create_user("vera", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_flow"))
    sign_in_context(context, base_url, viewer)
    open_flow(page, make_step(1, name="Extract", audits=TWO_AUDITS), make_step(2))
    expect(page.get_by_text("output.text != ''")).to_be_visible()
    page.get_by_role("button", name="Collapse all").click()
    expect(page.get_by_text("output.text != ''")).to_be_hidden()
    expect(page.locator(".steps button:visible")).to_have_count(2)
    expect(page.locator(".steps").locator("input:visible, textarea, select")).to_have_count(0)
