"""Comparing two runs in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widths import assert_fits, open_all_folds
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_stored_run


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_a_run_is_compared_with_another_one_and_back(admin_page: Page, theme: str, width: int) -> None:
    page = admin_page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # one of its literals
    page.set_viewport_size({"width": width, "height": 800})
    colours = [f"#{number:06x}" for number in range(40)]
    issue = make_issue("high", "“red” is no colour.", audit="Hex colours", path="/colours/3", code="hex_format")
    others = tuple(
        make_issue(severity, "Gone by then.") for severity in ("critical", "medium", "low") for _ in range(12)
    )
    hostile = "<img src=x onerror=alert(1)> " + "wide" * 200
    first = make_stored_run(
        make_attempt(1, 1, "failed", output={"colours": ["red", *colours]}, issues=(issue, *others)),
        make_attempt(1, 2, output={"colours": ["#f00", *colours], "note": hostile}, issues=(issue,)),
        cost=None,
    )
    spec = make_page_flow(make_step(1, name="Colours", max_retries=9), make_step(2, name="Step 2"))
    second = make_stored_run(make_attempt(1, 1, output={"colours": ["#e00", *colours], "note": "plain"}), spec=spec)

    page.goto(f"/runs/compare/?a={first.pk}")
    page.get_by_label("with run").fill("99999")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_have_text("There is no run #99999.")
    assert_fits(page)
    page.get_by_role("link", name=f"#{second.pk}", exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_contain_text(f"#{first.pk} and #{second.pk}")
    expect(page.get_by_role("row", name="Attempts").first).to_contain_text("-1 fewer".replace("-", "\N{MINUS SIGN}"))
    step = page.get_by_role("region", name="Colours")
    expect(step.locator(".line.diff-changed").first).to_contain_text('"#f00" → "#e00"')
    fold = step.get_by_text("unchanged").first
    expect(step.get_by_text(colours[20])).to_be_hidden()
    fold.click()
    expect(step.get_by_text(colours[20])).to_be_visible()
    expect(step.get_by_text("only here")).to_be_visible()
    open_all_folds(page)
    assert_fits(page)

    page.get_by_role("link", name="Swap sides").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"#{second.pk} and #{first.pk}")
    expect(page.get_by_role("row", name="Attempts").first).to_contain_text("+1 more")
    page.get_by_role("link", name=f"#{first.pk}, attempt 2").click()
    expect(page).to_have_url(f"{page.url.partition('/runs/')[0]}/runs/{first.pk}/#s1a2")
