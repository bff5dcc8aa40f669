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


def revoke(client: Client, *tokens: ApiToken) -> str:
    """Revoke these in the list, and say yes; gives the words of the page that follows."""
    data: dict[str, Any] = {"action": "revoke", "_selected_action": [token.pk for token in tokens], "_revoke": "yes"}
    answer = client.post(LIST, data, follow=True)
    assert answer.status_code == 200
    return read_words(answer.content.decode())


def test_administrators_see_all_tokens_and_none_of_them_whole(administrator: Client) -> None:
    ada = make_user("ada")
    token = make_token(ada, name="nightly import")
    make_token(ada, name="leaked", revoked_at=timezone.now())
    make_token(User.objects.create_user("gone", is_active=False), name="theirs")
    page = get_page(administrator, LIST)
    words = read_words(page)
    assert "nightly import ada Edit Active Never Never" in words
    assert "leaked ada Edit Revoked Never Never" in words
    assert "theirs gone Edit Account closed Never Never" in words
    assert f"{token[:15]}…" in words
    assert token not in page


def test_administrators_revoke_tokens_of_others(administrator: Client) -> None:
    ada = make_user("ada")
    for name in ("one", "two", "three"):
        make_token(ada, name=name)
    one, two, three = (ApiToken.objects.get(name=name) for name in ("one", "two", "three"))
    assert "2 tokens revoked." in revoke(administrator, one, two)
    assert "None of them could be revoked." in revoke(administrator, one)
    three.refresh_from_db()
    assert three.revoked_at is None
    assert ApiToken.objects.filter(revoked_at=None).count() == 1


def test_nothing_is_revoked_before_it_was_said_which_ones(administrator: Client) -> None:
    ada = make_user("ada")
    make_token(ada, name="nightly import")
    make_token(ada, name="old", revoked_at=timezone.now())
    make_token(User.objects.create_superuser("root"), name="root's")
    chosen = list(ApiToken.objects.values_list("pk", flat=True))
    answer = administrator.post(LIST, {"action": "revoke", "_selected_action": chosen})
    words = read_words(answer.content.decode())
    assert "Revoke this token?" in words and "nightly import of ada, never used" in words
    assert "old of ada" not in words and "root's" not in words
    assert ApiToken.objects.get(name="nightly import").revoked_at is None


def test_those_of_superusers_are_for_superusers(administrator: Client) -> None:
    root = User.objects.create_superuser("root")
    make_token(root, name="root's")
    token = ApiToken.objects.get()
    assert "None of them could be revoked." in revoke(administrator, token)
    administrator.force_login(root)
    assert "1 token revoked." in revoke(administrator, token)


def test_nothing_is_changed_or_added_by_hand(administrator: Client) -> None:
    make_token(make_user("ada"), name="hers")
    token = ApiToken.objects.get()
    address = reverse("admin:runs_apitoken_change", args=[token.pk])
    administrator.post(address, {"name": "mine", "user": "1", "scope": "edit"})
    assert ApiToken.objects.get().name == "hers"
    assert administrator.get("/admin/runs/apitoken/add/").status_code == 403


def test_an_account_is_deleted_with_its_tokens(administrator: Client) -> None:
    ada = make_user("ada")
    make_token(ada, name="hers")
    address = reverse("admin:auth_user_delete", args=[ada.pk])
    assert "Are you sure you want to delete" in read_words(administrator.get(address).content.decode())
    administrator.post(address, {"post": "yes"})
    assert not User.objects.filter(username="ada").exists()
    assert not ApiToken.objects.exists()


def test_a_closed_account_s_tokens_let_nobody_in(administrator: Client) -> None:
    ada = make_user("ada")
    make_token(ada, name="hers")
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert "Account closed" in read_words(get_page(administrator, LIST))
