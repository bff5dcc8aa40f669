"""Making tokens for scripts, seeing how they are used, and revoking them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from runs.models import ApiToken, BrowserSession, TokenScope
from runs.tokens import MAX_ACTIVE
from tests.api.asking import Script, create_token, make_user, read_problem
from tests.runs.pages.reading import count_queries, get_page, read_words

pytestmark = pytest.mark.django_db

PAGE = "/tokens/"
TOKEN = re.compile(r"tf_[0-9a-f]{64}")


def send_form(client: Client, **values: str) -> HttpResponse:
    """The answer to the form that makes a token."""
    answer: Any = client.post(PAGE, {"name": "nightly import", "scope": "read", "expires": "90d", **values})
    found: HttpResponse = answer
    return found


@pytest.fixture
def ada(viewer: Client) -> User:
    return User.objects.get(username="ada")


def test_a_token_is_made_shown_once_and_lets_its_owner_in(viewer: Client) -> None:
    answer = send_form(viewer, name="  nightly   import ")
    page = answer.content.decode()
    found = TOKEN.search(page)
    assert answer.status_code == 200 and found is not None
    token = found[0]
    assert f"export TOOLFLOW_TOKEN={token}" in page and "export TOOLFLOW_URL=http://testserver\n" in page
    assert "&quot;$TOOLFLOW_URL/api/v1/runs?limit=1&quot;" in page
    assert read_problem(Script(token).get("nowhere"))["status"] == 404
    page = get_page(viewer, PAGE)
    assert not TOKEN.search(page)
    assert "nightly import" in page and f"{token[:15]}…" in page
    # No cookie, session, message or cache holds it.
    assert "no-store" in answer["Cache-Control"] and not answer.has_header("Location")
    assert token not in str(answer.headers) + str(answer.cookies)
    assert all(token not in str(session.get_decoded()) for session in BrowserSession.objects.all())


@pytest.mark.parametrize(
    ("most", "offered", "usual"),
    [
        (1, ["1d 1 day"], "1d"),
        (45, ["30d 30 days", "45d 45 days"], "45d"),
        (2000, ["30d 30 days", "90d 90 days", "365d 1 year", "2000d 2\u202f000 days"], "90d"),
    ],
    ids=["1", "45", "2000"],
)
def test_an_installation_may_bound_how_long_tokens_last(
    viewer: Client, settings: Any, most: int, offered: list[str], usual: str
) -> None:
    settings.TOOLFLOW_TOKEN_MAX_DAYS = most
    options = re.findall(r'<option value="(\w+)"( selected)?>([^<]+)</option>', get_page(viewer, PAGE))
    assert [f"{value} {words}" for value, _, words in options] == offered
    assert [value for value, selected, _ in options if selected] == [usual]
    for text in ("never", f"{most + 1}d"):
        assert send_form(viewer, expires=text).status_code == 422
    assert not ApiToken.objects.exists()
    assert send_form(viewer, expires=f"{most}d").status_code == 200


@pytest.mark.parametrize(
    "values",
    [{"name": " "}, {"name": "x" * 101}, {"name": "a\u202eb"}, {"scope": "all"}, {"expires": "90"}, {"expires": "0d"}],
    ids=repr,
)
def test_what_makes_no_token_is_refused_and_what_was_typed_stays(viewer: Client, values: dict[str, str]) -> None:
    answer = send_form(viewer, **{"name": "CI", "scope": "run", **values})
    assert answer.status_code == 422 and not ApiToken.objects.exists()
    page = answer.content.decode()
    assert ('value="CI"' in page) == ("name" not in values)
    assert bool(re.search(r'value="run"[^>]* checked', page)) == ("scope" not in values)


def test_a_name_is_free_unless_one_s_own_active_token_has_it_and_there_is_a_limit(viewer: Client, ada: User) -> None:
    create_token(ada, name="nightly import", revoked_at=timezone.now())
    create_token(make_user("grace"), name="nightly import")
    assert [send_form(viewer).status_code for _ in range(2)] == [200, 422]
    for number in range(MAX_ACTIVE - 1):
        create_token(ada, name=str(number))
    assert send_form(viewer, name="one more").status_code == 422


def test_revoking_is_asked_first_ends_the_use_of_a_token_and_stays(viewer: Client, ada: User) -> None:
    token = create_token(ada, name="leaked")
    address = f"/tokens/{token[:15]}/revoke/"
    assert 'class="button button-main button-danger"' in get_page(viewer, address)
    assert read_problem(Script(token).get("nowhere"))["status"] == 404
    viewer.post(address)
    assert read_problem(Script(token).get("nowhere"))["status"] == 401
    revoked_at = ApiToken.objects.get().revoked_at
    for method in (viewer.get, viewer.post):
        assert method(address, follow=True).status_code == 200
    assert revoked_at is not None and ApiToken.objects.get().revoked_at == revoked_at


def test_the_list_tells_state_and_use_of_each_of_one_s_own(viewer: Client, ada: User) -> None:
    now = timezone.now()
    create_token(ada, TokenScope.EDIT, name="in use", last_used_at=now - timedelta(hours=3, minutes=5))
    create_token(ada, TokenScope.READ, name="ending", expiry=timedelta(days=2))
    few = count_queries(viewer, PAGE)
    create_token(ada, TokenScope.RUN, name="old", expiry=timedelta(seconds=-1))
    create_token(ada, TokenScope.READ, name="leaked", revoked_at=now)
    create_token(make_user("grace"), name="somebody else's")
    words = read_words(get_page(viewer, PAGE))
    active, _, ended = words.partition("Expired and revoked")
    assert re.search(r"in use tf_\w+… Edit Active 3 h ago Never", active)
    assert re.search(r"ending tf_\w+… Read Expires soon Never \d+ \w+ \d{4}", active)
    assert re.search(r"old tf_\w+… Run Expired Never", ended)
    assert re.search(r"leaked tf_\w+… Read Revoked Never Never", ended)
    assert "somebody else" not in words and "Revoke in use" in words and "Revoke leaked" not in words
    assert count_queries(viewer, PAGE) == few
