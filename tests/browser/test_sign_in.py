"""A user's account in a browser: signing in, the theme and time zone, a token and the API reference that it opens."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Page, Route, expect

from runs.models import BrowserSession, Run
from tests.browser.run_under_way import RunUnderWay, follow
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow

LIGHT, DARK = "rgb(245, 246, 249)", "rgb(12, 15, 20)"
HOST = "http://flows.example.test"
# As it is called in production, and where the path holds the same words.
SCRIPT = f"{HOST}/a/static/static/toolflow/js/times.0123456789ab.js"


def sign_in(page: Page, password: str = "secret") -> None:  # noqa: S107  # that of a test
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def expect_theme(page: Page, name: str, ground: str) -> None:
    expect(page.get_by_role("button", name=f"Change theme: now {name}")).to_be_visible()
    expect(page.locator("html")).to_have_css("background-color", ground)


def read_cookie_path(page: Page) -> str:
    """The path of the cookie with the time zone, where ToolFlow shares its host with others."""

    def answer(route: Route) -> None:
        if route.request.url == SCRIPT:
            file = settings.BASE_DIR / "static/toolflow/js/times.js"
            route.fulfill(path=file, content_type="text/javascript")
        else:
            route.fulfill(body=f'<!doctype html><script src="{SCRIPT}" defer></script>', content_type="text/html")

    page.route(f"{HOST}/**", answer)
    page.goto(f"{HOST}/a/static/runs/")
    (cookie,) = page.context.cookies(f"{HOST}/a/static/")
    assert (cookie["name"], cookie["sameSite"]) == ("toolflow_time_zone", "Lax")
    return cookie["path"]


@pytest.mark.browser_context_args(timezone_id="America/New_York", permissions=["clipboard-read", "clipboard-write"])
def test_an_account_is_signed_in_to_and_its_theme_zone_and_token_are_kept(page: Page, transactional_db: None) -> None:
    assert read_cookie_path(page) == "/a/static/"
    User.objects.create_superuser("ada", password="secret")
    run = RunUnderWay()
    Run.objects.update(started_at="2026-07-15T22:30:05Z")
    page.emulate_media(color_scheme="dark")
    page.goto(f"{run.address}?hide=low")
    # Without a choice pages are as the system.
    expect(page.locator("html")).to_have_css("background-color", DARK)
    sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    sign_in(page)
    expect(page).to_have_url(re.compile(rf"/runs/{run.run.pk}/\?hide=low$"))
    expect(page.get_by_text("15 Jul 2026, 18:30:05 EDT").first).to_be_visible()
    # So it does on a page that is open when the session ends.
    follow(page, f"{run.address}?hide=low")
    BrowserSession.objects.all().delete()
    asked = list[str]()
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page.route("**/accounts/login/**", lambda route: route.abort("aborted"))
    with page.expect_event("requestfailed"):
        page.clock.run_for(1_000)
    # To ask again would begin to load the other page again, and end with none where that takes a second.
    page.clock.run_for(5_000)
    page.evaluate("0")
    assert asked == [f"{run.address}live", "/accounts/login/"]
    page.unroute("**/accounts/login/**")
    page.reload()
    expect(page.get_by_text("Sign in to continue to the page you opened.")).to_be_visible()
    sign_in(page)
    expect(page).to_have_url(re.compile(rf"/runs/{run.run.pk}/\?hide=low$"))

    page.emulate_media(color_scheme="light")
    expect_theme(page, "as your system", LIGHT)
    change = page.get_by_role("button", name="Change theme")
    change.click()
    expect_theme(page, "dark", DARK)
    page.goto("/admin/")
    expect_theme(page, "dark", DARK)
    change.click()
    page.goto("/tokens/")
    expect_theme(page, "light", LIGHT)
    change.click()
    expect_theme(page, "as your system", LIGHT)

    page.get_by_role("radio", name="Run").check()
    page.get_by_label("Name").fill("nightly import")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator(".token-made")).to_be_focused()
    token = page.locator("#new-token").inner_text()
    button = page.get_by_role("button", name="Copy the commands")
    button.click()
    expect(button).to_have_attribute("data-notice", "Copied")
    assert f"export TOOLFLOW_TOKEN={token}" in page.evaluate("navigator.clipboard.readText()")
    page.goto("/tokens/")
    assert token not in page.content()
    page.get_by_role("link", name="Revoke nightly import").click()
    page.get_by_role("button", name="Revoke token").click()
    expect(page.get_by_role("region", name="Expired and revoked tokens")).to_contain_text("nightly import")

    make_version(make_page_flow(make_step(1, compute="{'n': 1}"), name="by-api"))
    hosts = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.goto("/api/v1/docs#/Runs/createRun")
    entry = page.locator("#operations-Runs-createRun")
    entry.get_by_role("button", name="Try it out").click()
    entry.locator("textarea").fill('{"flow": "by-api", "input": {"topic": "tea"}}')
    entry.get_by_role("button", name="Execute").click()
    expect(entry.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("202")
    assert Run.objects.get(version__flow__name="by-api").input == {"topic": "tea"}
    assert {host for host in hosts if host} == {urlsplit(page.url).netloc}
