"""Whose account it is: a person of the provider is its issuer and a subject, not an e-mail address."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from runs.access_groups import create_groups
from runs.models import BrowserSession, ProviderIdentity, TrailEntry
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider, read_refusal, sign_in

__all__ = ["provider"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.security.test_openid")]


@pytest.fixture
def operators(settings: Any) -> None:
    """The provider makes somebody an Operator."""
    create_groups(apps=apps, using="default")
    settings.TOOLFLOW_OIDC_GROUPS = {"support": "Operator"}


def become(provider: FakeProvider, subject: str, **claims: Any) -> None:
    """Whoever signs in next is another person of the provider."""
    provider.claims |= {"sub": subject, **claims}
    provider.token |= {"sub": subject}


def test_somebody_else_with_the_same_address_does_not_get_the_account(provider: FakeProvider) -> None:
    sign_in(provider)
    become(provider, "2")
    client = Client()
    assert "The account with your e-mail address belongs to another user" in read_refusal(
        client, sign_in(provider, client)
    )
    assert User.objects.count() == 1


def test_who_gets_another_address_keeps_the_account(provider: FakeProvider) -> None:
    sign_in(provider)
    provider.claims["email"] = "olga.new@example.com"
    client = Client()
    sign_in(provider, client)
    assert client.session["_auth_user_id"] == str(User.objects.get().pk)


def test_the_same_subject_of_another_provider_is_somebody_else(provider: FakeProvider) -> None:
    olga = User.objects.create_user("olga", email="o@elsewhere.example")
    ProviderIdentity.objects.create(user=olga, issuer="https://before.example", subject="1")
    client = Client()
    sign_in(provider, client)
    assert client.session["_auth_user_id"] != str(olga.pk)


def test_an_account_with_a_password_is_not_entered_by_its_address(provider: FakeProvider) -> None:
    User.objects.create_user("olga", email="olga@example.com", password="correct horse")
    client = Client()
    assert "The account with your e-mail address has a password here" in read_refusal(client, sign_in(provider, client))
    assert not ProviderIdentity.objects.exists()


def test_it_is_linked_if_the_installation_names_it_and_for_one_person_only(
    provider: FakeProvider, settings: Any
) -> None:
    olga = User.objects.create_user("olga", email="olga@example.com", password="correct horse")
    settings.TOOLFLOW_OIDC_LINK = ["olga"]
    client = Client()
    sign_in(provider, client)
    assert client.session["_auth_user_id"] == str(olga.pk)
    assert TrailEntry.objects.get(action="account_linked").object_label == "olga"
    become(provider, "2")
    other = Client()
    assert "belongs to another user" in read_refusal(other, sign_in(provider, other))


@pytest.mark.parametrize("named", [[], ["boss"]])
@pytest.mark.parametrize("password", [None, "correct horse"])
def test_nobody_becomes_administrator_by_an_address(
    provider: FakeProvider, operators: None, settings: Any, named: list[str], password: str | None
) -> None:
    settings.TOOLFLOW_OIDC_LINK = named
    boss = User.objects.create_user("boss", email="olga@example.com", password=password, is_staff=True)
    boss.groups.add(Group.objects.get(name="Administrator"))
    provider.claims["groups"] = ["support"]
    client = Client()
    read_refusal(client, sign_in(provider, client))
    assert client.get("/admin/auth/user/").status_code == 302
    boss.refresh_from_db()
    assert boss.is_staff and [group.name for group in boss.groups.all()] == ["Administrator"]


def test_nor_by_a_single_permission(provider: FakeProvider, operators: None) -> None:
    local = User.objects.create_user("local", email="olga@example.com")
    local.user_permissions.add(Permission.objects.get(codename="change_user"))
    provider.claims["groups"] = ["support"]
    client = Client()
    assert "may do more here than your groups give" in read_refusal(client, sign_in(provider, client))


def test_an_account_whose_rights_the_provider_gives_too_is_linked(provider: FakeProvider, operators: None) -> None:
    waiting = User.objects.create_user("waiting", email="olga@example.com")
    waiting.groups.add(Group.objects.get(name="Viewer"))
    provider.claims["groups"] = ["support"]
    client = Client()
    sign_in(provider, client)
    assert client.session["_auth_user_id"] == str(waiting.pk)


@pytest.mark.parametrize("verified", [True, "true", "True"])
def test_a_provider_may_write_it_as_text(provider: FakeProvider, verified: Any) -> None:
    provider.claims["email_verified"] = verified
    assert sign_in(provider)["Location"] == "/"


@pytest.mark.parametrize(("is_believed", "location"), [(False, "/accounts/login/"), (True, "/")])
def test_a_provider_that_says_nothing_of_it_is_believed_if_the_installation_says_so(
    provider: FakeProvider, settings: Any, is_believed: bool, location: str
) -> None:
    settings.TOOLFLOW_OIDC_EMAILS_VERIFIED = is_believed
    del provider.claims["email_verified"]
    assert sign_in(provider)["Location"] == location


def test_what_a_provider_denies_is_never_believed(provider: FakeProvider, settings: Any) -> None:
    settings.TOOLFLOW_OIDC_EMAILS_VERIFIED = True
    provider.claims["email_verified"] = False
    assert sign_in(provider)["Location"] == "/accounts/login/"


def test_an_administrator_lets_an_account_be_linked_anew(provider: FakeProvider) -> None:
    browser = Client()
    sign_in(provider, browser)
    user = User.objects.get()
    admin = Client()
    admin.force_login(User.objects.create_superuser("root"))
    admin.post("/admin/auth/user/", {"action": "unlink_from_provider", "_selected_action": user.pk})
    assert browser.get("/account/").status_code == 302
    become(provider, "2")
    client = Client()
    sign_in(provider, client)
    assert client.session["_auth_user_id"] == str(user.pk)
    assert TrailEntry.objects.get(action="account_unlinked").actor_name == "root"


class TestTheAddressToComeBackTo:
    @pytest.mark.parametrize("query", ["?error=1", "?error=access_denied&state=made-up"])
    def test_a_link_to_it_signs_nobody_out(self, provider: FakeProvider, query: str) -> None:
        client = Client()
        sign_in(provider, client)
        client.get(f"/accounts/oidc/callback/{query}")
        assert client.get("/account/").status_code == 200

    def test_a_refusal_of_the_provider_is_told_once(self, provider: FakeProvider) -> None:
        client = Client()
        state = provider.sign_in(client.get("/accounts/oidc/")["Location"]).partition("state=")[2]
        way_back = f"/accounts/oidc/callback/?error=access_denied&state={state}"
        assert "Signing in did not work" in read_refusal(client, client.get(way_back))
        assert "Signing in did not work" not in read_refusal(client, client.get(way_back))


def test_sessions_of_strangers_last_ten_minutes_and_those_of_users_as_before(
    provider: FakeProvider, settings: Any
) -> None:
    client = Client()
    begun = client.get("/accounts/oidc/")
    assert begun.cookies["sessionid"]["max-age"] == 600
    done = client.get(provider.sign_in(begun["Location"]))
    assert done.cookies["sessionid"]["max-age"] == settings.SESSION_COOKIE_AGE
    assert BrowserSession.objects.get().expire_date > timezone.now() + timedelta(days=13)
