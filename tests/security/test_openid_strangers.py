"""What strangers try on the way to a provider of OpenID Connect and back: it is over soon, and for them alone."""

from __future__ import annotations

from typing import Any

import pytest
from axes.models import AccessAttempt
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client

from runs.models import TrailEntry
from tests.api.test_throttling import AWAY
from tests.runs.pages.reading import read_words
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider, read_refusal

__all__ = ["provider"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.security.test_openid")]

COOKIE = django_settings.SESSION_COOKIE_NAME
DESCRIPTION = "/.well-known/openid-configuration"


class Stranger:
    """Somebody who keeps the cookie of one way to the provider, and comes back with it again and again."""

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


def count_failures() -> int:
    return TrailEntry.objects.filter(action__in=["sign_in_failed", "locked_out"]).count()


def test_the_same_cookie_sent_again_and_again_asks_the_provider_once_and_fills_no_trail(
    provider: FakeProvider, settings: Any
) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    stranger = Stranger(provider)
    answers = [stranger.come_back(f"guess-{number}") for number in range(60)]
    assert provider.asked.count("/token") == 1
    assert [answer.status_code for answer in answers] == [302] * 19 + [429] * 41
    assert count_failures() == 20
    assert "Signing in failed too often from your address. You can try again in 15 minutes" in read_words(
        answers[-1].content.decode()
    )
    assert answers[-1]["Retry-After"] == str(15 * 60)


def test_ways_that_are_begun_anew_each_time_are_bounded_for_each_network(provider: FakeProvider, settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    for number in range(30):
        Stranger(provider, f"2001:db8:1:2::{number:x}").come_back("guess")
    assert provider.asked.count("/token") == count_failures() == 20
    assert str(AccessAttempt.objects.values_list("get_data", flat=True)).count("guess") == 0
    # Their neighbours sign in.
    assert Stranger(provider, "2001:db8:1:3::1").come_back()["Location"] == "/"


def test_however_many_fail_elsewhere_nobody_else_is_kept_out(provider: FakeProvider, settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    for number in range(50):
        Stranger(provider, f"192.0.2.{number}").come_back("guess")
    assert Stranger(provider, "198.51.100.1").come_back()["Location"] == "/"
    User.objects.create_user("ada", password="correct horse")
    page = {"username": "ada", "password": "correct horse"}
    assert Client(REMOTE_ADDR="198.51.100.1").post("/accounts/login/", page).status_code == 302


def test_whoever_guessed_passwords_too_often_does_not_go_on_by_the_provider(
    provider: FakeProvider, settings: Any
) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    for number in range(20):
        page = {"username": f"somebody-{number}", "password": "x"}
        Client(REMOTE_ADDR="192.0.2.7").post("/accounts/login/", page)
    assert Stranger(provider).come_back().status_code == 429
    assert "/token" not in provider.asked


@pytest.mark.parametrize("is_redis_away", [False, True])
def test_a_way_back_leads_in_once(provider: FakeProvider, settings: Any, is_redis_away: bool) -> None:
    if is_redis_away:
        settings.CACHES = {**settings.CACHES, "throttling": AWAY}
    stranger = Stranger(provider)
    assert stranger.come_back()["Location"] == "/"
    again = stranger.come_back()
    assert again["Location"] == "/accounts/login/" and provider.asked.count("/token") == 1


def test_a_provider_describes_itself_once_an_hour_and_is_said_to_be_away_if_it_does_not(provider: FakeProvider) -> None:
    provider.is_down = True
    client = Client()
    assert "Example ID does not answer" in read_refusal(client, client.get("/accounts/oidc/"))
    provider.is_down = False
    provider.asked.clear()
    for _ in range(3):
        assert Client().get("/accounts/oidc/")["Location"].startswith(provider.issuer)
    assert provider.asked == [DESCRIPTION]


def test_what_is_said_of_one_address_is_not_believed_of_another(provider: FakeProvider) -> None:
    provider.token = {"email": "mallory@example.com", "email_verified": True}
    provider.claims = {"sub": "1", "email": "olga@example.com"}
    client = Client()
    answer = client.get(provider.sign_in(client.get("/accounts/oidc/")["Location"]))
    assert "Example ID has not verified your e-mail address" in read_refusal(client, answer)


def test_an_address_may_be_told_in_the_token_alone(provider: FakeProvider) -> None:
    provider.token = {"email": "olga@example.com", "email_verified": True}
    provider.claims = {"sub": "1", "email_verified": False}
    assert Stranger(provider).come_back()["Location"] == "/"
    assert User.objects.get().email == "olga@example.com"


@pytest.mark.parametrize(
    ("token", "location"),
    [
        ({"aud": ["toolflow", "another client"]}, "/accounts/login/"),
        ({"aud": ["toolflow", "another client"], "azp": "another client"}, "/accounts/login/"),
        ({"aud": ["toolflow", "another client"], "azp": "toolflow"}, "/"),
        ({"aud": ["toolflow"]}, "/"),
    ],
)
def test_a_token_for_several_was_given_to_us(provider: FakeProvider, token: dict[str, Any], location: str) -> None:
    provider.token = token
    assert Stranger(provider).come_back()["Location"] == location
