"""What becomes of accounts when the provider of OpenID Connect says something else of them, or makes no sense."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.test import Client

from runs.access_groups import create_groups
from runs.models import ApiToken, TrailEntry
from runs.tokens import make_token
from tests.runs.pages.reading import read_words
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider, read_refusal, sign_in
from tests.site.conftest import PRODUCTION
from tests.site.test_settings import read_settings
from toolflow_site import openid_accounts
from toolflow_site.openid import find_endpoint

__all__ = ["provider"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.security.test_openid")]


@pytest.fixture
def groups(settings: Any) -> None:
    """Groups of the provider count."""
    create_groups(apps=apps, using="default")
    settings.TOOLFLOW_OIDC_GROUPS = {"ml-team": "Editor", "support": "Operator"}


def be_editor(provider: FakeProvider) -> tuple[Client, User]:
    """Somebody who has signed in as an Editor, and their browser."""
    provider.claims["groups"] = ["ml-team"]
    client = Client()
    sign_in(provider, client)
    user = User.objects.get()
    assert user.is_staff and client.get("/flows/").status_code == 200
    return client, user


@pytest.mark.parametrize("left", [["everybody"], [], "everybody", None])
def test_who_is_in_none_of_the_groups_any_more_loses_what_they_gave(
    provider: FakeProvider, groups: None, left: Any
) -> None:
    first, user = be_editor(provider)
    user.groups.add(Group.objects.create(name="Choir"))
    _, token = make_token(user=user, name="nightly", scope="edit", lifetime=None)
    script = Client(headers={"Authorization": f"Bearer {token}"})
    assert script.get("/api/v1/runs").status_code == 200
    provider.claims["groups"] = left
    second = Client()
    assert "You are in none of the groups that may sign in here" in read_refusal(second, sign_in(provider, second))
    user.refresh_from_db()
    assert not user.is_staff and [group.name for group in user.groups.all()] == ["Choir"]
    # Signed out at once, wherever they were signed in.
    assert first.get("/account/").status_code == 302
    # The token is as it was, and may see what its owner may: nothing.
    assert script.get("/api/v1/runs").status_code == 403
    assert not ApiToken.objects.get().revoked_at
    told = [entry.action for entry in TrailEntry.objects.filter(object_label="olga@example.com").order_by("pk")]
    assert told[-3:] == ["rights_changed", "user_changed", "sessions_ended"]


def test_the_browser_that_asks_is_signed_out_too(provider: FakeProvider, groups: None) -> None:
    client, _ = be_editor(provider)
    provider.claims["groups"] = []
    assert "You are in none of the groups" in read_refusal(client, sign_in(provider, client))
    assert client.get("/account/").status_code == 302


def test_who_comes_back_gets_it_back(provider: FakeProvider, groups: None) -> None:
    client, user = be_editor(provider)
    provider.claims["groups"] = []
    sign_in(provider)
    provider.claims["groups"] = ["support"]
    assert sign_in(provider, client)["Location"] == "/"
    assert [group.name for group in user.groups.all()] == ["Operator"]


def test_nothing_is_taken_from_others(provider: FakeProvider, groups: None) -> None:
    client, user = be_editor(provider)
    # Whoever has not verified an address may not put out its owner.
    provider.claims |= {"groups": [], "email_verified": False}
    sign_in(provider)
    # Nor somebody else who has the same address, or another.
    provider.token |= {"sub": "2"}
    provider.claims |= {"sub": "2", "email_verified": True}
    sign_in(provider)
    provider.claims |= {"email": "nina@example.com"}
    sign_in(provider)
    user.refresh_from_db()
    assert user.is_staff and user.groups.exists() and client.get("/flows/").status_code == 200
    assert not User.objects.filter(email="nina@example.com").exists()


@pytest.mark.parametrize("claim", [5, True, {"ml-team": "yes"}, 0])
def test_groups_that_are_no_list_let_nobody_in_and_take_nothing_away(
    provider: FakeProvider, groups: None, claim: Any
) -> None:
    _, user = be_editor(provider)
    provider.claims["groups"] = claim
    client = Client()
    assert "Example ID could not say who you are" in read_refusal(client, sign_in(provider, client))
    assert user.groups.exists()


@pytest.mark.parametrize("claims", [[], "olga", None, 7, [{"sub": "1"}]])
def test_claims_that_are_no_object_are_no_server_error(provider: FakeProvider, claims: Any) -> None:
    provider.claims = claims
    client = Client()
    assert "Example ID could not say who you are" in read_refusal(client, sign_in(provider, client))


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite lets all writers wait for each other")
def test_two_first_sign_ins_at_once_make_one_account(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, choose = [Client(), Client()], openid_accounts.choose_name

    def sign_in_elsewhere() -> None:
        try:
            sign_in(provider, clients[1])
        finally:
            connections.close_all()

    def choose_meanwhile(email: str) -> str:
        # Both have seen that there is no such account; the other one is faster.
        monkeypatch.setattr(openid_accounts, "choose_name", choose)
        thread = threading.Thread(target=sign_in_elsewhere)
        thread.start()
        thread.join(timeout=30)
        return email

    monkeypatch.setattr(openid_accounts, "choose_name", choose_meanwhile)
    sign_in(provider, clients[0])
    user = User.objects.get()
    assert [client.session["_auth_user_id"] for client in clients] == [str(user.pk)] * 2
    assert "olga" in read_words(clients[0].get("/account/").content.decode())


class TestWithoutTLS:
    VARIABLES = {"TOOLFLOW_OIDC_CLIENT_ID": "toolflow", "TOOLFLOW_OIDC_DOMAINS": "example.com"}

    def test_production_refuses_a_provider_that_anybody_on_the_way_can_play(self, tmp_path: Any) -> None:
        issuer = "http://id.example.com/realms/company"
        with pytest.raises(ImproperlyConfigured, match="TOOLFLOW_OIDC_ISSUER must begin with https://"):
            read_settings(tmp_path, **PRODUCTION, **self.VARIABLES, TOOLFLOW_OIDC_ISSUER=issuer)

    @pytest.mark.parametrize("issuer", ["https://id.example.com", "http://127.0.0.1:8080", "http://[::1]:8080"])
    def test_it_takes_one_with_tls_or_on_the_same_host(self, tmp_path: Any, issuer: str) -> None:
        found = read_settings(tmp_path, **PRODUCTION, **self.VARIABLES, TOOLFLOW_OIDC_ISSUER=issuer)
        assert found["TOOLFLOW_OIDC_ISSUER"] == issuer

    def test_a_provider_with_tls_may_not_name_an_address_without(self, settings: Any) -> None:
        issuer = settings.TOOLFLOW_OIDC_ISSUER = "https://id.example.com"
        described = {"token_endpoint": "http://id.example.com/token", "jwks_uri": f"{issuer}/keys"}
        caches["default"].set(f"openid:{issuer}", described)
        assert find_endpoint("jwks_uri") == f"{issuer}/keys"
        with pytest.raises(ValueError, match="token_endpoint"):
            find_endpoint("token_endpoint")
