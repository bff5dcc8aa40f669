"""How often a user may ask for what the editor asks for by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from flows.throttle import limit_rate


@pytest.fixture(autouse=True)
def _standing_clock_and_empty_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # 20 seconds are left of the minute.
    monkeypatch.setattr("flows.throttle.time.time", lambda: 1_000_000.0)
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
    request.user = User(pk=pk)
    return view(request)


def test_beyond_the_limit_of_a_user_and_a_scope_it_answers_429_and_says_when_to_try_again() -> None:
    view, same, other = make_view(), make_view(), make_view("another")
    assert [ask(view).status_code, ask(same).status_code] == [200, 200]
    refused = ask(view)
    assert (refused.status_code, refused["Retry-After"]) == (429, "20")
    assert "20 s" in refused.content.decode()
    assert [ask(view, pk=2).status_code, ask(other).status_code] == [200, 200]


def test_a_count_that_the_cache_lost_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "add", lambda *args, **kwargs: False)
    assert ask(make_view()).status_code == 200
