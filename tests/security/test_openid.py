"""Signing in through a provider of OpenID Connect, which answers over real HTTP on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import path

from runs.models import BrowserSession, TrailEntry
from tests.runs.pages.reading import read_words
from tests.security.provider import CLIENT_ID, CLIENT_SECRET, FakeProvider, make_key, run_provider
from tests.site.test_settings import read_settings
from toolflow_site.openid import BeginView, ReturnView
from toolflow_site.sign_in import BY_PROVIDER
from toolflow_site.urls import urlpatterns as real_urlpatterns

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

urlpatterns = [
    path("accounts/oidc/", BeginView.as_view(), name="oidc_authentication_init"),
    path("accounts/oidc/callback/", ReturnView.as_view(), name="oidc_authentication_callback"),
    *real_urlpatterns,
]


@pytest.fixture
def provider(settings: Any) -> Iterator[FakeProvider]:
    with run_provider() as provider:
        first, *others = settings.AUTHENTICATION_BACKENDS
        settings.AUTHENTICATION_BACKENDS = [first, "toolflow_site.openid.OpenIDBackend", *others]
        settings.TOOLFLOW_OIDC_ISSUER = provider.issuer
        settings.TOOLFLOW_OIDC_NAME = "Example ID"
        settings.TOOLFLOW_OIDC_DOMAINS = ["example.com"]
        settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET
        settings.AXES_ENABLED = True
        yield provider


def sign_in(provider: FakeProvider, client: Client | None = None, query: str = "") -> Any:
    """The answer to somebody who comes back from the provider."""
    client = client or Client()
    return client.get(provider.sign_in(client.get(f"/accounts/oidc/{query}")["Location"]))


def read_refusal(client: Client, answer: Any) -> str:
    assert answer["Location"] == "/accounts/login/"
    assert "_auth_user_id" not in client.session
    return read_words(client.get(answer["Location"]).content.decode())


def test_the_page_has_a_button_and_whoever_comes_back_is_in(provider: FakeProvider) -> None:
    client = Client()
    page = client.get("/accounts/login/?next=/runs/").content.decode()
    assert "Sign in with Example ID" in read_words(page) and 'href="/accounts/oidc/?next=%2Fruns%2F"' in page
    answer = sign_in(provider, client, "?next=/runs/")
    assert answer["Location"] == "/runs/"
    user = User.objects.get(pk=client.session["_auth_user_id"])
    assert (user.username, user.email, user.is_staff, user.has_usable_password()) == (
        "olga@example.com", "olga@example.com", False, False,
    )  # fmt: skip
    assert [entry.action for entry in TrailEntry.objects.order_by("pk")] == ["user_added", "signed_in"]
    assert "you sign in through your organisation" in read_words(client.get("/account/").content.decode())


def test_a_session_that_was_planted_before_is_another_one_after(provider: FakeProvider) -> None:
    client = Client()
    begun = client.get("/accounts/oidc/")["Location"]
    before = client.session.session_key
    client.get(provider.sign_in(begun))
    assert client.session["_auth_user_id"] and client.session.session_key != before
    assert not BrowserSession.objects.filter(session_key=before).exists()


def test_an_account_that_there_is_gets_no_twin(provider: FakeProvider) -> None:
    olga = User.objects.create_user("olga", email="Olga@Example.com")
    client = Client()
    sign_in(provider, client)
    assert client.session["_auth_user_id"] == str(olga.pk)
    assert User.objects.count() == 1


def test_groups_follow_from_those_of_the_provider_at_every_sign_in(provider: FakeProvider, settings: Any) -> None:
    settings.TOOLFLOW_OIDC_GROUPS = {"ml-team": "Editor", "support": "Operator"}
    provider.claims["groups"] = ["ml-team", "everybody"]
    sign_in(provider)
    user = User.objects.get()
    user.groups.add(Group.objects.create(name="Choir"))
    assert user.is_staff and {group.name for group in user.groups.all()} == {"Editor", "Choir"}
    provider.claims["groups"] = ["support"]
    sign_in(provider)
    user.refresh_from_db()
    assert not user.is_staff and {group.name for group in user.groups.all()} == {"Operator", "Choir"}
    provider.claims["groups"] = ["everybody"]
    client = Client()
    assert "You are in none of the groups that may sign in here" in read_refusal(client, sign_in(provider, client))


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"email_verified": False}, "Example ID has not verified your e-mail address."),
        ({"email_verified": "false"}, "Example ID has not verified your e-mail address."),
        ({"email_verified": 1}, "Example ID has not verified your e-mail address."),
        ({"email": None}, "Example ID has not verified your e-mail address."),
        ({"email": "olga@evil.example"}, "Your e-mail address is not one of those that may sign in here."),
        ({"email": "olga@example.com@evil.example"}, "Your e-mail address is not one of those"),
        ({"sub": "2"}, "Example ID could not say who you are."),
    ],
)
def test_others_are_told_why_they_are_not_let_in(provider: FakeProvider, claims: dict[str, Any], sentence: str) -> None:
    provider.claims |= claims
    client = Client()
    assert sentence in read_refusal(client, sign_in(provider, client))
    assert not User.objects.exists()
    # That counts for the address, and keeps nobody else out.
    assert [(one.username, one.failures_since_start) for one in AccessAttempt.objects.all()] == [(BY_PROVIDER, 1)]


@pytest.mark.parametrize(
    "token",
    [
        {"aud": "another client"},
        {"iss": "https://evil.example"},
        {"exp": int(time.time()) - 3600},
        {"nonce": "another"},
        {"sub": None},
    ],
)
def test_a_token_that_is_not_for_us_or_not_good_lets_nobody_in(provider: FakeProvider, token: dict[str, Any]) -> None:
    provider.token = token
    client = Client()
    assert "Example ID could not say who you are" in read_refusal(client, sign_in(provider, client))


def test_a_token_that_somebody_else_signed_lets_nobody_in(provider: FakeProvider) -> None:
    provider.signs_with = make_key(1)
    client = Client()
    assert "Example ID could not say who you are" in read_refusal(client, sign_in(provider, client))


def test_an_answer_for_another_browser_lets_nobody_in(provider: FakeProvider) -> None:
    victim, attacker = Client(), Client()
    way_back = provider.sign_in(attacker.get("/accounts/oidc/")["Location"])
    assert "Signing in did not work" in read_refusal(victim, victim.get(way_back))
    victim.get("/accounts/oidc/")
    assert "Signing in did not work" in read_refusal(victim, victim.get(way_back))


def test_a_superuser_is_not_made_by_the_provider(provider: FakeProvider) -> None:
    User.objects.create_superuser("root", email="olga@example.com")
    client = Client()
    assert "Superusers sign in with their password" in read_refusal(client, sign_in(provider, client))


def test_a_closed_account_stays_closed(provider: FakeProvider) -> None:
    User.objects.create_user("olga", email="olga@example.com", is_active=False)
    client = Client()
    assert "Your account here is closed" in read_refusal(client, sign_in(provider, client))


def test_a_provider_that_fails_is_told_of_without_its_words(
    provider: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()
    way_back = provider.sign_in(client.get("/accounts/oidc/")["Location"])
    provider.is_down = True
    assert "Example ID could not say who you are" in read_refusal(client, client.get(way_back))
    assert CLIENT_SECRET not in caplog.text and "failed: HTTPError" in caplog.text


@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x"])
def test_coming_back_leads_to_no_other_site(provider: FakeProvider, place: str) -> None:
    assert sign_in(provider, query=f"?next={place}")["Location"] == "/"


ISSUER = {"TOOLFLOW_OIDC_ISSUER": "https://id.example.com", "TOOLFLOW_OIDC_CLIENT_ID": "toolflow"}


def test_it_is_off_unless_it_is_set_and_lock_outs_are_known_before_a_provider_is_asked(tmp_path: Path) -> None:
    ours = "toolflow_site.openid.OpenIDBackend"
    assert ours not in read_settings(tmp_path)["AUTHENTICATION_BACKENDS"]
    backends = read_settings(tmp_path, **ISSUER, TOOLFLOW_OIDC_GROUPS="ml-team=Editor")["AUTHENTICATION_BACKENDS"]
    assert backends[:2] == ["axes.backends.AxesStandaloneBackend", ours]


def test_settings_that_let_in_everybody_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="nothing says who of its users may sign in"):
        read_settings(tmp_path, **ISSUER)
