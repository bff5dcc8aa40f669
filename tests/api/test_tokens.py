"""Whose token lets in, and what a script is told whose token does not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from runs.models import ApiToken
from tests.api.asking import Script, make_token, make_user, read_problem

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


@pytest.fixture
def owner(groups: None) -> User:
    return make_user("ada", "Viewer")


def test_a_stranger_is_told_how_to_sign_in() -> None:
    answer = Script().get("nowhere")
    assert read_problem(answer)["status"] == 401
    assert answer["WWW-Authenticate"] == "Bearer"


def test_a_token_lets_its_owner_in_and_its_use_is_noted(owner: User) -> None:
    answer = Script(make_token(owner)).get("nowhere")
    assert read_problem(answer)["status"] == 404
    assert ApiToken.objects.get().last_used_at is not None


def test_only_a_hash_of_a_token_is_stored(owner: User) -> None:
    token = make_token(owner)
    row = ApiToken.objects.values().get()
    assert token.startswith("tf_")
    assert token not in str(row)


@pytest.mark.parametrize("sent", ["tf_" + "0" * 64, "nonsense", "tf_é", "x" * 5000])
def test_a_token_that_is_not_known_lets_nobody_in(owner: User, sent: str) -> None:
    make_token(owner)
    assert "not known" in read_problem(Script(sent).get("nowhere"))["detail"]


def test_an_expired_a_revoked_and_a_closed_account_s_token_say_so_and_stay_listed(owner: User) -> None:
    now = timezone.now()
    expired = make_token(owner, name="old", expiry=timedelta(seconds=-1))
    revoked = make_token(owner, name="leaked", revoked_at=now)
    closed = make_token(User.objects.create_user("gone", is_active=False), name="theirs")
    details = [read_problem(Script(token).get("nowhere"))["detail"] for token in (expired, revoked, closed)]
    assert details == [
        "The token “old” has expired. Make a new one on the page “API tokens”.",
        "The token “leaked” was revoked.",
        "The account of this token is closed.",
    ]
    assert ApiToken.objects.count() == 3
