"""How often the page of a run asks for what is new, and what it says where nobody answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Page, Response, Route, expect

from runs.models import Run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_step

LOST = "Connection lost. Trying again…"


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
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    context = browser.new_context(base_url=base_url)
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": base_url}])
    yield context.new_page()
    context.close()


def test_the_longer_nothing_changes_the_more_seldom_the_page_asks(admin_page: Page) -> None:
    run = RunUnderWay()
    follow(admin_page, run.address)
    questions = Questions(admin_page)
    assert questions.count_during(4) >= 3
    questions.count_during(40)
    assert 2 <= questions.count_during(24) <= 3
    run.end_attempt()
    for _ in range(14):
        questions.count_during(1)
        if "Passed" in (admin_page.locator("#s1-head").text_content() or ""):
            break
    expect(admin_page.locator("#s1-head")).to_contain_text("Passed")
    assert questions.count_during(12) >= 4


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
    expect(notice).to_be_empty()
    words = any_page.locator("h1").inner_text()
    any_page.context.set_offline(True)
    questions = Questions(any_page)
    assert questions.count_during(3) >= 1
    expect(notice).to_have_text(LOST)
    expect(notice).to_be_in_viewport()
    assert any_page.locator("h1").inner_text() == words
    # More and more seldom, but it does not give up.
    questions.count_during(90)
    assert 1 <= questions.count_during(60) <= 3
    run.end_attempt()
    with any_page.expect_response("**/live?*"):
        any_page.context.set_offline(False)
    expect(notice).to_be_empty()
    expect(any_page.locator("#s1-head")).to_contain_text("Passed")
    assert questions.count_during(4) >= 3


def test_a_server_that_fails_is_asked_again(any_page: Page) -> None:
    run = RunUnderWay()
    follow(any_page, run.address)

    def fail(route: Route) -> None:
        route.fulfill(status=502, body="Bad gateway")

    any_page.route("**/live?*", fail)
    answer: Response = wait_for_poll(any_page)
    assert answer.status == 502
    expect(any_page.locator(".connection")).to_have_text(LOST)
    any_page.unroute("**/live?*")
    Questions(any_page).count_during(3)
    expect(any_page.locator(".connection")).to_be_empty()


def test_a_run_that_was_deleted_is_gone_from_the_window_too(any_page: Page) -> None:
    run = RunUnderWay()
    follow(any_page, run.address)
    Run.objects.all().delete()
    any_page.clock.run_for(1_000)
    expect(any_page.get_by_role("heading", name="There is nothing here")).to_be_visible()


def test_what_runs_is_counted_on_between_updates_and_moves_nothing(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    attempt = admin_page.locator("#s1a1 > summary [data-seconds]")
    duration = admin_page.locator("#run-figures [data-seconds]")
    drawn = admin_page.locator("#waterfall tspan[data-seconds]")
    box = admin_page.locator("#s1a1 > summary").bounding_box()
    admin_page.clock.run_for(65_000)
    for part in (attempt, duration, drawn):
        expect(part).to_have_text(re.compile("^1 min 0[0-9] s$"))
    assert admin_page.locator("#s1a1 > summary").bounding_box() == box
    run.end_attempt()
    Questions(admin_page).count_during(9)
    expect(admin_page.locator("h1")).to_contain_text("Succeeded")
    expect(admin_page.locator("[data-seconds]")).to_have_count(0)
