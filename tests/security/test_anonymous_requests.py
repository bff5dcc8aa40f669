"""What people who have not signed in leave behind: nothing that grows with how often they come, for them alone."""

from __future__ import annotations

import re
import time
from typing import Any
from unittest.mock import patch

import pytest
from axes.models import AccessAttempt
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.crypto import get_random_string

from runs.models import AuditEntry, BrowserSession
from runs.models.account import SessionStore
from tests.api.test_access_matrix import find_addresses
from tests.runs.pages.reading import read_words
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider, read_refusal
from tests.site.test_permissions import ANYONE, World, list_rules, world

__all__ = ["provider", "world"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.security.test_openid")]

COOKIE = django_settings.SESSION_COOKIE_NAME
DESCRIPTION = "/.well-known/openid-configuration"
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


def test_going_to_the_provider_writes_none_and_a_sentence_on_the_way_back_none(provider: FakeProvider) -> None:
    client = Client()
    with CaptureQueriesContext(connection) as queries:
        for _ in range(3):
            client.get("/accounts/oidc/?next=/runs/")
        refused = client.get("/accounts/oidc/callback/?code=1&state=2")
        assert "Sign-in failed" in read_refusal(client, refused)
    assert find_writes(queries) == []


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


def test_such_a_cookie_is_good_for_ten_minutes_and_for_this_alone(provider: FakeProvider) -> None:
    client = Client()
    begun = client.get("/accounts/oidc/")
    with patch("django.core.signing.time.time", return_value=time.time() + 601):
        assert "Sign-in failed" in read_refusal(client, client.get(provider.sign_in(begun["Location"])))
    again = client.get("/accounts/oidc/")
    key = client.cookies[COOKIE].value
    client.cookies[COOKIE] = f"{key[:-1]}{'A' if key[-1] != 'A' else 'B'}"
    assert "Sign-in failed" in read_refusal(client, client.get(provider.sign_in(again["Location"])))


def test_no_user_signs_in_by_a_cookie_that_was_signed_for_something_else() -> None:
    ada = User.objects.create_superuser("ada")
    client, visitor = Client(), Client()
    client.force_login(ada)
    inside = dict(client.session)
    for salt in ("django.core.signing", "django.contrib.sessions.backends.signed_cookies"):
        visitor.cookies[COOKIE] = signing.dumps(inside, salt=salt)
        assert visitor.get("/account/").status_code == 302
    # What holds an account is in a row, and its key tells nothing.
    session = SessionStore()
    session.update(inside)
    session.save()
    assert session.session_key is not None and session.session_key.isalnum()
    assert BrowserSession.objects.get(session_key=session.session_key).user == ada


# On the way to a provider of OpenID Connect and back


class Visitor:
    """A user who keeps the cookie of one way to the provider, and comes back with it again and again."""

    def __init__(self, provider: FakeProvider, address: str = "192.0.2.7") -> None:
        client = Client()
        self.address = address
        self.way_back = provider.sign_in(client.get("/accounts/oidc/")["Location"])
        self.state = self.way_back.partition("state=")[2]
        self._cookie = client.cookies[COOKIE].value

    def come_back(self, code: str = "") -> Any:
        """The answer; ``code`` replaces the one that the provider gave."""
        client = Client(REMOTE_ADDR=self.address)
        client.cookies[COOKIE] = self._cookie
        return client.get(f"/accounts/oidc/callback/?code={code}&state={self.state}" if code else self.way_back)


@pytest.fixture
def low_limit(settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 2


def count_failures() -> int:
    return AuditEntry.objects.filter(action__in=["sign_in_failed", "locked_out"]).count()


def test_failures_of_an_address_are_bounded_and_fill_no_trail(provider: FakeProvider, low_limit: None) -> None:
    visitor = Visitor(provider)
    answers = [visitor.come_back(f"guess-{number}") for number in range(60)]
    assert [answer.status_code for answer in answers] == [302] * 19 + [429] * 41
    assert count_failures() == provider.asked.count("/token") == 20
    reported = read_words(answers[-1].content.decode())
    assert "Try again in 15 minutes" in reported
    assert answers[-1]["Retry-After"] == str(15 * 60)


def test_ways_that_are_begun_again_each_time_are_bounded_for_each_network(
    provider: FakeProvider, low_limit: None
) -> None:
    for number in range(30):
        Visitor(provider, f"2001:db8:1:2::{number:x}").come_back("guess")
    assert provider.asked.count("/token") == count_failures() == 20
    assert str(AccessAttempt.objects.values_list("get_data", flat=True)).count("guess") == 0
    # Their neighbours sign in.
    assert Visitor(provider, "2001:db8:1:3::1").come_back()["Location"] == "/"


def test_however_many_fail_elsewhere_no_other_user_is_kept_out(provider: FakeProvider, low_limit: None) -> None:
    for number in range(50):
        Visitor(provider, f"192.0.2.{number}").come_back("guess")
    assert Visitor(provider, "198.51.100.1").come_back()["Location"] == "/"
    User.objects.create_user("ada", password="correct horse")
    page = {"username": "ada", "password": "correct horse"}
    assert Client(REMOTE_ADDR="198.51.100.1").post("/accounts/login/", page).status_code == 302


def test_whoever_guessed_passwords_too_often_does_not_go_on_by_the_provider(
    provider: FakeProvider, low_limit: None
) -> None:
    for number in range(20):
        page = {"username": f"somebody-{number}", "password": "x"}
        Client(REMOTE_ADDR="192.0.2.7").post("/accounts/login/", page)
    assert Visitor(provider).come_back().status_code == 429
    assert "/token" not in provider.asked


def test_a_way_back_leads_in_once(provider: FakeProvider) -> None:
    visitor = Visitor(provider)
    assert [visitor.come_back()["Location"] for _ in range(2)] == ["/", "/accounts/login/"]


def test_a_provider_describes_itself_once_an_hour_and_is_said_to_be_away_if_it_does_not(provider: FakeProvider) -> None:
    provider.is_down = True
    client = Client()
    assert "Example ID is not responding" in read_refusal(client, client.get("/accounts/oidc/"))
    provider.is_down, provider.described_issuer = False, "https://other.example.com"
    assert "Example ID is not responding" in read_refusal(client, client.get("/accounts/oidc/"))
    provider.described_issuer = provider.issuer
    provider.asked.clear()
    for _ in range(3):
        assert Client().get("/accounts/oidc/")["Location"].startswith(provider.issuer)
    assert provider.asked == [DESCRIPTION]
