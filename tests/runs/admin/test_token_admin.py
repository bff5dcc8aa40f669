"""API tokens of all users in the admin: to see, and to revoke."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.access_groups import create_groups
from runs.models import ApiToken
from tests.api.asking import make_token, make_user
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

LIST = "/admin/runs/apitoken/"


@pytest.fixture
def administrator(client: Client) -> Client:
    """The browser of somebody in the group Administrator."""
    create_groups(apps=apps, using="default")
    user = make_user("boss", "Administrator")
    User.objects.filter(pk=user.pk).update(is_staff=True)
    client.force_login(User.objects.get(pk=user.pk))
    return client


def revoke(client: Client, *names: str, is_confirmed: bool = True) -> Any:
    """Revoke the tokens of these names in the list, with confirmation or without."""
    keys = list(ApiToken.objects.filter(name__in=names).values_list("pk", flat=True))
    data = {"action": "revoke", "_selected_action": keys, **({"_revoke": "yes"} if is_confirmed else {})}
    return client.post(LIST, data, follow=True)


def list_active() -> list[str]:
    return sorted(ApiToken.objects.filter(revoked_at=None).values_list("name", flat=True))


def test_administrators_see_all_tokens_and_none_of_them_whole(administrator: Client) -> None:
    ada = make_user("ada")
    token = make_token(ada, name="nightly import")
    make_token(ada, name="leaked", revoked_at=timezone.now())
    make_token(User.objects.create_user("gone", is_active=False), name="theirs")
    page = get_page(administrator, LIST)
    words = read_words(page)
    for row in ("nightly import ada Edit Active", "leaked ada Edit Revoked", "theirs gone Edit Account closed"):
        assert row in words
    assert f"{token[:15]}…" in words and token not in page


def test_tokens_are_revoked_once_that_is_confirmed(administrator: Client) -> None:
    ada = make_user("ada")
    for name in ("one", "two", "three"):
        make_token(ada, name=name)
    make_token(ada, name="old", revoked_at=timezone.now())
    asked = revoke(administrator, "one", "two", "old", is_confirmed=False)
    assert [token.name for token in asked.context["tokens"]] == ["one", "two"]
    assert list_active() == ["one", "three", "two"]
    revoke(administrator, "one", "two", "old")
    assert list_active() == ["three"]


def test_only_superusers_revoke_tokens_of_superusers(administrator: Client) -> None:
    root = User.objects.create_superuser("root")
    make_token(root, name="root's")
    revoke(administrator, "root's")
    assert list_active() == ["root's"]
    administrator.force_login(root)
    revoke(administrator, "root's")
    assert list_active() == []


def test_tokens_are_not_changed_or_added_and_go_with_their_account(administrator: Client) -> None:
    ada = make_user("ada")
    make_token(ada, name="hers")
    address = reverse("admin:runs_apitoken_change", args=[ApiToken.objects.get().pk])
    administrator.post(address, {"name": "mine", "user": "1", "scope": "edit"})
    assert list_active() == ["hers"]
    assert administrator.get(f"{LIST}add/").status_code == 403
    administrator.post(reverse("admin:auth_user_delete", args=[ada.pk]), {"post": "yes"})
    assert not User.objects.filter(username="ada").exists() and not ApiToken.objects.exists()
