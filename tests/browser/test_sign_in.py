"""Who is let in and where they land, also through a provider; the reader's theme, time zone and tokens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission, User
from playwright.sync_api import BrowserContext, Page, Route, expect

from runs.models import BrowserSession, Run
from tests.browser.run_under_way import RunUnderWay, follow
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.reading import run_address
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider

__all__ = ["provider"]

LIGHT, DARK = "rgb(245, 246, 249)", "rgb(12, 15, 20)"
SCRIPT = django_settings.BASE_DIR / "static/toolflow/js/times.js"
HOST = "http://flows.example.test"


@pytest.fixture
def ada(transactional_db: None) -> User:
    user = User.objects.create_user("ada", password="secret")
    user.user_permissions.set(Permission.objects.filter(codename="view_run"))
    return user


def sign_in(page: Page, password: str = "secret") -> None:  # noqa: S107  # that of a test
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.browser_context_args(timezone_id="America/New_York")
def test_signing_in_leads_back_to_the_page_that_was_asked_for_with_times_of_the_browser(page: Page, ada: User) -> None:
    run = RunUnderWay()
    page.emulate_media(color_scheme="dark")
    page.goto(f"{run.address}?hide=low")
    # Without a choice pages are as the system.
    expect(page.locator("html")).to_have_css("background-color", DARK)
    sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    sign_in(page)
    expect(page).to_have_url(re.compile(rf"/runs/{run.run.pk}/\?hide=low$"))
    # So it does on a page that is open when the session ends.
    follow(page, f"{run.address}?hide=low")
    BrowserSession.objects.all().delete()
    page.clock.run_for(1_000)
    expect(page.get_by_text("Sign in to continue to the page you opened.")).to_be_visible()
    sign_in(page)
    expect(page).to_have_url(re.compile(rf"/runs/{run.run.pk}/\?hide=low$"))
    page.get_by_role("button", name="Sign out").click()
    page.goto(run_address(make_retried_run(started_at="2026-07-15T22:30:05Z")))
    sign_in(page)
    expect(page.get_by_text("Started 15 Jul 2026, 18:30:05 EDT")).to_be_visible()


def sign_in_there(page: Page) -> None:
    page.get_by_role("link", name="Sign in with Example ID").click()
    page.get_by_role("link", name="Yes, that is me").click()


@pytest.mark.urls("tests.security.test_openid")
def test_what_was_typed_is_there_again_after_signing_in_through_a_provider(
    transactional_db: None, page: Page, provider: FakeProvider, settings: Any
) -> None:
    # An account that may do something already waits for whoever comes with its address.
    settings.TOOLFLOW_OIDC_LINK = ["olga"]
    make_version(make_page_flow(input_schema={"type": "object", "properties": {"brand": {"type": "string"}}}))
    olga = User.objects.create_user("olga", email=provider.claims["email"])
    olga.user_permissions.set(Permission.objects.filter(codename__in=["add_run", "view_run", "view_flow"]))
    page.goto("/runs/new/colour-theme/")
    sign_in_there(page)
    page.get_by_label("Brand").fill("Nordwind")
    BrowserSession.objects.all().delete()
    page.get_by_role("button", name="Start run").click()
    sign_in_there(page)
    expect(page.get_by_label("Brand")).to_have_value("Nordwind")
    assert not Run.objects.exists()
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == {"brand": "Nordwind"}


# The theme


def expect_theme(page: Page, name: str, ground: str) -> None:
    expect(page.get_by_role("button", name=f"Change theme: now {name}")).to_be_visible()
    expect(page.locator("html")).to_have_css("background-color", ground)


def test_the_choice_of_a_theme_is_kept_and_shared_with_the_admin(admin_page: Page) -> None:
    admin_page.emulate_media(color_scheme="dark")
    admin_page.goto("/admin/")
    expect(admin_page.locator("html")).to_have_css("background-color", DARK)
    admin_page.emulate_media(color_scheme="light")
    change = admin_page.get_by_role("button", name="Change theme")
    admin_page.goto("/runs/")
    expect_theme(admin_page, "as your system", LIGHT)
    change.click()
    expect_theme(admin_page, "dark", DARK)
    for address in ("/runs/", "/admin/"):
        admin_page.goto(address)
        expect_theme(admin_page, "dark", DARK)
    change.click()
    admin_page.goto("/runs/new/")
    expect_theme(admin_page, "light", LIGHT)
    change.click()
    expect_theme(admin_page, "as your system", LIGHT)


# The second is as it is called in production, and where the path holds the same words.
@pytest.mark.parametrize(
    ("prefix", "file", "path"), [("", "times.js", "/"), ("/a/static", "times.0123456789ab.js", "/a/static/")]
)
def test_the_time_zone_is_sent_to_nobody_else_on_the_host(page: Page, prefix: str, file: str, path: str) -> None:
    address = f"{prefix}/static/toolflow/js/{file}"

    def answer(route: Route) -> None:
        if route.request.url == HOST + address:
            route.fulfill(path=SCRIPT, content_type="text/javascript")
        else:
            route.fulfill(body=f'<!doctype html><script src="{address}" defer></script>', content_type="text/html")

    page.route(f"{HOST}/**", answer)
    page.goto(f"{HOST}{prefix}/runs/")
    (cookie,) = [cookie for cookie in page.context.cookies() if cookie["name"] == "toolflow_time_zone"]
    assert (cookie["path"], cookie["sameSite"]) == (path, "Lax")


# API tokens


def test_a_token_is_made_copied_used_and_revoked(admin_page: Page, context: BrowserContext, base_url: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=base_url)
    admin_page.goto("/tokens/")
    admin_page.get_by_role("radio", name="Run").check()
    admin_page.get_by_label("Name").fill("nightly import")
    admin_page.get_by_role("button", name="Create token").click()
    shown = admin_page.locator("#new-token")
    expect(shown).to_have_text(re.compile(r"tf_[0-9a-f]{64}"))
    expect(admin_page.locator(".token-made")).to_be_focused()
    token = shown.inner_text()
    for name, copied in (("Copy the token", token), ("Copy the commands", f"export TOOLFLOW_TOKEN={token}")):
        button = admin_page.get_by_role("button", name=name)
        button.click()
        expect(button).to_have_attribute("data-told", "Copied")
        assert copied in admin_page.evaluate("navigator.clipboard.readText()")

    ask: Any = admin_page.request.get
    headers = {"Authorization": f"Bearer {token}"}
    assert ask("/api/v1/nowhere", headers=headers).status == 404
    admin_page.goto("/tokens/")
    assert token not in admin_page.content()
    row = admin_page.get_by_role("row", name=re.compile("nightly import"))
    expect(row).to_contain_text(re.compile(r"\d+ s ago"))
    row.get_by_role("link", name="Revoke nightly import").click()
    admin_page.get_by_role("button", name="Revoke token").click()
    expect(admin_page.get_by_role("region", name="Expired and revoked tokens")).to_contain_text("nightly import")
    assert ask("/api/v1/nowhere", headers=headers).status == 401
