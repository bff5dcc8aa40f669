"""Reading a run: selecting its entries, links between issues and lines, what folds out, and the filter."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.run_under_way import RunUnderWay
from tests.browser.widths import assert_fits, resize
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import attempt_address, run_address

ACCENT = make_issue("high", "“red” is no hex colour.", code="hex_format", audit="Hex colours", path="/accent")
NAME = make_issue("low", "The name is long.", code="length", audit="Length", path="/name")
OUTPUT = {"accent": "red", "name": "A very long name"}


@pytest.fixture
def run(db: None) -> Run:
    """Attempt 2 fixes one of the two issues of attempt 1, attempt 3 the other one."""
    return make_stored_run(
        make_attempt(1, 1, "failed", output=OUTPUT, issues=(ACCENT, NAME)),
        make_attempt(1, 2, "failed", output={**OUTPUT, "accent": "#ff0000"}, issues=(NAME,)),
        make_attempt(1, 3, output={"accent": "#ff0000", "name": "Red"}),
        spec=make_page_flow(make_step(1, issue_severity_filter="high")),
    )


def test_selecting_an_entry_swaps_the_pane_keeps_what_is_hidden_and_works_on_a_phone(
    admin_page: Page, run: Run
) -> None:
    admin_page.goto(run_address(run))
    admin_page.evaluate("window.isSame = true")
    admin_page.get_by_role("navigation", name="Outline").get_by_role("link", name="Attempt 1 : Failed").click()
    expect(admin_page).to_have_url(re.compile(r"/steps/1/attempts/1/$"))
    expect(admin_page.locator("#s1a1")).to_be_focused()
    expect(admin_page.locator("#i0")).to_contain_text("Fixed by attempt 2")
    admin_page.get_by_role("link", name="Still there in attempt 2").or_(
        admin_page.locator("#i1-marks a", has_text="attempt 2")
    ).first.click()
    expect(admin_page).to_have_url(re.compile(r"/steps/1/attempts/2/#i0$"))
    expect(admin_page.locator("#i0:target")).to_be_in_viewport()
    admin_page.locator("#changes").click()
    expect(admin_page.locator("#pane del")).to_contain_text("red")
    assert admin_page.evaluate("window.isSame")
    admin_page.reload()
    expect(admin_page.locator("#pane del")).to_contain_text("red")
    for entry in ("s1a2", "s1a1", "result"):
        admin_page.go_back()
        expect(admin_page.locator("#pane")).to_have_attribute("data-entry", entry)

    admin_page.goto(attempt_address(run, 1, 1))
    low = admin_page.get_by_role("button", name="Low 2")
    low.click()
    expect(admin_page.locator("#i1")).to_be_hidden()
    expect(admin_page.get_by_text("1 low hidden by the filter")).to_be_visible()
    expect(admin_page.locator("#i1-at")).to_be_hidden()
    expect(low).to_have_attribute("aria-pressed", "false")
    expect(low).to_be_focused()
    admin_page.locator("#s1a2").click()
    expect(admin_page).to_have_url(re.compile(r"/attempts/2/\?hide=low$"))
    expect(admin_page.locator("#i0")).to_be_hidden()
    admin_page.reload()
    expect(admin_page.locator("#i0")).to_be_hidden()
    low.click()
    expect(admin_page.locator("#i0")).to_be_visible()
    expect(admin_page).to_have_url(re.compile(r"/attempts/2/$"))

    resize(admin_page, 390)
    expect(admin_page.get_by_role("navigation", name="Outline")).to_be_hidden()
    picker = admin_page.locator("#picker")
    picker.locator("summary").click()
    admin_page.get_by_role("navigation", name="Outline").get_by_role("link", name="Attempt 1 : Failed").click()
    expect(admin_page.locator("#pane")).to_have_attribute("data-entry", "s1a1")
    expect(picker.locator("summary")).to_contain_text("1 Step 1 · attempt 1")
    expect(admin_page.get_by_role("navigation", name="Outline")).to_be_hidden()
    assert_fits(admin_page)
    admin_page.locator("#phone-bar").get_by_role("link", name="Next entry").click()
    expect(admin_page.locator("#pane")).to_have_attribute("data-entry", "s1a2")


OLDER_ADDRESSES = [
    ("#s1a1-i1", "steps/1/attempts/1/#i1", "#i1:target"),
    ("#s1a1-l2", "steps/1/attempts/1/#s1a1-l2", ""),
    ("#s1a2", "steps/1/attempts/2/", ""),
    ("?hide=low#s1a1-i1", "steps/1/attempts/1/#i1", "#i1:target"),
    ("#%zz", "#%zz", ""),
    ("#s1a1-l999", "steps/1/attempts/1/#s1a1-l999", ""),
]
"""What follows the address of a run, where it leads to, and what it shows there."""


def test_links_lead_to_attempts_issues_and_lines(admin_page: Page, run: Run) -> None:
    for old, address, target in OLDER_ADDRESSES:
        admin_page.goto("about:blank")
        admin_page.goto(f"{run_address(run)}{old}")
        expect(admin_page).to_have_url(re.compile(f"{re.escape(run_address(run) + address)}$"))
        if target:
            expect(admin_page.locator(target)).to_be_in_viewport()
            expect(admin_page.locator(target)).to_be_visible()

    issues = tuple(make_issue("high", f"Item {place} is wrong.", path=f"/items/{place}") for place in range(250))
    long = make_stored_run(make_attempt(1, 1, "failed", output={"items": list(range(250))}, issues=issues))
    admin_page.goto(f"{run_address(long)}#s1a1-i249")
    # One beyond the first page of issues.
    expect(admin_page).to_have_url(re.compile(r"\?issues=2#i249$"))
    expect(admin_page.locator("#i249")).to_be_in_viewport()
    admin_page.get_by_role("link", name="More severe").click()
    expect(admin_page.locator("#pane .issue")).to_have_count(200)

    text = {f"line {number}": "x" for number in range(60)}
    issue = make_issue("high", "Not x.", audit="Letters", path="/line 57")
    admin_page.goto(run_address(make_stored_run(make_attempt(1, 1, "failed", output=text, issues=(issue,)))))
    line, shown = admin_page.locator(".text-line:has(#i0-at)"), admin_page.locator("#i0")
    shown.get_by_role("link", name="/line 57").click()
    expect(line).to_be_in_viewport()
    expect(line).to_have_css("outline-style", "solid")
    admin_page.locator("#i0-at").click()
    expect(shown).to_be_in_viewport()


def test_what_the_model_saw_is_loaded_when_it_is_opened_and_only_once(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, system_message="You name colours.", issue_severity_filter="high"))
    run.end_attempt("failed", output=OUTPUT, issues=(NAME, ACCENT))
    run.end_attempt(output={"accent": "#ff0000", "name": "Red"})
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url.partition("/steps/")[2]))
    admin_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    admin_page.goto(f"{run.address}steps/1/attempts/2/")
    request = admin_page.locator("#request")
    assert "1/attempts/2/request/" not in asked
    for _ in range(3):
        request.locator("summary").first.click()
    expect(request.locator(".model-message").first).to_contain_text("You name colours.")
    assert asked.count("1/attempts/2/request/") == 1
    admin_page.get_by_role("button", name="Copy the system message").click()
    copied = admin_page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("You name colours.\n\n## Current step attempts\n\nYour earlier outputs")
    for width in (1_280, 390):
        resize(admin_page, width)
        assert request.evaluate("(part) => part.scrollWidth <= part.clientWidth + 1")
    # Each line that the model was shown leads to the issue that it came from.
    request.locator(".feedback-line").get_by_role("link", name="Hex colours").click()
    expect(admin_page.locator("#i1:target")).to_be_in_viewport()
    expect(admin_page.locator("#pane")).to_have_attribute("data-entry", "s1a1")
