"""The grid of a flow's last runs: pointing, the keyboard, and a narrow screen."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.widths import list_sticking_out, open_all_folds, resize
from tests.runs.pages.history_builders import make_retried_run

ADDRESS = "/flows/colour-theme/"


def test_a_run_is_described_and_opened_from_the_grid(admin_page: Page) -> None:
    first, second, third = (make_retried_run() for _ in range(3))
    page = admin_page
    page.goto(ADDRESS)
    described = page.locator(".grid-chosen p:visible")
    expect(described).to_contain_text(f"#{third.pk}")
    page.locator(f'[data-run="{first.pk}"]').hover()
    expect(described).to_contain_text(f"#{first.pk}")
    page.locator(f'[data-run="{third.pk}"]').focus()
    page.keyboard.press("ArrowLeft")
    expect(described).to_contain_text(f"#{second.pk}")
    expect(page.locator('[data-run][tabindex="0"]')).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{second.pk}/")


def test_a_phone_shows_the_newest_runs_first_and_nothing_sticks_out(admin_page: Page) -> None:
    run = [make_retried_run() for _ in range(3)][-1]
    page = admin_page
    resize(page, 390)
    page.goto(ADDRESS)
    open_all_folds(page)
    assert list_sticking_out(page) == []
    box, shown = (
        page.locator(f'[data-run="{run.pk}"]').bounding_box(),
        page.locator(".grid-box").bounding_box(),
    )
    assert box and shown and shown["x"] <= box["x"] <= shown["x"] + shown["width"]
