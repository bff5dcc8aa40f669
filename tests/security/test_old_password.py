"""Setting a new password: the old one can't be guessed in a browser that somebody left signed in."""

from __future__ import annotations

from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client

from runs.models import TrailEntry
from tests.runs.pages.reading import read_words

pytestmark = pytest.mark.django_db

RIGHT, NEW = "correct horse", "battery staple hook"
PAGES = ["/account/", "/admin/password_change/"]


@pytest.fixture
def client(settings: Any, client: Client) -> Client:
    """A browser in which Ada is signed in."""
    settings.AXES_ENABLED = True
    client.force_login(User.objects.create_superuser("ada", password=RIGHT), "runs.signing_in.AccountBackend")
    return client


def change(client: Client, page: str, old: str = "wrong", new: str = NEW) -> Any:
    return client.post(page, {"old_password": old, "new_password1": new, "new_password2": new})


@pytest.mark.parametrize("page", PAGES)
def test_after_five_wrong_ones_one_is_told_when_to_try_again(client: Client, page: str) -> None:
    answers = [change(client, page) for _ in range(5)]
    assert [answer.status_code for answer in answers][-2:] == [answers[0].status_code, 429]
    assert "The old password was wrong too often. You can try again in 15 minutes" in read_words(
        answers[-1].content.decode()
    )
    # The right one is not taken either now; what is open stays open.
    refused = change(client, page, RIGHT)
    assert (refused.status_code, refused["Retry-After"]) == (429, str(15 * 60))
    assert User.objects.get(username="ada").check_password(RIGHT)
    assert client.get(page).status_code == 200


def test_tries_at_one_form_count_at_all_others(client: Client) -> None:
    for page in (*PAGES, *PAGES):
        change(client, page)
    answer = Client().post("/accounts/login/", {"username": "ada", "password": "wrong"})
    assert answer.status_code == 429


def test_the_right_one_after_a_few_wrong_ones_counts_anew(client: Client) -> None:
    for old, new in ((RIGHT, NEW), (NEW, RIGHT)):
        assert [change(client, "/account/").status_code for _ in range(4)] == [422] * 4
        assert change(client, "/account/", old, new).status_code == 302


def test_a_form_without_an_old_password_is_no_try(client: Client) -> None:
    assert [change(client, "/account/", "").status_code for _ in range(6)] == [422] * 6
    assert not AccessAttempt.objects.exists()


def test_what_is_counted_holds_no_password(client: Client) -> None:
    change(client, "/account/", "correct hoarse", "a new pass phrase")
    stored = str([*AccessAttempt.objects.values_list(), *TrailEntry.objects.values_list()])
    assert "ada" in stored and "hoarse" not in stored and "phrase" not in stored
