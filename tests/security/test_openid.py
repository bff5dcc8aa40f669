"""Signing in through a provider of OpenID Connect, which answers over real HTTP on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import path
from django.utils import timezone

from runs.models import AuditEntry, BrowserSession
from tests.runs.pages.reading import read_words
from tests.security.provider import CLIENT_ID, CLIENT_SECRET, FakeProvider, make_key, run_provider
from tests.site.conftest import PRODUCTION
from tests.site.test_settings import read_settings
from toolflow_site.openid import BeginView, ReturnView, find_endpoint
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
    """The answer to a user who comes back from the provider."""
    client = client or Client()
    return client.get(provider.sign_in(client.get(f"/accounts/oidc/{query}")["Location"]))


def read_refusal(client: Client, answer: Any) -> str:
    assert answer["Location"] == "/accounts/login/"
    assert "_auth_user_id" not in client.session
    return read_words(client.get(answer["Location"]).content.decode())


def be_refused(provider: FakeProvider, client: Client | None = None) -> str:
    """What a user reads who comes back from the provider and is not let in."""
    client = client or Client()
    return read_refusal(client, sign_in(provider, client))


def test_the_page_has_a_button_and_whoever_comes_back_is_in(provider: FakeProvider) -> None:
    client = Client()
    page = client.get("/accounts/login/?next=/runs/").content.decode()
    assert "Sign in with Example ID" in read_words(page) and 'href="/accounts/oidc/?next=%2Fruns%2F"' in page
    assert sign_in(provider, client, "?next=/runs/")["Location"] == "/runs/"
    user = User.objects.get(pk=client.session["_auth_user_id"])
    assert (user.username, user.email) == ("olga@example.com", "olga@example.com")
    assert not user.is_staff and not user.has_usable_password()
    assert [entry.action for entry in AuditEntry.objects.order_by("pk")] == ["user_added", "signed_in"]
    assert "you sign in through your organisation" in read_words(client.get("/account/").content.decode())


def test_a_session_that_was_planted_before_is_another_one_after(provider: FakeProvider, settings: Any) -> None:
    client = Client()
    begun = client.get("/accounts/oidc/")
    # Those of anonymous users last ten minutes, those of users as others do.
    assert begun.cookies["sessionid"]["max-age"] == 600
    before = client.session.session_key
    done = client.get(provider.sign_in(begun["Location"]))
    assert done.cookies["sessionid"]["max-age"] == settings.SESSION_COOKIE_AGE
    assert client.session["_auth_user_id"] and client.session.session_key != before
    assert not BrowserSession.objects.filter(session_key=before).exists()
    assert BrowserSession.objects.get().expire_date > timezone.now() + timedelta(days=13)


UNVERIFIED, FOREIGN, UNCLEAR = (
    "has not verified your e-mail address",
    "is not one of those",
    "could not identify you",
)
BOTH = ["toolflow", "another client"]


@pytest.mark.parametrize(
    ("claims", "token", "sentence"),
    [
        ({"email_verified": False}, {}, UNVERIFIED),
        ({"email_verified": "false"}, {}, UNVERIFIED),
        ({"email_verified": 1}, {}, UNVERIFIED),
        ({"email": None}, {}, UNVERIFIED),
        ({"email_verified": None}, {}, UNVERIFIED),
        # What is said of one address is not believed of another.
        ({"email_verified": None}, {"email": "mallory@example.com", "email_verified": True}, UNVERIFIED),
        ({"email": "olga@evil.example"}, {}, FOREIGN),
        ({"email": "olga@example.com@evil.example"}, {}, FOREIGN),
        ({"sub": "2"}, {}, UNCLEAR),
        ({}, {"aud": "another client"}, UNCLEAR),
        ({}, {"aud": BOTH}, UNCLEAR),
        ({}, {"aud": BOTH, "azp": "another client"}, UNCLEAR),
        ({}, {"iss": "https://evil.example"}, UNCLEAR),
        ({}, {"exp": int(time.time()) - 3600}, UNCLEAR),
        ({}, {"nonce": "another"}, UNCLEAR),
        ({}, {"sub": None}, UNCLEAR),
    ],
)
def test_others_read_why_they_are_not_let_in(
    provider: FakeProvider, claims: dict[str, Any], token: dict[str, Any], sentence: str
) -> None:
    provider.claims = {key: value for key, value in {**provider.claims, **claims}.items() if value is not None}
    provider.token = token
    assert sentence in be_refused(provider)
    assert not User.objects.exists()
    # That counts for the address, and keeps no other user out.
    assert [(one.username, one.failures_since_start) for one in AccessAttempt.objects.all()] == [(BY_PROVIDER, 1)]


def test_claims_that_are_no_object_and_a_token_signed_with_another_key_let_no_user_in(provider: FakeProvider) -> None:
    known = provider.claims
    for claims in ([], "olga", None, [{"sub": "1"}]):
        provider.claims = claims  # type: ignore[assignment]  # what no provider should say
        assert UNCLEAR in be_refused(provider), claims
    provider.claims, provider.signs_with = known, make_key(1)
    assert UNCLEAR in be_refused(provider)


@pytest.mark.parametrize(
    ("claims", "token", "is_believed"),
    [
        ({"email_verified": "true"}, {}, False),
        ({"email_verified": "True"}, {}, False),
        ({}, {"aud": BOTH, "azp": "toolflow"}, False),
        ({}, {"aud": ["toolflow"]}, False),
        ({"email": None, "email_verified": False}, {"email": "olga@example.com", "email_verified": True}, False),
        ({"email_verified": None}, {}, True),
    ],
)
def test_a_provider_may_say_it_in_other_ways(
    provider: FakeProvider, settings: Any, claims: dict[str, Any], token: dict[str, Any], is_believed: bool
) -> None:
    settings.TOOLFLOW_OIDC_EMAILS_VERIFIED = is_believed
    provider.claims = {key: value for key, value in {**provider.claims, **claims}.items() if value is not None}
    provider.token = token
    assert sign_in(provider)["Location"] == "/"
    assert User.objects.get().email == "olga@example.com"
    # What it denies is believed of no user, whatever the installation says.
    settings.TOOLFLOW_OIDC_EMAILS_VERIFIED = True
    provider.claims["email_verified"] = False
    provider.token = {"sub": "1"}
    User.objects.all().delete()
    assert UNVERIFIED in be_refused(provider)


def test_an_answer_for_another_browser_lets_no_user_in_and_signs_no_user_out(provider: FakeProvider) -> None:
    victim, attacker = Client(), Client()
    way_back = provider.sign_in(attacker.get("/accounts/oidc/")["Location"])
    state = way_back.partition("state=")[2]
    assert "Sign-in failed" in read_refusal(victim, victim.get(way_back))
    victim.get("/accounts/oidc/")
    assert "Sign-in failed" in read_refusal(victim, victim.get(way_back))
    sign_in(provider, victim)
    for query in ("error=1", "error=access_denied&state=made-up", f"error=access_denied&state={state}"):
        victim.get(f"/accounts/oidc/callback/?{query}")
        assert victim.get("/account/").status_code == 200


def test_a_refusal_of_the_provider_is_reported_once(provider: FakeProvider) -> None:
    client = Client()
    state = provider.sign_in(client.get("/accounts/oidc/")["Location"]).partition("state=")[2]
    way_back = f"/accounts/oidc/callback/?error=access_denied&state={state}"
    assert "Sign-in failed" in read_refusal(client, client.get(way_back))
    assert "Sign-in failed" not in read_refusal(client, client.get(way_back))


def test_a_provider_that_fails_is_reported_without_its_words(
    provider: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()
    way_back = provider.sign_in(client.get("/accounts/oidc/")["Location"])
    provider.is_down = True
    assert UNCLEAR in read_refusal(client, client.get(way_back))
    assert CLIENT_SECRET not in caplog.text and "failed: HTTPError" in caplog.text


@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x"])
def test_coming_back_leads_to_no_other_site(provider: FakeProvider, place: str) -> None:
    assert sign_in(provider, query=f"?next={place}")["Location"] == "/"


# Settings

WHO = {"TOOLFLOW_OIDC_CLIENT_ID": "toolflow", "TOOLFLOW_OIDC_DOMAINS": "example.com"}


@pytest.mark.parametrize("issuer", ["https://id.example.com", "http://127.0.0.1:8080", "http://[::1]:8080"])
def test_lock_outs_are_known_before_a_provider_is_asked_that_has_tls_or_is_on_the_same_host(
    tmp_path: Path, issuer: str
) -> None:
    ours = "toolflow_site.openid.OpenIDBackend"
    assert ours not in read_settings(tmp_path)["AUTHENTICATION_BACKENDS"]
    found = read_settings(tmp_path, **PRODUCTION, **WHO, TOOLFLOW_OIDC_ISSUER=issuer)
    assert found["AUTHENTICATION_BACKENDS"][:2] == ["axes.backends.AxesStandaloneBackend", ours]
    # Without TLS any machine on the way can play a provider.
    for name, value in (("TOOLFLOW_OIDC_DOMAINS", ""), ("TOOLFLOW_OIDC_ISSUER", "http://id.example.com")):
        with pytest.raises(ImproperlyConfigured, match=name.removesuffix("DOMAINS")):
            read_settings(tmp_path, **PRODUCTION, **{**WHO, "TOOLFLOW_OIDC_ISSUER": issuer, name: value})


def test_a_provider_with_tls_may_not_name_an_address_without(settings: Any) -> None:
    issuer = settings.TOOLFLOW_OIDC_ISSUER = "https://id.example.com"
    described = {"token_endpoint": "http://id.example.com/token", "jwks_uri": f"{issuer}/keys"}
    caches["default"].set(f"openid:{issuer}", described)
    assert find_endpoint("jwks_uri") == f"{issuer}/keys"
    with pytest.raises(ValueError, match="token_endpoint"):
        find_endpoint("token_endpoint")
