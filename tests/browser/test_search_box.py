"""The search box by keyboard: from any page, also of the admin, to a run, a flow or a page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.runs.pages.history_builders import make_stored_run


@pytest.mark.parametrize(("address", "key"), [("/runs/", "/"), ("/admin/", "Control+k"), ("/guides/", "Meta+k")])
def test_a_key_opens_it_arrows_choose_and_enter_goes(admin_page: Page, address: str, key: str) -> None:
    make_stored_run()
    admin_page.goto(address)
    admin_page.keyboard.press(key)
    box = admin_page.get_by_role("combobox", name="Search or jump to")
    expect(box).to_be_focused()
    admin_page.keyboard.type("colour")
    hits = admin_page.get_by_role("option")
    expect(hits.first).to_contain_text("colour-theme")
    expect(hits.first).to_have_attribute("aria-selected", "true")
    admin_page.keyboard.press("ArrowDown")
    expect(hits.nth(1)).to_have_attribute("aria-selected", "true")
    admin_page.keyboard.press("ArrowUp")
    admin_page.keyboard.press("Enter")
    expect(admin_page).to_have_url(re.compile(r"/flows/colour-theme/$"))


def test_a_number_leads_to_its_run_and_escape_back_to_the_page(admin_page: Page) -> None:
    run = make_stored_run()
    admin_page.goto("/workers/")
    opened = admin_page.get_by_role("link", name="Search or jump to")
    opened.click()
    expect(admin_page.get_by_role("dialog")).to_be_visible()
    admin_page.keyboard.press("Escape")
    expect(admin_page.get_by_role("dialog")).to_be_hidden()
    expect(opened).to_be_focused()
    opened.click()
    admin_page.keyboard.type(f"#{run.pk}")
    admin_page.keyboard.press("Enter")
    expect(admin_page).to_have_url(re.compile(rf"/runs/{run.pk}/$"))


def test_a_slash_that_is_typed_stays_a_slash(admin_page: Page) -> None:
    admin_page.goto("/runs/")
    field = admin_page.locator("#filter-q")
    field.focus()
    admin_page.keyboard.type("and/or")
    expect(field).to_have_value("and/or")
    expect(admin_page.get_by_role("dialog")).to_be_hidden()
