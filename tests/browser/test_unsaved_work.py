"""The flow editor warns before it is left with something on it that is not saved, and at no other time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from flows.portability import load_flow
from tests.browser.test_flow_editor_cards import step, tool
from tests.engine.builders import make_flow, make_step

LIST = "/admin/flows/flow/"


@pytest.fixture
def warnings(accepted_dialogs: list[str]) -> list[str]:
    """The kinds of the dialogs that were shown."""
    return accepted_dialogs


@pytest.fixture
def editor(admin_page: Page, warnings: list[str]) -> Page:
    """The editor of a flow of two steps."""
    flow = load_flow(document=make_flow(make_step(1, name="Extract"), make_step(2, name="Check")).to_document()).flow
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    return admin_page


def leave(page: Page) -> None:
    """Go elsewhere, by a link."""
    page.locator(".breadcrumbs").get_by_role("link", name="Flows").click()
    page.wait_for_url(f"**{LIST}")


def type_title(page: Page) -> None:
    page.get_by_label("Title").fill("Other")


def move_step(page: Page) -> None:
    tool(step(page, "Extract"), "Move down").click()


def delete_step(page: Page) -> None:
    tool(step(page, "Extract"), "Delete").click()


def add_audit(page: Page) -> None:
    step(page, "Extract").get_by_role("button", name="Add an audit").click()


@pytest.mark.parametrize("change", [type_title, move_step, delete_step, add_audit])
def test_leaving_with_a_change_warns(editor: Page, warnings: list[str], change: Callable[[Page], None]) -> None:
    change(editor)
    leave(editor)
    assert warnings == ["beforeunload"]


def look_around(page: Page) -> None:
    page.get_by_role("button", name="Expand all").click()
    page.get_by_label("Title").focus()


def change_and_take_back(page: Page) -> None:
    title = page.get_by_label("Title").input_value()
    type_title(page)
    page.get_by_label("Title").fill(title)
    delete_step(page)
    page.get_by_role("button", name="Keep it").click()
    move_step(page)
    tool(step(page, "Extract"), "Move up").click()


def change_and_save(page: Page) -> None:
    type_title(page)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 2")).to_be_visible()


@pytest.mark.parametrize("act", [look_around, change_and_take_back, change_and_save])
def test_leaving_without_a_change_does_not_warn(editor: Page, warnings: list[str], act: Callable[[Page], None]) -> None:
    act(editor)
    leave(editor)
    assert warnings == []


def test_what_could_not_be_saved_is_not_left_without_a_warning(editor: Page, warnings: list[str]) -> None:
    editor.get_by_label("Title").fill("")
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(editor.get_by_role("alert")).to_be_visible()
    assert warnings == []
    editor.get_by_label("Title").focus()
    editor.get_by_label("Title").press("End")
    leave(editor)
    assert warnings == ["beforeunload"]


def test_going_back_after_saving_shows_what_is_stored(editor: Page, warnings: list[str]) -> None:
    delete_step(editor)
    type_title(editor)
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(editor.get_by_text("Saved as version 2")).to_be_visible()
    editor.go_back()
    expect(editor.get_by_label("Title")).to_have_value("Other")
    expect(editor.locator(".djn-item.step")).to_have_count(1)
    expect(editor.locator(".grp-predelete")).to_have_count(0)
    leave(editor)
    assert warnings == []


def test_a_session_that_ended_loses_nothing_that_was_typed(editor: Page) -> None:
    type_title(editor)
    editor.context.clear_cookies(name="sessionid")
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(editor.get_by_role("alert")).to_have_text(
        "Nothing was sent: you are signed out. Sign in in another tab, then save here again."
    )
    other = editor.context.new_page()
    other.goto(reverse("login"))
    other.get_by_label("User name").fill("ada")
    other.get_by_label("Password").fill("secret")
    other.get_by_role("button", name="Sign in").click()
    expect(other.get_by_role("button", name="Sign out")).to_be_visible()
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(editor.get_by_text("Saved as version 2")).to_be_visible()


def test_a_page_with_more_fields_than_the_server_reads_is_not_sent(editor: Page) -> None:
    type_title(editor)
    editor.locator("#flow_form").evaluate("form => { form.dataset.mostFields = '20' }")
    editor.get_by_role("button", name="Save", exact=True).click()
    expect(editor.get_by_role("alert")).to_contain_text("the server reads at most 20")
    expect(editor.get_by_label("Title")).to_have_value("Other")
