"""The page of a run that goes on: it shows what is new and leaves the reader alone."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from runs.claiming import claim_runs
from runs.models import Run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_error, make_issue, make_step
from tests.runs.builders import make_run

ISSUE = make_issue("critical", "“red” is no hex colour.", audit="Hex colours", path="/text")


def mark_window(page: Page) -> None:
    """Leave something in the page that no reload survives."""
    page.evaluate("window.isTheSame = true")


def assert_same_window(page: Page) -> None:
    assert page.evaluate("window.isTheSame") is True, "The page was loaded again."


def place_of(part: Locator) -> float:
    """Pixels between the top of the window and this part."""
    box = part.bounding_box()
    assert box is not None
    return box["y"]


def read_without_times(page: Page) -> str:
    """The words of the page, without what counts by itself."""
    return re.sub(r"\b[0-9]+ (s|min)\b", "", page.locator("main").inner_text())


def test_attempts_appear_one_after_the_other_without_a_reload(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1), make_step(2))
    follow(admin_page, run.address)
    mark_window(admin_page)
    expect(admin_page.locator("#s1a1")).to_contain_text("Waiting for the model…")
    expect(admin_page.locator("#s2-attempts")).to_be_empty()

    run.end_attempt("failed", issues=(ISSUE,), output={"text": "red"})
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1a1 > summary")).to_contain_text("Failed")
    expect(admin_page.locator("#s1a2 > summary")).to_contain_text("Running")
    # It was open while it ran, and stays so.
    expect(admin_page.locator("#s1a1").get_by_text("“red” is no hex colour.")).to_be_visible()

    run.end_attempt()
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1-head")).to_contain_text("Passed")
    expect(admin_page.locator("#s2a1 > summary")).to_contain_text("Running")

    run.end_attempt()
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Succeeded")
    expect(admin_page.get_by_text("All steps passed.")).to_be_visible()
    expect(admin_page.get_by_role("link", name="Run again")).to_be_visible()
    expect(admin_page.locator(".attempt")).to_have_count(4)
    assert_same_window(admin_page)


def test_a_queued_run_shows_when_a_worker_has_taken_it(admin_page: Page) -> None:
    run = make_run()
    follow(admin_page, f"/runs/{run.pk}/")
    expect(admin_page.get_by_text("Waiting for a worker since")).to_be_visible()
    claim_runs(free=1, owner="worker-1", lease=run.available_at - run.created_at, is_simulated=True)
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Running")


def test_what_the_reader_opened_selected_and_focused_stays_where_it_is(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1), make_step(2, max_retries=9))
    run.end_attempt(output={"text": "a line that somebody reads"})
    for _ in range(2):
        run.end_attempt("failed", output={"text": "a line that somebody reads"})
    admin_page.set_viewport_size({"width": 1_200, "height": 500})
    follow(admin_page, run.address)
    earlier, closed = admin_page.locator("#s2a1"), admin_page.locator("#s2a2")
    closed.locator("summary").first.click()
    earlier.get_by_text("What the model saw").click()
    expect(earlier.get_by_role("heading", name="User message")).to_be_visible()
    line = earlier.locator(".attempt-output .line", has_text="somebody reads")
    line.select_text()
    earlier.locator("summary").first.focus()
    line.scroll_into_view_if_needed()
    selected, place = admin_page.evaluate("getSelection().toString()"), place_of(line)
    assert "somebody reads" in selected

    run.end_attempt("failed")
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s2a4 > summary")).to_contain_text("Running")
    expect(line).to_be_visible()
    expect(earlier.get_by_role("heading", name="User message")).to_be_visible()
    expect(earlier.locator("summary").first).to_be_focused()
    assert admin_page.evaluate("getSelection().toString()") == selected
    assert place_of(line) == place
    expect(closed).not_to_have_attribute("open", "")


def test_an_attempt_that_the_reader_closed_stays_closed_when_it_ends(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    running = admin_page.locator("#s1a1")
    running.locator("summary").first.click()
    expect(running).not_to_have_attribute("open", "")
    run.end_attempt()
    wait_for_poll(admin_page)
    expect(running.locator("summary").first).to_contain_text("Passed")
    expect(running).not_to_have_attribute("open", "")
    expect(running.locator("summary").first).to_be_focused()


def test_focus_stays_on_what_is_drawn_anew(admin_page: Page) -> None:
    run = RunUnderWay()
    follow(admin_page, run.address)
    for name in ("Cancel", "JSON", "Step 1, attempt 1"):
        link = admin_page.get_by_role("link", name=name, exact=True)
        link.focus()
        run.end_attempt("failed")
        wait_for_poll(admin_page)
        number = Run.objects.get().attempt_count
        expect(admin_page.locator(f"#s1a{number} > summary")).to_contain_text("Running")
        expect(link).to_be_focused()


def test_a_chart_that_the_reader_scrolled_stays_scrolled(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, max_retries=40))
    for _ in range(25):
        run.end_attempt("failed")
    follow(admin_page, run.address)
    chart = admin_page.locator(".chart-body").first
    chart.hover()
    admin_page.mouse.wheel(0, 120)
    expect(chart).to_have_js_property("scrollTop", 120)
    run.end_attempt("failed")
    wait_for_poll(admin_page)
    expect(chart.get_by_label("Step 1, attempt 27")).to_be_attached()
    expect(chart).to_have_js_property("scrollTop", 120)


def test_nothing_new_is_answered_with_no_content_and_changes_nothing(admin_page: Page) -> None:
    run = RunUnderWay()
    follow(admin_page, run.address)
    words = read_without_times(admin_page)
    admin_page.evaluate("window.figures = document.getElementById('run-figures')")
    assert wait_for_poll(admin_page).status == 204
    assert wait_for_poll(admin_page).status == 204
    assert read_without_times(admin_page) == words
    assert admin_page.evaluate("window.figures === document.getElementById('run-figures')")


def test_a_run_that_ended_is_not_asked_about_any_more(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    run.end_attempt()
    wait_for_poll(admin_page)
    expect(admin_page.get_by_text("All steps passed.")).to_be_visible()
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url))
    admin_page.clock.run_for(30_000)
    # The browser answers this after it has sent what the clock made it send.
    admin_page.evaluate("fetch('/runs/')")
    assert [address.rpartition("/")[2] for address in asked] == [""]


def test_one_line_tells_screen_readers_what_happened(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    line = admin_page.locator("#announcement")
    expect(line).to_have_attribute("aria-live", "polite")
    expect(line).to_be_empty()
    admin_page.evaluate("window.line = document.getElementById('announcement')")
    run.end_attempt("failed")
    wait_for_poll(admin_page)
    expect(line).to_have_text("Running. Step 1, attempt 2: running.")
    run.end_attempt()
    wait_for_poll(admin_page)
    expect(line).to_have_text("Succeeded. Step 1, attempt 2: passed.")
    # Only an element that stays is read out.
    assert admin_page.evaluate("window.line === document.getElementById('announcement')")


def test_a_failed_run_links_to_the_attempt_that_decided_it(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, max_retries=0))
    follow(admin_page, run.address)
    run.end_attempt("errored", error=make_error(message="The provider failed (500)."))
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1-head")).to_contain_text("Waiting to retry")
    run.begin_attempt()
    run.end_attempt("failed", issues=(ISSUE,))
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Failed")
    expect(admin_page.locator("#s1a1")).to_contain_text("The provider failed (500).")
    decisive = admin_page.locator("#s1a2")
    link = admin_page.locator(".verdict").get_by_role("link", name="Step 1")
    # However often the reader closes the attempt, the link opens it again.
    for _ in range(2):
        decisive.locator("summary").first.click()
        expect(decisive).not_to_have_attribute("open", "")
        link.click()
        expect(decisive).to_have_attribute("open", "")
        expect(decisive.locator("summary").first).to_be_in_viewport()
