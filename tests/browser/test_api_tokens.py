"""A token as somebody makes it for a script: made, copied, used and revoked in the browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect

from runs.models import ApiToken
from tests.api.asking import make_token
from tests.browser.widths import assert_fits


def make_in_browser(page: Page, name: str) -> str:
    """Fill in the form and send it; gives the token that is shown."""
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Make the token").click()
    shown = page.locator("#new-token")
    expect(shown).to_have_text(re.compile(r"tf_[0-9a-f]{64}"))
    return shown.inner_text()


def test_a_token_is_made_copied_used_and_revoked(admin_page: Page, context: BrowserContext, base_url: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=base_url)
    admin_page.goto("/runs/")
    admin_page.get_by_role("link", name="API tokens").click()
    expect(admin_page.get_by_text("None. A token that you make is listed here")).to_be_visible()
    admin_page.get_by_role("radio", name="Run").check()
    admin_page.get_by_label("Expires after").select_option("A year")
    token = make_in_browser(admin_page, "nightly import")
    expect(admin_page.locator(".token-made")).to_be_focused()
    admin_page.get_by_role("button", name="Copy the token").click()
    expect(admin_page.get_by_role("status").filter(has_text="Copied")).to_be_attached()
    assert admin_page.evaluate("navigator.clipboard.readText()") == token
    admin_page.get_by_role("button", name="Copy the commands").click()
    expect(admin_page.locator("[data-told]")).to_have_count(2)
    assert f"export TOOLFLOW_TOKEN={token}" in admin_page.evaluate("navigator.clipboard.readText()")

    ask: Any = admin_page.request.get
    used = ask("/api/v1/nowhere", headers={"Authorization": f"Bearer {token}"})
    assert used.json()["detail"] == "There is nothing here."
    admin_page.goto("/tokens/")
    expect(admin_page.locator("#new-token")).to_have_count(0)
    row = admin_page.get_by_role("row", name=re.compile("nightly import"))
    expect(row).to_contain_text("Run")
    expect(row).to_contain_text(re.compile(r"\d+ s ago"))
    assert token not in admin_page.content()

    row.get_by_role("link", name="Revoke nightly import").click()
    admin_page.get_by_role("link", name="Keep it").click()
    row.get_by_role("link", name="Revoke nightly import").click()
    admin_page.get_by_role("button", name="Revoke the token").click()
    expect(admin_page.get_by_role("status").first).to_contain_text("The token “nightly import” is revoked.")
    expect(admin_page.get_by_role("region", name="Expired and revoked tokens")).to_contain_text("nightly import")
    refused = ask("/api/v1/nowhere", headers={"Authorization": f"Bearer {token}"})
    assert refused.json()["detail"] == "The token “nightly import” was revoked."


def test_what_is_wrong_stands_at_its_field_and_what_was_chosen_stays(admin_page: Page) -> None:
    make_token(User.objects.get(), name="CI")
    admin_page.goto("/tokens/")
    admin_page.get_by_role("radio", name="Edit").check()
    admin_page.get_by_label("Name").fill("CI")
    admin_page.get_by_role("button", name="Make the token").click()
    name = admin_page.get_by_label("Name")
    expect(name).to_be_focused()
    expect(name).to_have_accessible_description(re.compile("There is an active token “CI” already"))
    expect(admin_page.get_by_role("radio", name="Edit")).to_be_checked()
    assert ApiToken.objects.count() == 1


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_javascript_a_token_is_made_and_revoked_too(admin_page: Page) -> None:
    admin_page.goto("/tokens/")
    make_in_browser(admin_page, "CI")
    expect(admin_page.get_by_role("button", name="Copy the token")).to_be_hidden()
    admin_page.get_by_role("link", name="Revoke CI").click()
    admin_page.get_by_role("button", name="Revoke the token").click()
    expect(admin_page.get_by_text("The token “CI” is revoked.")).to_be_visible()


def test_the_pages_fit_a_phone(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 800})
    make_token(User.objects.get(), name="x" * 100)
    admin_page.goto("/tokens/")
    assert_fits(admin_page)
    make_in_browser(admin_page, "W" * 100)
    assert_fits(admin_page)
    admin_page.get_by_role("link", name="Revoke WWW").click()
    assert_fits(admin_page)
