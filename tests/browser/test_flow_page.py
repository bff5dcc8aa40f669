"""From any page by the search box to a flow, and from the grid of its last runs to a run."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.widths import list_sticking_out, open_all_folds, resize
from tests.runs.pages.history_builders import make_retried_run


def test_a_key_opens_the_search_box_which_leads_to_flows_and_runs(admin_page: Page) -> None:
    page, keys = admin_page, admin_page.keyboard
    first, second, third = (make_retried_run() for _ in range(3))
    hits = page.get_by_role("option")
    for address, key in (("/runs/", "/"), ("/admin/", "Control+k"), ("/guides/", "Meta+k")):
        page.goto(address)
        keys.press(key)
        expect(page.get_by_role("combobox", name="Search or jump to")).to_be_focused()
        keys.type("colour")
        expect(hits.first).to_contain_text("colour-theme")
        expect(hits.first).to_have_attribute("aria-selected", "true")
        keys.press("ArrowDown")
        expect(hits.nth(1)).to_have_attribute("aria-selected", "true")
        keys.press("ArrowUp")
        keys.press("Enter")
        expect(page).to_have_url(re.compile(r"/flows/colour-theme/$"))

    described = page.locator(".grid-chosen p:visible")
    expect(described).to_contain_text(f"#{third.pk}")
    page.locator(f'[data-run="{first.pk}"]').hover()
    expect(described).to_contain_text(f"#{first.pk}")
    page.locator(f'[data-run="{third.pk}"]').focus()
    keys.press("ArrowLeft")
    expect(described).to_contain_text(f"#{second.pk}")
    expect(page.locator('[data-run][tabindex="0"]')).to_have_count(1)
    # A phone shows the newest runs first.
    resize(page, 390)
    open_all_folds(page)
    assert list_sticking_out(page) == []
    page.reload()
    box, shown = page.locator(f'[data-run="{third.pk}"]').bounding_box(), page.locator(".grid-box").bounding_box()
    assert box and shown and shown["x"] <= box["x"] <= shown["x"] + shown["width"]
    page.locator(f'[data-run="{second.pk}"]').focus()
    keys.press("Enter")
    page.wait_for_url(f"**/runs/{second.pk}/")

    resize(page, 1_280)
    opened, dialog = page.get_by_role("link", name="Search or jump to"), page.get_by_role("dialog")
    opened.click()
    expect(dialog).to_be_visible()
    keys.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opened).to_be_focused()
    opened.click()
    keys.type(f"#{first.pk}")
    keys.press("Enter")
    expect(page).to_have_url(re.compile(rf"/runs/{first.pk}/$"))
    page.goto("/runs/")
    # A slash that is typed stays a slash.
    page.locator("#filter-q").focus()
    keys.type("and/or")
    expect(page.locator("#filter-q")).to_have_value("and/or")
    expect(dialog).to_be_hidden()
