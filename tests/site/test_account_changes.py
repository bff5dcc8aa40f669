"""Accounts are read again for each request: whatever was taken away is gone with the next one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpRequest
from django.test import Client
from django.utils import timezone

from runs.models.account import SessionStore

pytestmark = pytest.mark.django_db


@pytest.fixture
def member(db: None) -> User:
    """A user who may see runs, and flows by a group; another one may do more."""
    user = User.objects.create_user("ada", "ada@example.com", "pw")
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    group = Group.objects.create(name="Readers of flows")
    group.permissions.add(Permission.objects.get(codename="view_flow"))
    user.groups.add(group)
    User.objects.create_user("ben").user_permissions.add(Permission.objects.get(codename="add_run"))
    return user


@pytest.fixture
def visitor(member: User) -> Client:
    client = Client()
    client.force_login(member)
    assert client.get("/runs/").status_code == 200
    return client


def is_signed_in(client: Client) -> bool:
    response = client.get("/runs/")
    return not (response.status_code == 302 and "/accounts/login/" in response["Location"])


def test_a_session_lasts_as_long_as_the_installation_says(member: User, settings: Any) -> None:
    settings.SESSION_COOKIE_AGE = 8 * 3600
    client = Client()
    answer = client.post("/accounts/login/", {"username": "ada", "password": "pw"})
    assert answer.cookies[settings.SESSION_COOKIE_NAME]["max-age"] == 8 * 3600
    sessions = SessionStore.get_model_class().objects
    ends_at = sessions.get().expire_date
    assert abs(ends_at - timezone.now() - timedelta(hours=8)) < timedelta(minutes=5)
    sessions.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not is_signed_in(client)


@pytest.mark.parametrize("key", ["short", "x" * 32, "\\000" * 10, "';--" * 10])
def test_a_cookie_that_names_no_session_lets_no_user_in(key: str, db: None) -> None:
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = f'"{key}"'
    assert not is_signed_in(client)


def test_a_permission_and_an_account_that_are_taken_away_are_gone_with_the_next_page(
    visitor: Client, member: User
) -> None:
    member.user_permissions.clear()
    assert visitor.get("/runs/").status_code == 403
    member.delete()
    assert not is_signed_in(visitor)


def test_the_account_and_its_permissions_take_four_queries(
    visitor: Client, member: User, django_assert_num_queries: Any
) -> None:
    request = HttpRequest()
    request.session = SessionStore(visitor.cookies[settings.SESSION_COOKIE_NAME].value)
    with django_assert_num_queries(4):
        user = get_user(request)
        assert user == member
        assert user.has_perms(["runs.view_run", "flows.view_flow"])
        assert not user.has_perm("runs.add_run")
