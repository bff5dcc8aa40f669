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
    pane = admin_page.locator("#pane")
    expect(pane).to_contain_text("Waiting for the model…")
    run.end_attempt("failed", issues=(ISSUE,), output={"text": "red"})
    wait_for_poll(admin_page)
    # A reader who does nothing goes along.
    expect(pane).to_have_attribute("data-entry", "s1a2")
    expect(admin_page.locator("#s1a1")).to_contain_text("Failed")
    expect(announcement).to_have_text("Running. Step 1, attempt 2: running.")
    for _ in range(2):
        run.end_attempt()
        wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Succeeded")
    expect(pane).to_have_attribute("data-entry", "result")
    expect(admin_page.get_by_role("link", name="Re-run")).to_be_visible()
    assert admin_page.evaluate("window.line === document.getElementById('announcement')")

    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url))
    admin_page.clock.run_for(30_000)
    # The browser answers this after it has sent what the clock made it send.
    admin_page.evaluate("fetch('/runs/')")
    assert [address.rpartition("/")[2] for address in asked] == [""]

    run = RunUnderWay(make_step(1, max_retries=0))
    follow(admin_page, run.address)
    run.end_attempt("errored", error=make_error(message="The provider failed (500)."))
    wait_for_poll(admin_page)
    expect(admin_page.locator("#outline")).to_contain_text("Waiting to retry")
    run.begin_attempt()
    run.end_attempt("failed", issues=(ISSUE,))
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Failed")
    admin_page.locator("#s0a1").click()
    expect(pane).to_have_attribute("data-entry", "s0a1")
    # A failed run links to the attempt that decided it.
    admin_page.locator(".verdict").get_by_role("link", name="Step 1").click()
    expect(pane).to_have_attribute("data-entry", "s1a2")


def test_what_the_reader_selected_opened_and_focused_stays_where_it_is(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, max_retries=9))
    run.end_attempt("failed", output={"text": "a line that is read"}, issues=(ISSUE,))
    admin_page.set_viewport_size({"width": 1_200, "height": 500})
    follow(admin_page, f"{run.address}steps/1/attempts/1/")
    admin_page.get_by_text("What the model saw").click()
    expect(admin_page.get_by_role("heading", name="User message")).to_be_visible()
    line = admin_page.locator(".attempt-output .text-line", has_text="that is read")
    line.select_text()
    summary = admin_page.locator("#request-summary")
    summary.focus()
    line.scroll_into_view_if_needed()
    selected, place = admin_page.evaluate("getSelection().toString()"), place_of(line)
    for _ in range(2):
        run.end_attempt("failed", output={"text": "another"})
        wait_for_poll(admin_page)
    expect(admin_page.locator("#s1a4")).to_contain_text("Running")
    expect(admin_page.locator("#pane")).to_have_attribute("data-entry", "s1a1")
    expect(admin_page.locator("#i0")).to_contain_text("Fixed by attempt 2")
    expect(admin_page.get_by_role("heading", name="User message")).to_be_visible()
    expect(summary).to_be_focused()
    assert "that is read" in selected and admin_page.evaluate("getSelection().toString()") == selected
    assert place_of(line) == place
    admin_page.get_by_role("link", name="Latest: step 1, attempt 4").click()
    expect(admin_page.locator("#pane")).to_have_attribute("data-entry", "s1a4")

    # So do focus and scrolling in what is drawn again.
    run = RunUnderWay(make_step(1, max_retries=40))
    for _ in range(25):
        run.end_attempt("failed")
    admin_page.set_viewport_size({"width": 1_280, "height": 500})
    follow(admin_page, run.address)
    side = admin_page.locator(".side")
    admin_page.locator("#s1a2").focus()
    for number, id in enumerate(("#s1a2", "#run-json", "#tab-3"), start=27):
        link = admin_page.locator(id)
        link.focus()
        top = side.evaluate("(part) => part.scrollTop")
        run.end_attempt("failed")
        wait_for_poll(admin_page)
        expect(admin_page.locator(f"#s1a{number}")).to_be_attached()
        expect(link).to_be_focused()
        assert side.evaluate("(part) => part.scrollTop") == top


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


def test_the_page_polls_less_and_less_often_not_at_all_when_hidden_and_outlasts_a_lost_connection(
    any_page: Page,
) -> None:
    run = RunUnderWay(make_step(1), make_step(2), make_step(3))
    follow(any_page, run.address)
    questions = Questions(any_page)
    assert questions.count_during(4) >= 3
    questions.count_during(40)
    assert 2 <= questions.count_during(24) <= 3
    # It counts on by itself meanwhile.
    for place in ("#outline [data-seconds]", "#run-figures [data-seconds]", "#pane-head [data-seconds]"):
        expect(any_page.locator(place).first).to_have_text(re.compile("^1 min (0|1)[0-9] s$"))

    any_page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { get: () => window.isHidden, configurable: true });
        window.isHidden = true;
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    run.end_attempt()
    assert questions.count_during(60) == 0
    with any_page.expect_response("**/live?*"):
        any_page.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(any_page.locator("#s1a1")).to_contain_text("Passed")

    notice = any_page.locator(".connection")
    expect(notice).to_have_attribute("aria-live", "polite")
    any_page.route("**/live?*", lambda route: route.fulfill(status=502, body="Bad gateway"))
    assert wait_for_poll(any_page).status == 502
    expect(notice).to_have_text(LOST)
    any_page.unroute("**/live?*")
    any_page.context.set_offline(True)
    # More and more seldom, but it does not give up.
    questions.count_during(90)
    assert 1 <= questions.count_during(60) <= 3
    expect(notice).to_have_text(LOST)
    expect(notice).to_be_in_viewport()
    run.end_attempt()
    with any_page.expect_response("**/live?*"):
        any_page.context.set_offline(False)
    expect(notice).to_be_empty()
    expect(any_page.locator("#s2a1")).to_contain_text("Passed")
    assert questions.count_during(4) >= 3
    Run.objects.all().delete()
    any_page.clock.run_for(2_000)
    expect(any_page.get_by_role("heading", name="Page not found")).to_be_visible()
