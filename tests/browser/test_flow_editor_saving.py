"""Saving in the flow editor: mistakes are shown where they are, nothing typed is lost, nothing unseen overwritten."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from flows.models import FlowVersion, StepDefinition
from tests.browser.editor import field, open_flow, press_save, save, step, tool
from tests.browser.widths import assert_fits, open_all_folds, resize
from tests.engine.builders import make_step
from tests.flows.editor_page import EditorPage

MISTAKES = {
    "steps-0-max_retries": ("-1", "greater than or equal to 0"),
    "steps-1-output_schema": ('{"type": "object",\n "properties": {,}}', "Line 2, column"),
    "steps-1-audits-0-rule": ("outputs.text != ''", "Unknown variable “outputs”"),
}


@pytest.fixture
def editor(admin_page: Page, accepted_dialogs: list[str]) -> Page:
    """The editor of a flow with three steps, the second of which has an audit."""
    audits = [{"name": "Not empty", "rule": "output.text != ''"}]
    open_flow(admin_page, make_step(1), make_step(2, audits=audits), make_step(3), title="Invoices")
    return admin_page


def type_in(page: Page, name: str, text: str) -> None:
    open_all_folds(page)
    field(page, name).fill(text)


def save_as_bob(page: Page, **steps: dict[str, str]) -> None:
    """Somebody else changes steps and saves, while the browser has the flow open."""
    client = Client()
    client.force_login(User.objects.create_superuser("bob", password="secret"))
    theirs = EditorPage(client, page.url)
    for name, values in steps.items():
        theirs.fill(f"{name}-", **values)
    theirs.save()


def test_mistakes_are_shown_in_place_reached_by_links_and_every_typed_character_stays(editor: Page) -> None:
    typed = {name: text for name, (text, _) in MISTAKES.items()} | {
        "note": "Mistakes.",
        "steps-2-system_message": "  Two lines,\n\nwith “signs” & <markup>. ",
    }
    for name, text in typed.items():
        type_in(editor, name, text)
    press_save(editor)
    expect(editor.get_by_role("alert").filter(has_text="Not saved")).to_be_focused()
    for name, text in typed.items():
        expect(field(editor, name)).to_have_value(text)
    for place, (name, (_, sentence)) in enumerate(MISTAKES.items()):
        expect(editor.locator(f"#id_{name}_error")).to_contain_text(sentence)
        expect(field(editor, name)).to_have_attribute("aria-invalid", "true")
        editor.evaluate("document.querySelectorAll('.flow-editor details').forEach((fold) => { fold.open = false })")
        editor.locator(".problems a").nth(place).press("Enter")
        expect(field(editor, name)).to_be_focused()
        expect(field(editor, name)).to_be_in_viewport()
    assert FlowVersion.objects.count() == 1
    type_in(editor, "steps-0-max_retries", "1")
    type_in(editor, "steps-1-audits-0-rule", "output.text != ''")
    type_in(editor, "steps-1-output_schema", field(editor, "steps-0-output_schema").input_value())
    editor.get_by_role("button", name="Save and make live").click()
    expect(editor.locator(".messagelist")).to_have_text("Saved as version 2, which is live: new runs use it.")


def test_in_a_conflict_the_second_sees_the_difference_and_saves_all_the_same(editor: Page) -> None:
    resize(editor, 390)
    type_in(editor, "steps-1-system_message", "Mine, and much of it. " * 20)
    save_as_bob(editor, **{"steps-0": {"DELETE": "on"}, "steps-1": {"system_message": "Theirs. " * 50}})
    # Enter in a field overwrites nothing either.
    for _ in range(2):
        field(editor, "title").press("Enter")
        expect(editor.locator(".conflict")).to_be_focused()
    notice = editor.get_by_role("region", name="Not saved: the flow was saved while you were editing it")
    for text in ("bob saved version 2", "Theirs.", "Mine"):
        expect(notice).to_contain_text(text)
    assert_fits(editor)
    expect(field(editor, "steps-1-system_message")).to_have_value("Mine, and much of it. " * 20)
    editor.locator("#steps-0").get_by_role("button", name="Delete").first.click()
    editor.get_by_role("button", name="Save mine as version 3 anyway").first.click()
    expect(editor.locator(".messagelist")).to_contain_text("Saved as version 3.")
    assert [row.name for row in StepDefinition.objects.all()] == ["Step 2", "Step 3"]
    assert FlowVersion.objects.latest("number").flow_spec.steps[0].system_message.startswith("Mine")


def test_a_session_that_ended_loses_nothing_that_was_typed(editor: Page) -> None:
    type_in(editor, "title", "Other")
    editor.context.clear_cookies(name="sessionid")
    press_save(editor)
    expect(editor.get_by_role("alert")).to_contain_text("Nothing was sent: you are signed out.")
    other = editor.context.new_page()
    other.goto(reverse("login"))
    other.get_by_label("User name").fill("ada")
    other.get_by_label("Password").fill("secret")
    other.get_by_role("button", name="Sign in").click()
    expect(other.get_by_role("button", name="Sign out")).to_be_visible()
    save(editor)


def test_a_page_with_more_fields_than_the_server_reads_is_not_sent(editor: Page) -> None:
    type_in(editor, "title", "Other")
    editor.locator("#flow_form").evaluate("form => { form.dataset.mostFields = '20' }")
    press_save(editor)
    expect(editor.get_by_role("alert")).to_contain_text("the server reads at most 20")
    expect(field(editor, "title")).to_have_value("Other")


# Leaving


def type_title(page: Page) -> None:
    field(page, "title").fill("Other")


def move_step(page: Page) -> None:
    tool(step(page, "Step 1"), "Move down").click()


def delete_step(page: Page) -> None:
    tool(step(page, "Step 1"), "Delete").click()


def fail_to_save(page: Page) -> None:
    field(page, "title").fill("")
    press_save(page)
    expect(page.get_by_role("alert")).to_be_visible()
    field(page, "title").press("End")


def change_and_take_back(page: Page) -> None:
    page.get_by_role("button", name="Expand all").click()
    type_title(page)
    field(page, "title").fill("Invoices")
    delete_step(page)
    page.get_by_role("button", name="Keep it").click()
    move_step(page)
    tool(step(page, "Step 1"), "Move up").click()


def save_and_go_back(page: Page) -> None:
    delete_step(page)
    type_title(page)
    save(page)
    page.go_back()
    # What is stored is shown.
    expect(field(page, "title")).to_have_value("Other")
    expect(page.locator(".djn-item.step")).to_have_count(2)


@pytest.mark.parametrize(
    ("act", "warnings"),
    [
        *((act, ["beforeunload"]) for act in (type_title, move_step, delete_step, fail_to_save)),
        *((act, []) for act in (change_and_take_back, save_and_go_back)),
    ],
)
def test_leaving_warns_if_something_is_not_saved_and_at_no_other_time(
    editor: Page, accepted_dialogs: list[str], act: Callable[[Page], None], warnings: list[str]
) -> None:
    act(editor)
    editor.locator(".breadcrumbs").get_by_role("link", name="Flows").click()
    editor.wait_for_url("**/admin/flows/flow/")
    assert accepted_dialogs == warnings
