"""Browsers that are signed in: who ends their sessions, what a new password, a closed account or a new key does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client

from runs.access_groups import create_groups
from runs.models import AuditEntry, BrowserSession
from runs.tokens import create_token
from runs.webhooks.messages import derive_secret, fetch_installation_secret, list_secrets
from tests.runs.pages.reading import read_words

pytestmark = pytest.mark.django_db

RIGHT, NEW = "correct horse", "battery staple hook"
FORMS = ["/account/", "/admin/password_change/"]
OLD_KEY, NEW_KEY = "an-old-key-0123456789-abcdefghijklmnopqrstuvwxyz", "a-new-key-zyxwvutsrqponmlkjihgfedcba-9876543210"


@pytest.fixture
def olga(settings: Any) -> User:
    settings.AXES_ENABLED = True
    settings.SECRET_KEY = OLD_KEY
    return User.objects.create_superuser("olga", password=RIGHT)


def open_browser(user: User, name: str = "") -> Client:
    client = Client(headers={"User-Agent": name})
    if user.has_usable_password():
        client.post("/accounts/login/", {"username": user.username, "password": RIGHT})
    else:
        client.force_login(user)
    assert client.get("/account/").status_code == 200
    return client


def list_statuses(browsers: Sequence[Client]) -> list[int]:
    """200 for each that is still signed in, else 302."""
    return [browser.get("/account/").status_code for browser in browsers]


def use_token(token: str) -> int:
    """The status that a script with this token gets."""
    return Client(headers={"Authorization": f"Bearer {token}"}).get("/api/v1/runs").status_code


def list_actions(count: int) -> list[str]:
    return [entry.action for entry in AuditEntry.objects.order_by("-pk")[:count]]


def change(client: Client, page: str = "/account/", old: str = "wrong", new: str = NEW, **fields: str) -> Any:
    return client.post(page, {"old_password": old, "new_password1": new, "new_password2": new, **fields})


# Ending them


def test_sessions_are_listed_and_ended_one_by_one_and_all_at_once(olga: User) -> None:
    mine, *others = (open_browser(olga, f"Browser {number}") for number in range(4))
    page = mine.get("/account/")
    assert "Browser 1 127.0.0.1" in read_words(page.content.decode())
    chosen = next(row["reference"] for row in page.context["sessions"] if row["browser"] == "Browser 2")
    # What is on the page signs no user in, and others end nothing by it.
    assert not BrowserSession.objects.filter(session_key=chosen).exists()
    mallory = open_browser(User.objects.create_superuser("mallory"))
    for form in ({"session": chosen}, {}):
        mallory.post("/account/sessions/end/", form)
    assert list_statuses(others) == [200, 200, 200]
    mine.post("/account/sessions/end/", {"session": chosen})
    assert list_statuses(others) == [200, 302, 200]
    mine.post("/account/sessions/end/")
    assert list_statuses([mine, *others]) == [200, 302, 302, 302]
    assert list_actions(2) == ["sessions_ended", "sessions_ended"]


def test_an_administrator_ends_all_sessions_of_an_account_but_not_those_of_a_superuser(olga: User) -> None:
    create_groups(apps=apps, using="default")
    nina, admin = User.objects.create_user("nina"), User.objects.create_user("ada", is_staff=True)
    admin.groups.add(Group.objects.get(name="Administrator"))
    browsers = [open_browser(nina), open_browser(nina), open_browser(olga)]
    form = {"action": "end_all_sessions", "_selected_action": [nina.pk, olga.pk]}
    assert open_browser(admin).post("/admin/auth/user/", form).status_code == 302
    assert list_statuses(browsers) == [302, 302, 200]
    entry = AuditEntry.objects.get(action="sessions_ended")
    assert (entry.actor_name, entry.object_label, entry.details) == ("ada", "nina", {"sessions": 2})


def test_a_closed_account_is_out_at_once_and_no_old_browser_is_in_when_it_is_opened_again(olga: User) -> None:
    _, token = create_token(user=olga, name="nightly", scope="read", lifetime=None)
    browsers = [open_browser(olga), open_browser(User.objects.create_user("nina"))]
    assert use_token(token) == 200
    for is_active in (False, True):
        olga.is_active = is_active
        olga.save()
        assert list_statuses(browsers) == [302, 200]
        assert use_token(token) == (200 if is_active else 401)
    assert AuditEntry.objects.get(action="sessions_ended").details == {"sessions": 1}


# A new password


def test_a_new_password_signs_out_everywhere_else_and_leaves_tokens_unless_asked(olga: User) -> None:
    client, other = open_browser(olga), open_browser(olga)
    _, token = create_token(user=olga, name="nightly", scope="read", lifetime=None)
    assert change(client).status_code == change(client, old=RIGHT, new="12345678").status_code == 422
    assert list_statuses([other]) == [200]
    before = client.session.session_key
    assert change(client, old=RIGHT).status_code == 302
    assert list_statuses([client, other]) == [200, 302]
    assert client.session.session_key != before
    assert use_token(token) == 200
    change(client, old=NEW, new=RIGHT, tokens="on")
    assert use_token(token) == 401
    assert list_actions(3) == ["token_revoked", "password_changed", "password_changed"]


@pytest.mark.parametrize("page", FORMS)
def test_the_old_password_can_not_be_guessed_in_a_browser_that_was_left_signed_in(olga: User, page: str) -> None:
    client = open_browser(olga)
    answers = [change(client, page) for _ in range(5)]
    assert [answer.status_code for answer in answers][-2:] == [answers[0].status_code, 429]
    # The right one is not taken either now; what is open stays open.
    refused = change(client, page, RIGHT)
    assert (refused.status_code, refused["Retry-After"]) == (429, str(15 * 60))
    assert "The old password was wrong too often" in read_words(refused.content.decode())
    assert User.objects.get().check_password(RIGHT)
    assert client.get(page).status_code == 200


def test_tries_at_one_form_count_at_all_others_until_the_right_one(olga: User) -> None:
    client = open_browser(olga)
    for old, new in ((RIGHT, NEW), (NEW, RIGHT)):
        assert [change(client).status_code for _ in range(4)] == [422] * 4
        assert change(client, old=old, new=new).status_code == 302
    for page in (*FORMS, *FORMS):
        change(client, page)
    assert Client().post("/accounts/login/", {"username": "olga", "password": "wrong"}).status_code == 429


def test_no_old_password_is_no_try_and_what_is_counted_holds_none(olga: User) -> None:
    client = open_browser(olga)
    assert [change(client, old="").status_code for _ in range(6)] == [422] * 6
    assert not AccessAttempt.objects.exists()
    change(client, old="correct hoarse", new="a new pass phrase")
    stored = str([*AccessAttempt.objects.values_list(), *AuditEntry.objects.values_list()])
    assert "olga" in stored and "hoarse" not in stored and "phrase" not in stored


# Another secret key


def test_no_user_is_signed_out_while_the_old_key_still_counts(olga: User, settings: Any) -> None:
    stays, late = open_browser(olga), open_browser(olga)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW_KEY, [OLD_KEY]
    assert list_statuses([stays]) == [200]
    # Users who used it meanwhile stay when it is taken out; all others sign in again.
    settings.SECRET_KEY_FALLBACKS = []
    assert list_statuses([stays, late]) == [200, 302]


def test_api_tokens_do_not_depend_on_the_key_and_webhooks_are_signed_with_both(olga: User, settings: Any) -> None:
    _, token = create_token(user=olga, name="nightly", scope="read", lifetime=None)
    signer = fetch_installation_secret()
    before = derive_secret(signer)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW_KEY, [OLD_KEY]
    assert list_secrets(signer) == [derive_secret(signer), before]
    settings.SECRET_KEY_FALLBACKS = []
    assert list_secrets(signer) == [derive_secret(signer)] != [before]
    assert use_token(token) == 200
