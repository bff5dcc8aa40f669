"""Whether a page fits its window, with everything opened that can be."""

from __future__ import annotations

from playwright.sync_api import Page, expect


def resize(page: Page, width: int, height: int = 800) -> None:
    """Make the window this large."""
    page.set_viewport_size({"width": width, "height": height})


def open_all_folds(page: Page) -> None:
    """Open everything that folds out, and wait until what is loaded then is there."""
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    expect(page.get_by_role("link", name="Open on a page of its own")).to_have_count(0)


def assert_fits(page: Page) -> None:
    """The page is no wider than its window."""
    assert list_sticking_out(page) == []


def list_sticking_out(page: Page) -> list[str]:
    """What makes the page wider than its window; none if it fits."""
    # A click that leads elsewhere may have left nothing yet.
    page.wait_for_load_state()
    parts: list[str] = page.evaluate("""() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        const all = [...document.body.querySelectorAll("*")];
        const wide = all.filter((part) => part.getBoundingClientRect().right > width + 1);
        return ["The page is wider than its window.", ...wide.map((part) => part.outerHTML.slice(0, 120))];
    }""")
    return parts
