"""Making tokens for scripts, seeing how they are used, and revoking them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.models import ApiToken, BrowserSession, TokenScope
from runs.tokens import MOST_ACTIVE
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.runs.pages.reading import count_queries, get_page, read_words

pytestmark = pytest.mark.django_db

PAGE = "/tokens/"
TOKEN = re.compile(r"tf_[0-9a-f]{64}")


def send_form(client: Client, **values: str) -> HttpResponse:
    """The answer to the form that makes a token."""
    answer: Any = client.post(PAGE, {"name": "nightly import", "scope": "read", "expires": "90d", **values})
    found: HttpResponse = answer
    return found


def read_token(answer: HttpResponse) -> str:
    """The token that the page shows."""
    assert answer.status_code == 200
    found = TOKEN.search(answer.content.decode())
    assert found is not None
    return found[0]


@pytest.fixture
def ada(viewer: Client) -> User:
    return User.objects.get(username="ada")


def test_a_token_is_made_shown_once_and_lets_its_owner_in(viewer: Client) -> None:
    answer = send_form(viewer, name="  nightly   import ", scope="read")
    token = read_token(answer)
    words = read_words(answer.content.decode())
    assert "The token “nightly import” is made" in words
    assert "not shown again" in words
    assert f"export TOOLFLOW_TOKEN={token}" in words
    assert "/api/v1/runs?limit=1" in words
    assert read_problem(Script(token).get("nowhere"))["status"] == 404

    page = get_page(viewer, PAGE)
    assert not TOKEN.search(page)
    words = read_words(page)
    assert "nightly import" in words
    assert f"{token[:15]}…" in words


def test_the_commands_on_the_page_are_what_a_shell_takes(viewer: Client) -> None:
    page = send_form(viewer).content.decode()
    command = page.partition('id="new-token-command">')[2].partition("</pre>")[0]
    assert "Authorization: Bearer $TOOLFLOW_TOKEN" in command
    assert "export TOOLFLOW_URL=http://testserver\n" in command
    assert "&quot;$TOOLFLOW_URL/api/v1/runs?limit=1&quot;" in command


def test_no_cookie_session_message_or_cache_holds_the_token(viewer: Client) -> None:
    answer = send_form(viewer)
    token = read_token(answer)
    assert "no-store" in answer["Cache-Control"]
    assert not answer.has_header("Location")
    assert token not in str(answer.headers) + str(answer.cookies)
    assert all(token not in str(session.get_decoded()) for session in BrowserSession.objects.all())


def test_a_token_lasts_as_long_as_was_chosen(viewer: Client) -> None:
    for text, days in (("30d", 30), ("90d", 90), ("365d", 365), ("never", None)):
        send_form(viewer, name=text, expires=text)
        row = ApiToken.objects.get(name=text)
        lasts = None if row.expiry is None else round((row.expiry - row.created) / timedelta(days=1), 2)
        assert lasts == days
    assert '<option value="90d" selected>90 days</option>' in get_page(viewer, PAGE)


@pytest.mark.parametrize(
    ("most", "offered", "usual"),
    [
        (1, ["1d 1 day"], "1d"),
        (45, ["30d 30 days", "45d 45 days"], "45d"),
        (90, ["30d 30 days", "90d 90 days"], "90d"),
        (2000, ["30d 30 days", "90d 90 days", "365d A year", "2000d 2,000 days"], "90d"),
    ],
)
def test_an_installation_may_bound_how_long_tokens_last(
    viewer: Client, settings: Any, most: int, offered: list[str], usual: str
) -> None:
    settings.TOOLFLOW_TOKEN_MAX_DAYS = most
    options = re.findall(r'<option value="(\w+)"( selected)?>([^<]+)</option>', get_page(viewer, PAGE))
    assert [f"{value} {words}" for value, _, words in options] == offered
    assert [value for value, selected, _ in options if selected] == [usual]
    for text in ("never", f"{most + 1}d"):
        answer = send_form(viewer, expires=text)
        words = "1 day" if most == 1 else f"{most:,} days"
        assert answer.status_code == 422
        assert f"A token lasts {words} at most in this installation" in read_words(answer.content.decode())
    assert not ApiToken.objects.exists()
    send_form(viewer, expires=f"{most}d")
    row = ApiToken.objects.get()
    assert row.expiry is not None and round((row.expiry - row.created) / timedelta(days=1), 2) == most


def test_a_token_has_the_scope_that_was_chosen(viewer: Client) -> None:
    for scope in TokenScope.values:
        send_form(viewer, name=scope, scope=scope)
        assert ApiToken.objects.get(name=scope).scope == scope


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": " "}, "A token needs a name: what will use it?"),
        ({"name": "x" * 101}, "The name of a token has at most 100 characters; this one has 101."),
        ({"name": "a\u202eb"}, "The name of a token can’t have characters that nobody sees."),
        ({"name": "a\x00b"}, "The name of a token can’t have characters that nobody sees."),
        ({"scope": "all"}, "“all” is no scope; known are “read”, “run”, “edit”."),
        ({"scope": ""}, "“” is no scope"),
        ({"expires": "90"}, "“90” is no expiry: write “90d” for 90 days (at most 3650), or “never”."),
        ({"expires": "99999d"}, "“99999d” is no expiry"),
        ({"expires": "0d"}, "“0d” is no expiry"),
    ],
)
def test_what_makes_no_token_gets_a_sentence(viewer: Client, values: dict[str, str], sentence: str) -> None:
    answer = send_form(viewer, **values)
    assert answer.status_code == 422
    assert sentence in read_words(answer.content.decode())
    assert not ApiToken.objects.exists()


def test_what_was_typed_stays(viewer: Client) -> None:
    page = send_form(viewer, name="CI", scope="run", expires="soon").content.decode()
    assert 'value="CI"' in page
    assert re.search(r'value="run"[^>]* checked', page)


def test_a_form_that_is_sent_twice_makes_one_token(viewer: Client) -> None:
    send_form(viewer)
    answer = send_form(viewer)
    assert answer.status_code == 422
    assert "There is an active token “nightly import” already" in read_words(answer.content.decode())
    assert ApiToken.objects.count() == 1


def test_the_name_of_a_revoked_token_is_free_again_and_others_may_have_the_same(viewer: Client, ada: User) -> None:
    make_token(ada, name="nightly import", revoked_at=timezone.now())
    make_token(make_user("grace"), name="nightly import")
    read_token(send_form(viewer))


def test_there_is_a_limit_for_each_user(viewer: Client, ada: User) -> None:
    for number in range(MOST_ACTIVE):
        make_token(ada, name=str(number))
    assert "There are 50 active tokens already; revoke one first." in read_words(send_form(viewer).content.decode())


def test_the_list_tells_state_and_use_of_each_of_one_s_own(viewer: Client, ada: User) -> None:
    now = timezone.now()
    make_token(ada, TokenScope.EDIT, name="in use", last_used_at=now - timedelta(hours=3, minutes=5))
    make_token(ada, TokenScope.READ, name="ending", expiry=timedelta(days=2))
    make_token(ada, TokenScope.RUN, name="old", expiry=timedelta(seconds=-1))
    make_token(ada, TokenScope.READ, name="leaked", revoked_at=now)
    make_token(make_user("grace"), name="somebody else's")
    words = read_words(get_page(viewer, PAGE))
    active, _, ended = words.partition("Expired and revoked")
    assert re.search(r"in use tf_\w+… Edit Active 3 h ago Never", active)
    assert re.search(r"ending tf_\w+… Read Expires soon Never \d+ \w+ \d{4}", active)
    assert re.search(r"old tf_\w+… Run Expired Never", ended)
    assert re.search(r"leaked tf_\w+… Read Revoked Never Never", ended)
    assert "somebody else" not in words
    assert words.count("Revoke in use") == 1
    assert "Revoke leaked" not in words


def test_a_scope_beyond_one_s_own_permissions_is_remarked_upon(viewer: Client) -> None:
    page = get_page(viewer, PAGE)
    assert page.count("Your account may not do all of this") == 2


def test_the_list_costs_the_same_for_many_tokens(viewer: Client, ada: User) -> None:
    make_token(ada, name="first")
    few = count_queries(viewer, PAGE)
    for number in range(20):
        make_token(ada, name=str(number))
        make_token(ada, name=f"old {number}", revoked_at=timezone.now())
    assert count_queries(viewer, PAGE) == few


def test_revoking_is_asked_first_and_ends_the_use_of_a_token(viewer: Client, ada: User) -> None:
    token = make_token(ada, name="leaked")
    address = reverse("runs:token-revoke", args=[token[:15]])
    page = get_page(viewer, address)
    assert "Revoke the token “leaked”? Whatever uses it is refused at once" in read_words(page)
    assert read_problem(Script(token).get("nowhere"))["status"] == 404

    answer = viewer.post(address, follow=True)
    words = read_words(answer.content.decode())
    assert "The token “leaked” is revoked." in words
    assert "Expired and revoked" in words
    assert read_problem(Script(token).get("nowhere"))["detail"] == "The token “leaked” was revoked."


@pytest.mark.parametrize("method", ["get", "post"])
def test_what_is_revoked_stays_so(viewer: Client, ada: User, method: str) -> None:
    revoked_at = timezone.now() - timedelta(days=1)
    token = make_token(ada, name="leaked", revoked_at=revoked_at)
    answer = getattr(viewer, method)(reverse("runs:token-revoke", args=[token[:15]]), follow=True)
    assert "The token “leaked” let nobody in any more." in read_words(answer.content.decode())
    assert ApiToken.objects.get().revoked_at == revoked_at


def test_nobody_sees_or_revokes_another_s_token(viewer: Client) -> None:
    token = make_token(make_user("grace"), name="hers")
    for key in (token[:15], token, "tf_000000000000", "%00", "x" * 500):
        address = f"/tokens/{key}/revoke/"
        assert viewer.get(address).status_code == 404
        assert viewer.post(address).status_code == 404
    assert ApiToken.objects.get().revoked_at is None


def test_whoever_is_signed_in_may_have_tokens_and_strangers_sign_in_first(client: Client) -> None:
    answer = client.get(PAGE)
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/login/?next=/tokens/")
    assert client.post(PAGE, {"name": "x"}).status_code == 302
    client.force_login(make_user("otto"))
    assert client.get(PAGE).status_code == 200
    read_token(send_form(client))


def test_a_form_of_another_site_makes_no_token(viewer: Client, ada: User) -> None:
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(ada)
    assert send_form(careful).status_code == 403
    assert not ApiToken.objects.exists()


def test_the_page_is_reached_from_every_page_and_marks_no_other_entry(viewer: Client) -> None:
    assert '<a class="button button-icon" href="/tokens/" title="API tokens">' in get_page(viewer, "/runs/")
    page = get_page(viewer, PAGE)
    assert page.count('aria-current="page"') == 1
    assert re.search(r'href="/tokens/"[^>]* aria-current="page"', page)
