"""The page of a run that goes on: it shows what is new, leaves the reader alone, and says when nobody answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from runs.claiming import claim_runs
from runs.models import Run
from tests.browser.conftest import sign_in_context
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_error, make_issue, make_step
from tests.runs.builders import make_run

ISSUE = make_issue("critical", "“red” is no hex colour.", audit="Hex colours", path="/text")
LOW = make_issue("low", "The text is long.", audit="Length", path="/name")
LOST = "Connection lost. Trying again…"


def place_of(part: Locator) -> float:
    """Pixels between the top of the window and this part."""
    box = part.bounding_box()
    assert box is not None
    return box["y"]


def test_a_run_is_followed_to_its_end_without_a_reload(admin_page: Page) -> None:
    queued = make_run()
    follow(admin_page, f"/runs/{queued.pk}/")
    expect(admin_page.get_by_text("Waiting for a worker since")).to_be_visible()
    claim_runs(free=1, owner="worker-1", lease=queued.available_at - queued.created_at, is_simulated=True)
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Running")

    run = RunUnderWay(make_step(1), make_step(2))
    follow(admin_page, run.address)
    announcement = admin_page.locator("#announcement")
    expect(announcement).to_have_attribute("aria-live", "polite")
    # No reload survives this, and only an element that stays is read out.
    admin_page.evaluate("window.line = document.getElementById('announcement')")
    expect(admin_page.locator("#s1a1")).to_contain_text("Waiting for the model…")
    run.end_attempt("failed", issues=(ISSUE,), output={"text": "red"})
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1a1 > summary")).to_contain_text("Failed")
    expect(admin_page.locator("#s1a2 > summary")).to_contain_text("Running")
    expect(announcement).to_have_text("Running. Step 1, attempt 2: running.")
    # It was open while it ran, and stays so.
    expect(admin_page.locator("#s1a1").get_by_text("“red” is no hex colour.")).to_be_visible()
    for _ in range(2):
        run.end_attempt()
        wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Succeeded")
    expect(admin_page.get_by_role("link", name="Run again")).to_be_visible()
    expect(admin_page.locator(".attempt")).to_have_count(4)
    assert admin_page.evaluate("window.line === document.getElementById('announcement')")

    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url))
    admin_page.clock.run_for(30_000)
    # The browser answers this after it has sent what the clock made it send.
    admin_page.evaluate("fetch('/runs/')")
    assert [address.rpartition("/")[2] for address in asked] == [""]


def test_what_the_reader_opened_selected_and_focused_stays_where_it_is(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1), make_step(2, max_retries=9))
    run.end_attempt(output={"text": "a line that somebody reads"})
    for _ in range(2):
        run.end_attempt("failed", output={"text": "a line that somebody reads"})
    admin_page.set_viewport_size({"width": 1_200, "height": 500})
    follow(admin_page, run.address)
    earlier, closed, running = (admin_page.locator(f"#s2a{number}") for number in (1, 2, 3))
    closed.locator("summary").first.click()
    earlier.get_by_text("What the model saw").click()
    expect(earlier.get_by_role("heading", name="User message")).to_be_visible()
    running.locator("summary").first.click()
    expect(running).not_to_have_attribute("open", "")
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
    expect(running.locator("summary").first).to_contain_text("Failed")
    for part in (closed, running):
        expect(part).not_to_have_attribute("open", "")


def test_focus_and_scrolling_stay_in_what_is_drawn_anew(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, max_retries=40))
    for _ in range(25):
        run.end_attempt("failed")
    follow(admin_page, run.address)
    chart = admin_page.locator(".chart-body").first
    chart.hover()
    admin_page.mouse.wheel(0, 120)
    expect(chart).to_have_js_property("scrollTop", 120)
    for number, name in enumerate(("Cancel", "JSON"), start=27):
        link = admin_page.get_by_role("link", name=name, exact=True)
        link.focus()
        run.end_attempt("failed")
        wait_for_poll(admin_page)
        expect(chart.get_by_label(f"Step 1, attempt {number}")).to_be_attached()
        expect(link).to_be_focused()
        expect(chart).to_have_js_property("scrollTop", 120)


def test_an_attempt_that_the_reader_watches_stays_open_with_its_changes_when_the_next_begins(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, max_retries=5))
    run.end_attempt("failed", output={"text": "red"}, issues=(ISSUE,))
    follow(admin_page, run.address)
    run.end_attempt("failed", output={"text": "green"}, issues=(ISSUE,))
    wait_for_poll(admin_page)
    second = admin_page.locator("#s1a2")
    expect(admin_page.locator("#s1a3")).to_have_attribute("open", "")
    second.get_by_role("button", name="Changes since attempt 1").click()
    expect(second.locator("ins")).to_contain_text("green")
    run.end_attempt("failed", output={"text": "blue"})
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1a4-chip")).to_have_attribute("aria-expanded", "true")
    expect(second.locator("ins")).to_be_visible()


def test_issues_learn_what_later_attempts_made_of_them_and_obey_the_filter(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    run.end_attempt("failed", issues=(ISSUE, LOW))
    wait_for_poll(admin_page)
    first, second = admin_page.locator("#s1a1-i0"), admin_page.locator("#s1a1-i1")
    expect(first).to_be_visible()
    run.end_attempt("failed", issues=(LOW,))
    wait_for_poll(admin_page)
    expect(first).to_contain_text("Fixed by attempt 2")
    expect(second).to_contain_text("Still there in attempt 2")
    admin_page.get_by_role("button", name="Low 2").click()
    run.end_attempt("failed", issues=(ISSUE, LOW))
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1a3-i0")).to_be_visible()
    expect(admin_page.locator("#s1a3-i1")).to_be_hidden()
    expect(admin_page.get_by_role("button", name="Low 3")).to_have_attribute("aria-pressed", "false")


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
    decisive = admin_page.locator("#s1a2")
    # However often the reader closes the attempt, the link opens it again.
    for _ in range(2):
        decisive.locator("summary").first.click()
        expect(decisive).not_to_have_attribute("open", "")
        admin_page.locator(".verdict").get_by_role("link", name="Step 1").click()
        expect(decisive).to_have_attribute("open", "")
        expect(decisive.locator("summary").first).to_be_in_viewport()


class Questions:
    """The questions of a page, as its own clock goes on second by second."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._asked = self._answered = 0
        page.on("request", lambda request: self._count(request.url, asked=1))
        page.on("requestfinished", lambda request: self._count(request.url, answered=1))
        page.on("requestfailed", lambda request: self._count(request.url, answered=1))

    def _count(self, url: str, asked: int = 0, answered: int = 0) -> None:
        if "/live?" in url:
            self._asked += asked
            self._answered += answered

    def count_during(self, seconds: int) -> int:
        """How many were asked in that time. Each is answered before the next second."""
        before = self._asked
        for _ in range(seconds):
            self._page.clock.run_for(1_000)
            # What the clock made the page do is told before this is answered.
            self._page.evaluate("0")
            while self._answered < self._asked:
                self._page.evaluate("new Promise(requestAnimationFrame)")
        return self._asked - before


@pytest.fixture
def any_page(browser: Browser, base_url: str, transactional_db: None) -> Iterator[Page]:
    """A window that may complain: browsers write on their console that a server does not answer."""
    context: BrowserContext = browser.new_context(base_url=base_url)
    sign_in_context(context, base_url)
    yield context.new_page()
    context.close()


def test_the_longer_nothing_changes_the_more_seldom_the_page_asks_and_counts_on_meanwhile(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    questions = Questions(admin_page)
    assert questions.count_during(4) >= 3
    questions.count_during(40)
    assert 2 <= questions.count_during(24) <= 3
    for place in ("#s1a1 > summary [data-seconds]", "#run-figures [data-seconds]", "#waterfall tspan[data-seconds]"):
        expect(admin_page.locator(place)).to_have_text(re.compile("^1 min (0|1)[0-9] s$"))
    run.end_attempt()
    questions.count_during(14)
    expect(admin_page.locator("h1")).to_contain_text("Succeeded")
    expect(admin_page.locator("[data-seconds]")).to_have_count(0)


def test_a_hidden_tab_asks_nothing_and_catches_up_when_it_is_shown(admin_page: Page) -> None:
    run = RunUnderWay()
    follow(admin_page, run.address)
    questions = Questions(admin_page)
    admin_page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { get: () => window.isHidden, configurable: true });
        window.isHidden = true;
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    run.end_attempt()
    assert questions.count_during(60) == 0
    with admin_page.expect_response("**/live?*"):
        admin_page.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(admin_page.locator("#s1-head")).to_contain_text("Passed")


def test_without_a_connection_the_page_says_so_and_goes_on_when_it_is_back(any_page: Page) -> None:
    run = RunUnderWay(make_step(1), make_step(2))
    follow(any_page, run.address)
    notice = any_page.locator(".connection")
    expect(notice).to_have_attribute("aria-live", "polite")
    any_page.route("**/live?*", lambda route: route.fulfill(status=502, body="Bad gateway"))
    assert wait_for_poll(any_page).status == 502
    expect(notice).to_have_text(LOST)
    any_page.unroute("**/live?*")
    any_page.context.set_offline(True)
    questions = Questions(any_page)
    # More and more seldom, but it does not give up.
    questions.count_during(90)
    assert 1 <= questions.count_during(60) <= 3
    expect(notice).to_have_text(LOST)
    expect(notice).to_be_in_viewport()
    run.end_attempt()
    with any_page.expect_response("**/live?*"):
        any_page.context.set_offline(False)
    expect(notice).to_be_empty()
    expect(any_page.locator("#s1-head")).to_contain_text("Passed")
    assert questions.count_during(4) >= 3
    Run.objects.all().delete()
    any_page.clock.run_for(2_000)
    expect(any_page.get_by_role("heading", name="Page not found")).to_be_visible()
