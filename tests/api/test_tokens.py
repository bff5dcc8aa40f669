"""Whose token lets in, and what a script is told whose token does not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from runs.models import ApiToken, TokenScope
from tests.api.asking import Script, make_token, make_user, read_problem

pytestmark = pytest.mark.django_db


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


def test_whoever_makes_a_token_is_told_what_it_reads(owner: User, client: Client) -> None:
    for user, reads_trail in ((owner, False), (make_user("root", "Administrator"), True)):
        client.force_login(user)
        page = client.get("/tokens/").content.decode()
        assert "all inputs and outputs, also as one file, and what webhooks sent and got as answers" in page
        assert ("the audit trail with IP addresses" in page) == reads_trail


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


@pytest.mark.parametrize("sent", ["Token {}", "Bearer", "Bearer {} {}", "bearer  ", "token"])
def test_a_token_that_is_sent_in_another_way_gets_a_sentence_that_says_how(owner: User, sent: str) -> None:
    token = make_token(owner)
    answer = Script().get("nowhere", Authorization=sent.format(token, token))
    assert read_problem(answer)["status"] == 401
    assert read_problem(answer)["detail"] == "Send a token as “Authorization: Bearer tf_…”, in one word."


def test_what_is_sent_to_a_server_before_this_one_is_no_token(owner: User) -> None:
    """Browsers send it with every request, also where somebody is signed in on the pages."""
    answer = Script().get("nowhere", Authorization="Basic YWRhOnNlY3JldA==")
    assert read_problem(answer)["detail"].startswith("Send a token as “Authorization: Bearer tf_…”.")


def test_the_word_before_a_token_may_be_written_in_any_case(owner: User) -> None:
    answer = Script().get("nowhere", Authorization=f"bEARER {make_token(owner)}")
    assert read_problem(answer)["status"] == 404


@pytest.mark.parametrize(("seconds", "is_noted"), [(30, False), (61, True)])
def test_use_is_noted_once_a_minute(owner: User, seconds: int, is_noted: bool) -> None:
    """Each note is a write: many requests must not wait for many of them."""
    used_at = timezone.now() - timedelta(seconds=seconds)
    Script(make_token(owner, last_used_at=used_at)).get("nowhere")
    assert (ApiToken.objects.get().last_used_at != used_at) == is_noted


def test_to_know_a_token_takes_one_query(owner: User, django_assert_num_queries: Any) -> None:
    script = Script(make_token(owner, last_used_at=timezone.now()))
    for number in range(10):
        make_token(owner, name=str(number))
    with django_assert_num_queries(1):
        script.get("nowhere")


def test_a_new_password_leaves_tokens_and_a_closed_account_closes_them_until_it_is_opened(owner: User) -> None:
    script = Script(make_token(owner))
    owner.set_password("another")
    owner.save()
    assert read_problem(script.get("nowhere"))["status"] == 404
    User.objects.update(is_active=False)
    assert read_problem(script.get("nowhere"))["status"] == 401
    User.objects.update(is_active=True)
    assert read_problem(script.get("nowhere"))["status"] == 404


def test_a_caller_can_read_who_it_is(owner: User, client: Client) -> None:
    answer: Any = Script(make_token(owner, TokenScope.RUN, name="nightly")).get("me")
    document = answer.json()
    permissions = document.pop("permissions")
    assert document == {"username": "ada", "token": {"name": "nightly", "scope": "run", "expires_at": None}}
    assert "runs.view_run" in permissions and "runs.add_run" not in permissions
    client.force_login(owner)
    by_session: Any = client.get("/api/v1/me")
    assert by_session.json() == {"username": "ada", "permissions": permissions, "token": None}
