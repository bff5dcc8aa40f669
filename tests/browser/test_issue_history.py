"""What became of issues from attempt to attempt, what the model was told of them, and following all of it."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import run_address

ACCENT = make_issue("high", "“red” is no hex colour.", code="hex_format", audit="Hex colours", path="/accent")
NAME = make_issue("low", "The name is long.", code="length", audit="Length", path="/name")
OUTPUT = {"accent": "red", "name": "A very long name"}


def make_traced_run() -> Run:
    """Attempt 2 fixes one of the two issues of attempt 1, attempt 3 the other one."""
    return make_stored_run(
        make_attempt(1, 1, "failed", output=OUTPUT, issues=(ACCENT, NAME)),
        make_attempt(1, 2, "failed", output={**OUTPUT, "accent": "#ff0000"}, issues=(NAME,)),
        make_attempt(1, 3, output={"accent": "#ff0000", "name": "Red"}),
        spec=make_page_flow(make_step(1, issue_severity_filter="high")),
    )


def test_the_course_of_an_issue_can_be_followed_from_attempt_to_attempt(admin_page: Page) -> None:
    admin_page.goto(run_address(make_traced_run()))
    expect(admin_page.locator("#s1-head")).to_contain_text("2 issues: 1 fixed by attempt 2, 1 fixed by attempt 3")
    first, later = admin_page.locator("#s1a1-i1"), admin_page.locator("#s1a2-i0")
    first.get_by_role("link", name="attempt 2").click()
    expect(admin_page).to_have_url(re.compile(r"#s1a2-i0$"))
    expect(later).to_be_in_viewport()
    expect(later).to_contain_text("Persisted since attempt 1")
    later.get_by_role("link", name="attempt 3").click()
    expect(admin_page).to_have_url(re.compile(r"#s1a3$"))
    fixed = admin_page.get_by_role("list", name="Fixed here").last
    expect(fixed.get_by_role("listitem")).to_have_text([re.compile("Length at /name, attempt 2")])


def test_a_hidden_severity_takes_along_what_is_said_of_it_elsewhere(admin_page: Page) -> None:
    admin_page.goto(run_address(make_traced_run()))
    second, third = admin_page.locator("#s1a2"), admin_page.locator("#s1a3")
    second.locator(".hidden-from-model > summary").click()
    hidden = second.locator(".hidden-from-model li")
    line = admin_page.locator("#s1a1-l3").get_by_role("link")
    for part in (hidden, third.get_by_text("Fixed here"), line):
        expect(part).to_be_visible()
    admin_page.get_by_role("button", name="Low 2").click()
    for part in (hidden, third.get_by_text("Fixed here"), line):
        expect(part).to_be_hidden()
    expect(second.get_by_text("Fixed here")).to_be_visible()
    admin_page.reload()
    expect(third.get_by_text("Fixed here")).to_be_hidden()


def test_whoever_follows_a_link_to_what_is_hidden_gets_to_see_it(admin_page: Page) -> None:
    run = make_traced_run()
    admin_page.goto(f"{run_address(run)}?hide=high,clean")
    expect(admin_page.locator("#s1a1-i0")).to_be_hidden()
    expect(admin_page.locator("#s1a3")).to_be_hidden()
    admin_page.locator("#s1-head").get_by_role("link", name="attempt 3", exact=True).click()
    expect(admin_page.locator("#s1a3")).to_be_visible()
    expect(admin_page).to_have_url(re.compile(r"\?hide=high#s1a3$"))
    admin_page.goto(f"{run_address(run)}?hide=low,high#s1a1-i0")
    expect(admin_page.locator("#s1a1-i0")).to_be_in_viewport()
    expect(admin_page.get_by_role("button", name="High 1")).to_have_attribute("aria-pressed", "true")
    expect(admin_page.get_by_role("button", name="Low 2")).to_have_attribute("aria-pressed", "false")


def test_each_line_that_the_model_was_told_leads_to_the_issue_that_it_came_from(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, system_message="You name colours.", issue_severity_filter="high"))
    run.end_attempt("failed", output=OUTPUT, issues=(NAME, ACCENT))
    run.end_attempt(output={"accent": "#ff0000", "name": "Red"})
    admin_page.goto(run.address)
    request = admin_page.locator("#s1a2-request")
    request.locator("summary").first.click()
    told = request.locator(".feedback-line")
    expect(told).to_have_count(1)
    expect(told).to_contain_text("- high (at /accent): “red” is no hex colour.")
    expect(request.get_by_text("Hidden from the model by filter high: 1 issue")).to_be_visible()
    # Sections fold, each for itself.
    section = request.get_by_text("## Current step attempts", exact=True)
    section.click()
    expect(told).to_be_hidden()
    expect(request.get_by_text("You name colours.", exact=True)).to_be_visible()
    section.click()
    for width in (1280, 390):
        admin_page.set_viewport_size({"width": width, "height": 800})
        told.get_by_role("link", name="Hex colours").click()
        expect(admin_page).to_have_url(re.compile(r"#s1a1-i1$"))
        expect(admin_page.locator("#s1a1-i1")).to_be_in_viewport()
        assert request.evaluate("(part) => part.scrollWidth <= part.clientWidth + 1")


def test_a_request_is_copied_to_the_letter(admin_page: Page) -> None:
    admin_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    run = RunUnderWay(make_step(1, system_message="You name colours."))
    run.end_attempt("failed", output=OUTPUT, issues=(ACCENT,))
    run.end_attempt()
    admin_page.goto(run.address)
    admin_page.locator("#s1a2-request > summary").click()
    admin_page.get_by_role("button", name="Copy the system message").click()
    copied = admin_page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("You name colours.\n\n## Current step attempts\n\nYour earlier outputs")
    assert copied.endswith(
        "### Attempt 1\n" + 'Output: {"accent":"red","name":"A very long name"}\n'
        "Issues:\n- high (at /accent): “red” is no hex colour."
    )


def test_an_issue_on_the_page_learns_what_later_attempts_made_of_it(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    run.end_attempt("failed", output=OUTPUT, issues=(ACCENT, NAME))
    wait_for_poll(admin_page)
    accent, name = admin_page.locator("#s1a1-i0"), admin_page.locator("#s1a1-i1")
    expect(accent).to_be_visible()
    assert "New here" not in accent.inner_text()
    run.end_attempt("failed", output=OUTPUT, issues=(NAME,))
    wait_for_poll(admin_page)
    expect(accent).to_contain_text("Fixed by attempt 2")
    expect(name).to_contain_text("Still there in attempt 2")
    run.end_attempt("passed")
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1a2-i0")).to_contain_text("Fixed by attempt 3")
    expect(name).to_contain_text("Still there in attempt 2")
    expect(admin_page.locator("#issue-marks > *")).to_have_count(0)
