"""Who is let in, where they land, and what the others see."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from playwright.sync_api import Page, expect

from runs.models import BrowserSession
from tests.browser.run_under_way import RunUnderWay, follow
from tests.runs.pages.history_builders import make_retried_run
from tests.runs.pages.reading import run_address

SURFACE = "rgb(255, 255, 255)"


@pytest.fixture(autouse=True)
def _ada(transactional_db: None) -> None:
    user = User.objects.create_user("ada", password="secret")
    user.user_permissions.set(Permission.objects.filter(codename="view_run"))


def sign_in(page: Page, password: str) -> None:
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_signing_in_leads_back_to_the_page_that_was_asked_for(page: Page) -> None:
    run = make_retried_run()
    page.goto(f"{run_address(run)}?hide=low")
    expect(page.get_by_text("Sign in to see the page you asked for.")).to_be_visible()
    sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    sign_in(page, "secret")
    expect(page).to_have_url(re.compile(rf"/runs/{run.pk}/\?hide=low$"))
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto("/runs/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_page_that_is_open_when_the_session_ends_asks_to_sign_in_and_comes_back(page: Page) -> None:
    run = RunUnderWay()
    page.goto(run.address)
    sign_in(page, "secret")
    expect(page.locator("h1")).to_contain_text("Running")
    follow(page, f"{run.address}?hide=low")
    BrowserSession.objects.all().delete()
    page.clock.run_for(1_000)
    expect(page.get_by_text("Sign in to see the page you asked for.")).to_be_visible()
    sign_in(page, "secret")
    expect(page).to_have_url(re.compile(rf"/runs/{run.run.pk}/\?hide=low$"))


@pytest.mark.parametrize(
    ("address", "heading", "text"),
    [
        ("/runs/999/", "There is nothing here", "The address is wrong, or what it named was deleted."),
        ("/nowhere/", "There is nothing here", "The address is wrong, or what it named was deleted."),
        ("/runs/new/", "You may not do this", "You may not start runs: your account lacks “runs.add_run”."),
    ],
)
def test_pages_that_are_missing_or_forbidden_say_so_in_our_look(
    page: Page, address: str, heading: str, text: str
) -> None:
    page.goto("/accounts/login/")
    sign_in(page, "secret")
    page.goto(address)
    expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_text(text)).to_be_visible()
    expect(page.locator(".card")).to_have_css("background-color", SURFACE)
    expect(page.locator(".brand rect").first).to_be_visible()
    page.get_by_role("link", name="All runs").click()
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
