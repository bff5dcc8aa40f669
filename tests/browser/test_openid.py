"""Signing in through a provider of OpenID Connect, with a browser that goes there and comes back."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from playwright.sync_api import Page, expect

from runs.models import BrowserSession, Run
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider

__all__ = ["provider"]

pytestmark = pytest.mark.urls("tests.security.test_openid")


def sign_in(page: Page) -> None:
    page.get_by_role("link", name="Sign in with Example ID").click()
    page.get_by_role("link", name="Yes, that is me").click()


def test_what_was_typed_is_there_again_after_the_session_ended(
    transactional_db: None, page: Page, provider: FakeProvider, settings: Any
) -> None:
    # An account that may do something already waits for whoever comes with its address.
    settings.TOOLFLOW_OIDC_LINK = ["olga"]
    make_version(make_page_flow(input_schema={"type": "object", "properties": {"brand": {"type": "string"}}}))
    olga = User.objects.create_user("olga", email=provider.claims["email"])
    olga.user_permissions.set(Permission.objects.filter(codename__in=["add_run", "view_run", "view_flow"]))
    page.goto("/runs/new/colour-theme/")
    sign_in(page)
    page.get_by_label("Brand").fill("Nordwind")
    BrowserSession.objects.all().delete()
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("status")).to_contain_text("You are not signed in any more, so nothing was done.")
    sign_in(page)
    expect(page.get_by_label("Brand")).to_have_value("Nordwind")
    assert not Run.objects.exists()
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == {"brand": "Nordwind"}
