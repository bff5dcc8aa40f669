"""Users and their tokens in the admin: groups, and what only a superuser may change."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.access_groups import create_groups
from runs.models import ApiToken
from tests.api.asking import create_token, make_user
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

TOKENS = "/admin/runs/apitoken/"


@pytest.fixture
def administrator(client: Client) -> Client:
    """A browser in which a member of the group Administrator is signed in, who is no superuser."""
    create_groups(apps=apps, using="default")
    user = User.objects.create_user("anna", password="secret", is_staff=True)
    user.groups.add(Group.objects.get(name="Administrator"))
    client.force_login(user)
    return client


def send(client: Client, user: User, **fields: Any) -> None:
    """Send the page of a user with these fields."""
    values = {"username": user.username, "is_active": "on", **fields}
    assert client.post(f"/admin/auth/user/{user.pk}/change/", values).status_code == 302


def test_no_user_becomes_a_superuser_but_by_one(administrator: Client) -> None:
    anna = User.objects.get(username="anna")
    group = Group.objects.get(name="Administrator").pk
    send(administrator, anna, is_staff="on", is_superuser="on", groups=[group])
    anna.refresh_from_db()
    assert anna.is_staff and not anna.is_superuser
    root = User.objects.create_superuser("root", password="secret")
    administrator.force_login(root)
    send(administrator, anna, is_staff="on", is_superuser="on", groups=[group])
    anna.refresh_from_db()
    assert anna.is_superuser


@pytest.mark.parametrize("part", ["change", "password", "delete"])
def test_superusers_are_changed_by_superusers_only(administrator: Client, part: str) -> None:
    root = User.objects.create_superuser("root", password="secret")
    address = f"/admin/auth/user/{root.pk}/{part}/"
    assert administrator.post(address, {"post": "yes"}).status_code == 403
    assert administrator.get(address).status_code == (200 if part == "change" else 403)
    chosen = {"action": "delete_selected", "_selected_action": root.pk, "post": "yes"}
    administrator.post("/admin/auth/user/", chosen)
    root.refresh_from_db()
    assert root.check_password("secret")


def test_the_list_of_users_takes_as_many_queries_for_many_as_for_one(
    administrator: Client, django_assert_num_queries: Any
) -> None:
    administrator.get("/admin/auth/user/")
    for number in range(5):
        user = User.objects.create_user(f"user-{number}")
        user.groups.set(Group.objects.all())
    with django_assert_num_queries(9):
        administrator.get("/admin/auth/user/")


def revoke(client: Client, *names: str, is_confirmed: bool = True) -> Any:
    """Revoke the tokens of these names in the list, with confirmation or without."""
    keys = list(ApiToken.objects.filter(name__in=names).values_list("pk", flat=True))
    data = {"action": "revoke", "_selected_action": keys, **({"_revoke": "yes"} if is_confirmed else {})}
    return client.post(TOKENS, data, follow=True)


def list_active() -> list[str]:
    return sorted(ApiToken.objects.filter(revoked_at=None).values_list("name", flat=True))


def test_administrators_see_all_tokens_and_none_of_them_whole(administrator: Client) -> None:
    token = create_token(make_user("ada"), name="nightly import")
    page = get_page(administrator, TOKENS)
    assert "nightly import ada Edit Active" in read_words(page) and token[:15] in page and token not in page


def test_tokens_are_revoked_once_that_is_confirmed(administrator: Client) -> None:
    ada = make_user("ada")
    for name in ("one", "two", "three"):
        create_token(ada, name=name)
    create_token(ada, name="old", revoked_at=timezone.now())
    asked = revoke(administrator, "one", "two", "old", is_confirmed=False)
    assert [token.name for token in asked.context["tokens"]] == ["one", "two"]
    assert list_active() == ["one", "three", "two"]
    revoke(administrator, "one", "two", "old")
    assert list_active() == ["three"]


def test_only_superusers_revoke_tokens_of_superusers(administrator: Client) -> None:
    root = User.objects.create_superuser("root")
    create_token(root, name="root's")
    revoke(administrator, "root's")
    assert list_active() == ["root's"]
    administrator.force_login(root)
    revoke(administrator, "root's")
    assert list_active() == []


def test_tokens_are_not_changed_or_added_and_go_with_their_account(administrator: Client) -> None:
    ada = make_user("ada")
    create_token(ada, name="hers")
    address = reverse("admin:runs_apitoken_change", args=[ApiToken.objects.get().pk])
    administrator.post(address, {"name": "mine", "user": "1", "scope": "edit"})
    assert list_active() == ["hers"]
    assert administrator.get(f"{TOKENS}add/").status_code == 403
    administrator.post(reverse("admin:auth_user_delete", args=[ada.pk]), {"post": "yes"})
    assert not User.objects.filter(username="ada").exists() and not ApiToken.objects.exists()
