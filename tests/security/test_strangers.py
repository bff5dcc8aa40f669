"""What people who have not signed in leave behind: nothing that grows with how often they come."""

from __future__ import annotations

import re
import time
from typing import Any
from unittest.mock import patch

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.crypto import get_random_string

from runs.models import BrowserSession, TrailEntry
from runs.signing_in import SessionStore
from tests.api.test_access_matrix import find_addresses
from tests.runs.pages.reading import read_words
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider, read_refusal
from tests.site.test_permissions import ANYONE, World, list_rules, world

__all__ = ["provider", "world"]

pytestmark = pytest.mark.django_db

OPENID = pytest.mark.urls("tests.security.test_openid")
COOKIE = settings.SESSION_COOKIE_NAME
LARGEST_COOKIE = 4093
"""Bytes of name, value and attributes that all browsers keep."""


def find_writes(queries: CaptureQueriesContext) -> list[str]:
    return [one["sql"] for one in queries if re.match(r"\s*(INSERT|UPDATE|DELETE|REPLACE)", one["sql"], re.IGNORECASE)]


def test_no_page_writes_a_row_for_whoever_has_not_signed_in(world: World) -> None:
    addresses = [world.fill(address) for address in list_rules()]
    with CaptureQueriesContext(connection) as queries:
        for address in addresses:
            for method in ("GET", "POST"):
                world.ask(ANYONE, method, address)
    assert len(addresses) > 50 and find_writes(queries) == []


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer tf_nobody-was-given-this"}])
def test_the_api_writes_none_either(headers: dict[str, str]) -> None:
    client = Client(raise_request_exception=False, headers=headers)
    with CaptureQueriesContext(connection) as queries:
        for address in find_addresses():
            for method in ("GET", "POST", "PATCH", "PUT", "DELETE"):
                path = re.sub(r"<\w+>", "1", address)
                client.generic(method, f"/api/v1/{path}", b"{}", content_type="application/json")
    assert find_writes(queries) == []


@OPENID
def test_going_to_the_provider_writes_none_and_a_sentence_on_the_way_back_none(provider: FakeProvider) -> None:
    client = Client()
    with CaptureQueriesContext(connection) as queries:
        for _ in range(3):
            client.get("/accounts/oidc/?next=/runs/")
        refused = client.get("/accounts/oidc/callback/?code=1&state=2")
        assert "Signing in did not work" in read_refusal(client, refused)
    assert find_writes(queries) == []


@OPENID
def test_what_a_browser_keeps_meanwhile_is_never_too_large_for_a_cookie(provider: FakeProvider) -> None:
    client = Client()
    for _ in range(12):
        page = f"/runs/?label={get_random_string(900)}"
        begun = client.get("/accounts/oidc/", {"next": page})
        assert len(begun.cookies[COOKIE].OutputString()) < LARGEST_COOKIE
    assert client.get(provider.sign_in(begun["Location"]))["Location"] == page
    # The front page in place of an address that is too long; umlauts take more room than they seem to.
    for label in (get_random_string(5_000), "\u00e4" * 900):
        begun = Client().get("/accounts/oidc/", {"next": f"/runs/?label={label}"})
        assert len(begun.cookies[COOKIE].OutputString()) < LARGEST_COOKIE
        client.cookies[COOKIE] = begun.cookies[COOKIE].value
        assert client.get(provider.sign_in(begun["Location"]))["Location"] == "/"


@OPENID
def test_such_a_cookie_is_good_for_ten_minutes_and_for_this_alone(provider: FakeProvider) -> None:
    client = Client()
    begun = client.get("/accounts/oidc/")
    with patch("django.core.signing.time.time", return_value=time.time() + 601):
        assert "Signing in did not work" in read_refusal(client, client.get(provider.sign_in(begun["Location"])))
    again = client.get("/accounts/oidc/")
    key = client.cookies[COOKIE].value
    client.cookies[COOKIE] = f"{key[:-1]}{'A' if key[-1] != 'A' else 'B'}"
    assert "Signing in did not work" in read_refusal(client, client.get(provider.sign_in(again["Location"])))


def test_nobody_signs_in_by_a_cookie_that_was_signed_for_something_else() -> None:
    ada = User.objects.create_superuser("ada")
    client = Client()
    client.force_login(ada)
    inside = dict(client.session)
    stranger = Client()
    for salt in ("django.core.signing", "django.contrib.sessions.backends.signed_cookies"):
        stranger.cookies[COOKIE] = signing.dumps(inside, salt=salt)
        assert stranger.get("/account/").status_code == 302
    # What holds an account is in a row, and its key tells nothing.
    session = SessionStore()
    session.update(inside)
    session.save()
    assert session.session_key is not None and session.session_key.isalnum()
    assert BrowserSession.objects.get(session_key=session.session_key).user == ada


def test_failures_to_sign_in_are_bounded_for_each_place_whatever_is_sent(settings: Any) -> None:
    settings.AXES_ENABLED, settings.AXES_FAILURE_LIMIT = True, 2
    for number in range(40):
        Client(headers={"User-Agent": f"Browser {number}"}).post(
            "/accounts/login/",
            {"username": f"somebody-{number}", "password": "x"},
            REMOTE_ADDR=f"2001:db8::{number:x}",
        )
    assert AccessAttempt.objects.count() == 20
    assert TrailEntry.objects.filter(action__in=["sign_in_failed", "locked_out"]).count() == 20
    assert not BrowserSession.objects.exists()


def test_the_sign_in_page_begins_no_session() -> None:
    client = Client()
    assert "Sign in" in read_words(client.get("/accounts/login/").content.decode())
    assert list(client.cookies) == ["csrftoken"]
