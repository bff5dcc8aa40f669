"""Whether a page fits its window, with everything opened that can be."""

from __future__ import annotations

from playwright.sync_api import Page, expect


def open_all_folds(page: Page) -> None:
    """Open everything that folds out, and wait until what is loaded then is there."""
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    expect(page.get_by_role("link", name="Open on a page of its own")).to_have_count(0)


def assert_fits_in_both_themes(page: Page) -> None:
    """The page is no wider than its window, light and dark."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # each is one of its literals
        assert_fits(page)


def assert_fits(page: Page) -> None:
    """The page is no wider than its window; names what sticks out."""
    # A click that leads elsewhere may have left nothing yet.
    page.wait_for_load_state()
    sticking_out = page.evaluate("""() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        const all = [...document.body.querySelectorAll("*")];
        const wide = all.filter((part) => part.getBoundingClientRect().right > width + 1);
        return ["The page is wider than its window.", ...wide.map((part) => part.outerHTML.slice(0, 120))];
    }""")
    assert sticking_out == [], "\n".join(sticking_out)
