"""How often a user may ask for what the editor asks for by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from flows import throttle
from flows.throttle import limit_rate

Ask = Callable[..., HttpResponse]


class Clock:
    """A clock that stands still until it is moved."""

    now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def make_view(scope: str = "check") -> Callable[[HttpRequest], HttpResponse]:
    @limit_rate(scope, most=2, seconds=60)
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    return view


def ask(view: Callable[[HttpRequest], HttpResponse], pk: int = 1) -> HttpResponse:
    request = RequestFactory().get("/")
    request.user = User(pk=pk) if pk else AnonymousUser()
    return view(request)


def test_beyond_the_limit_it_answers_429_and_says_when_to_try_again(clock: Clock) -> None:
    view = make_view()
    # 20 seconds are left of the minute in which the clock stands.
    assert [ask(view).status_code for _ in range(3)] == [200, 200, 429]
    answer = ask(view)
    assert answer["Retry-After"] == "20"
    assert "20 s" in json.loads(answer.content)["error"]


def test_users_and_scopes_have_counts_of_their_own(clock: Clock) -> None:
    view, same, other = make_view(), make_view(), make_view("another")
    ask(view)
    ask(same)
    assert ask(view).status_code == 429
    assert ask(view, pk=2).status_code == 200
    assert ask(other).status_code == 200


def test_a_count_that_the_cache_lost_begins_anew(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    view = make_view()
    monkeypatch.setattr(cache, "add", lambda *args, **kwargs: False)
    assert ask(view).status_code == 200
