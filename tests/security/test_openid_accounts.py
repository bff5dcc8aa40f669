"""Whose account it is, and what it may: a person of the provider is its issuer and a subject, not an e-mail address."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.db import connection, connections
from django.test import Client

from runs.access_groups import create_groups
from runs.models import ApiToken, AuditEntry, ProviderIdentity
from runs.tokens import create_token
from tests.security.provider import FakeProvider
from tests.security.test_openid import UNCLEAR, UNVERIFIED, be_refused, provider, sign_in
from toolflow_site import openid_accounts

__all__ = ["provider"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.security.test_openid")]

EMAIL = "olga@example.com"
NO_GROUP, TAKEN = "You are in none of the groups that may sign in here", "belongs to another user"


@pytest.fixture
def groups(settings: Any) -> None:
    """Groups of the provider count."""
    create_groups(apps=apps, using="default")
    settings.TOOLFLOW_OIDC_GROUPS = {"ml-team": "Editor", "support": "Operator"}


def become(provider: FakeProvider, subject: str, **claims: Any) -> None:
    """The user who signs in next is another person of the provider."""
    provider.claims |= {"sub": subject, **claims}
    provider.token |= {"sub": subject}


def find_user(client: Client) -> User:
    """Who is signed in."""
    return User.objects.get(pk=client.session["_auth_user_id"])


# Whose account it is


@pytest.mark.parametrize("password", [None, "correct horse"])
@pytest.mark.parametrize(
    ("rights", "sentence"),
    [
        ({"is_superuser": True}, "Superusers sign in with their password"),
        ({"is_staff": True, "group": "Administrator"}, "may do more here than your groups give"),
        ({"permission": "change_user"}, "may do more here than your groups give"),
    ],
    ids=["superuser", "administrator", "permission"],
)
def test_no_user_enters_such_an_account_by_its_address(
    provider: FakeProvider, groups: None, password: str | None, rights: dict[str, Any], sentence: str
) -> None:
    rights = dict(rights)
    group, permission = rights.pop("group", None), rights.pop("permission", None)
    boss = User.objects.create_user("boss", email=EMAIL, password=password, **rights)
    boss.groups.set(Group.objects.filter(name=group))
    boss.user_permissions.set(Permission.objects.filter(codename=permission))
    provider.claims["groups"] = ["support"]
    refusal = be_refused(provider)
    assert sentence in refusal or (password and "The account with your e-mail address has a password here" in refusal)
    boss.refresh_from_db()
    assert [row.name for row in boss.groups.all()] == ([group] if group else [])
    assert boss.is_staff is rights.get("is_staff", False) and not ProviderIdentity.objects.exists()


def test_a_closed_account_stays_closed(provider: FakeProvider) -> None:
    User.objects.create_user("olga", email=EMAIL, is_active=False)
    assert "Your account here is closed" in be_refused(provider)


def test_no_user_becomes_administrator_if_the_installation_names_one(
    provider: FakeProvider, groups: None, settings: Any
) -> None:
    settings.TOOLFLOW_OIDC_LINK = ["boss"]
    boss = User.objects.create_user("boss", email=EMAIL, password="correct horse", is_staff=True)
    boss.groups.add(Group.objects.get(name="Administrator"))
    provider.claims["groups"] = ["support"]
    be_refused(provider)
    assert boss.groups.get().name == "Administrator"


def test_an_account_with_a_password_is_linked_if_the_installation_names_it_and_for_one_person_only(
    provider: FakeProvider, settings: Any
) -> None:
    olga = User.objects.create_user("olga", email=EMAIL, password="correct horse")
    assert "has a password here" in be_refused(provider)
    settings.TOOLFLOW_OIDC_LINK = ["olga"]
    client = Client()
    sign_in(provider, client)
    assert find_user(client) == olga
    assert AuditEntry.objects.get(action="account_linked").object_label == "olga"
    become(provider, "2")
    assert TAKEN in be_refused(provider)


@pytest.mark.parametrize("group", [None, "Viewer"])
def test_an_account_whose_rights_the_provider_gives_too_gets_no_twin(
    provider: FakeProvider, groups: None, group: str | None
) -> None:
    waiting = User.objects.create_user("waiting", email=EMAIL.title())
    waiting.groups.set(Group.objects.filter(name=group))
    provider.claims["groups"] = ["support"]
    client = Client()
    sign_in(provider, client)
    assert find_user(client) == waiting


def test_who_gets_another_address_keeps_the_account_and_no_other_user_gets_it(provider: FakeProvider) -> None:
    sign_in(provider)
    user = User.objects.get()
    become(provider, "2")
    assert TAKEN in be_refused(provider)
    become(provider, "1", email="olga.new@example.com")
    client = Client()
    sign_in(provider, client)
    assert find_user(client) == user == User.objects.get()
    # The same subject of another provider is another user.
    ProviderIdentity.objects.update(issuer="https://before.example")
    become(provider, "1", email="nina@example.com")
    sign_in(provider, client)
    assert find_user(client) != user


def test_an_administrator_lets_an_account_be_linked_again(provider: FakeProvider) -> None:
    browser, admin, client = Client(), Client(), Client()
    sign_in(provider, browser)
    user = User.objects.get()
    admin.force_login(User.objects.create_superuser("root"))
    admin.post("/admin/auth/user/", {"action": "unlink_from_provider", "_selected_action": user.pk})
    assert browser.get("/account/").status_code == 302
    become(provider, "2")
    sign_in(provider, client)
    assert find_user(client) == user
    assert AuditEntry.objects.get(action="account_unlinked").actor_name == "root"


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
    assert [find_user(client) for client in clients] == [User.objects.get()] * 2


# What it may


def be_editor(provider: FakeProvider) -> tuple[Client, User]:
    """A user who has signed in as an Editor, and their browser."""
    provider.claims["groups"] = ["ml-team", "everybody"]
    client = Client()
    sign_in(provider, client)
    user = User.objects.get()
    user.groups.add(Group.objects.create(name="Choir"))
    assert user.is_staff and client.get("/flows/").status_code == 200
    return client, user


def list_groups(user: User) -> set[str]:
    user.refresh_from_db()
    return {group.name for group in user.groups.all()}


def test_groups_follow_from_those_of_the_provider_at_every_sign_in(provider: FakeProvider, groups: None) -> None:
    _, user = be_editor(provider)
    assert list_groups(user) == {"Editor", "Choir"}
    provider.claims["groups"] = ["support"]
    sign_in(provider)
    assert list_groups(user) == {"Operator", "Choir"} and not user.is_staff


@pytest.mark.parametrize("left", [["everybody"], [], "everybody", None])
def test_who_is_in_none_of_the_groups_any_more_loses_what_they_gave(
    provider: FakeProvider, groups: None, left: Any
) -> None:
    first, user = be_editor(provider)
    _, token = create_token(user=user, name="nightly", scope="edit", lifetime=None)
    script = Client(headers={"Authorization": f"Bearer {token}"})
    assert script.get("/api/v1/runs").status_code == 200
    provider.claims["groups"] = left
    assert NO_GROUP in be_refused(provider)
    assert list_groups(user) == {"Choir"} and not user.is_staff
    # Signed out at once, wherever they were signed in.
    assert first.get("/account/").status_code == 302
    # The token is as it was, and may see what its owner may: nothing.
    assert script.get("/api/v1/runs").status_code == 403
    assert not ApiToken.objects.get().revoked_at
    reported = [entry.action for entry in AuditEntry.objects.filter(object_label=EMAIL).order_by("pk")]
    assert reported[-3:] == ["rights_changed", "user_changed", "sessions_ended"]


def test_the_browser_that_asks_is_signed_out_too_and_who_comes_back_gets_it_back(
    provider: FakeProvider, groups: None
) -> None:
    client, user = be_editor(provider)
    provider.claims["groups"] = []
    assert NO_GROUP in be_refused(provider, client)
    assert client.get("/account/").status_code == 302
    provider.claims["groups"] = ["support"]
    assert sign_in(provider, client)["Location"] == "/"
    assert list_groups(user) == {"Operator", "Choir"}


@pytest.mark.parametrize(
    ("subject", "claims", "sentence"),
    [
        # Without a verified address a user may not put out its owner; nor may another user with the same, or another.
        ("1", {"groups": [], "email_verified": False}, UNVERIFIED),
        ("2", {"groups": []}, TAKEN),
        ("2", {"groups": [], "email": "nina@example.com"}, NO_GROUP),
        # Nor do groups that are no list.
        *(("1", {"groups": claim}, UNCLEAR) for claim in (5, True, {"ml-team": "yes"}, 0)),
    ],
)
def test_nothing_is_taken_from_others(
    provider: FakeProvider, groups: None, subject: str, claims: dict[str, Any], sentence: str
) -> None:
    client, user = be_editor(provider)
    become(provider, subject, **claims)
    assert sentence in be_refused(provider)
    assert list_groups(user) == {"Editor", "Choir"} and user.is_staff and client.get("/flows/").status_code == 200
    assert User.objects.get() == user
