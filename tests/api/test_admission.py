"""Who was let in, and is still being answered: what ends that, and after how long."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpRequest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runs.api import admission
from runs.api.admission import ASKED_EACH, Admission
from runs.models import ApiToken, BrowserSession
from runs.tokens import make_token, revoke_token
from tests.moved_clock import MovedClock

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch, admission)


@pytest.fixture
def olga() -> User:
    user = User.objects.create_user("olga", password="correct horse")
    group = Group.objects.create(name="Watchers")
    group.permissions.add(Permission.objects.get(codename="view_run"))
    user.groups.add(group)
    return user


def ask_by_session(user: User, permission: str = "runs.view_run") -> Admission:
    client = Client()
    client.force_login(user)
    request = HttpRequest()
    request.session, request.user = client.session, User.objects.get(pk=user.pk)
    return Admission(request, permission)


def ask_by_token(user: User, permission: str = "runs.view_run") -> Admission:
    request: Any = HttpRequest()
    request.auth, _ = make_token(user=user, name="nightly", scope="read", lifetime=timedelta(days=1))
    request.user = User.objects.get(pk=user.pk)
    return Admission(request, permission)


WAYS = [ask_by_session, ask_by_token]


def close(user: User) -> None:
    user.is_active = False
    user.save()


def change_password(user: User) -> None:
    user.set_password("another one, not guessed")
    user.save()


def expire_session(user: User) -> None:
    BrowserSession.objects.filter(user=user).update(expire_date=timezone.now())


def expire_token(user: User) -> None:
    ApiToken.objects.filter(user=user).update(expiry=timezone.now())


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize(
    "end",
    [
        close,
        lambda user: User.objects.filter(pk=user.pk).update(is_active=False),
        lambda user: user.delete(),
        lambda user: user.groups.clear(),
        lambda user: Group.objects.get(name="Watchers").permissions.clear(),
    ],
    ids=["closed", "closed beside the trail", "deleted", "out of the group", "group without permission"],
)
def test_it_ends_with_the_account_and_the_permission(
    olga: User, clock: MovedClock, ask: Callable[[User], Admission], end: Callable[[User], Any]
) -> None:
    asked = ask(olga)
    end(olga)
    clock.go_on(ASKED_EACH - 1)
    assert asked.holds()
    clock.go_on(1)
    assert not asked.holds()
    # It doesn't begin again by itself.
    clock.go_on(ASKED_EACH)
    assert not asked.holds()


@pytest.mark.parametrize(
    "end",
    [expire_session, lambda user: BrowserSession.objects.filter(user=user).delete(), change_password],
    ids=["expired", "signed out", "new password"],
)
def test_that_of_a_session_ends_with_it(olga: User, clock: MovedClock, end: Callable[[User], Any]) -> None:
    by_session, by_token = ask_by_session(olga), ask_by_token(olga)
    end(olga)
    clock.go_on(ASKED_EACH)
    assert (by_session.holds(), by_token.holds()) == (False, True)


@pytest.mark.parametrize(
    "end",
    [expire_token, lambda user: revoke_token(ApiToken.objects.get()), lambda user: ApiToken.objects.all().delete()],
    ids=["expired", "revoked", "deleted"],
)
def test_that_of_a_token_ends_with_it(olga: User, clock: MovedClock, end: Callable[[User], Any]) -> None:
    by_session, by_token = ask_by_session(olga), ask_by_token(olga)
    end(olga)
    clock.go_on(ASKED_EACH)
    assert (by_session.holds(), by_token.holds()) == (True, False)


@pytest.mark.parametrize("ask", WAYS)
def test_it_is_looked_up_by_one_query_each_time_and_not_more_often(
    olga: User, clock: MovedClock, django_assert_num_queries: DjangoAssertNumQueries, ask: Callable[[User], Admission]
) -> None:
    asked = ask(olga)
    for _ in range(3):
        clock.go_on(ASKED_EACH)
        with django_assert_num_queries(1):
            assert all(asked.holds() for _ in range(5))


@pytest.mark.parametrize("ask", WAYS)
def test_it_is_for_the_permission_that_was_needed(
    olga: User, clock: MovedClock, ask: Callable[[User, str], Admission]
) -> None:
    root = User.objects.create_superuser("root")
    asked = [ask(user, "runs.view_trailentry") for user in (olga, root)]
    clock.go_on(ASKED_EACH)
    assert [one.holds() for one in asked] == [False, True]
    User.objects.filter(pk=root.pk).update(is_superuser=False)
    clock.go_on(ASKED_EACH)
    assert not asked[1].holds()
