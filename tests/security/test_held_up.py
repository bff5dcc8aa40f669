"""Sign-ins that wait, for a provider or for their turn: every other user is answered meanwhile."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import islice
from urllib.parse import urlencode

import pytest
from django.test import Client

from tests.security.provider import FakeProvider
from tests.security.test_anonymous_requests import COOKIE, DESCRIPTION
from tests.security.test_openid import provider
from tests.serving import serve
from toolflow_site.openid import MAX_ASKING

__all__ = ["provider"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.security.test_openid"),
]

TIMEOUT = 30.0
PLACES = 4
"""Requests that are worked on at a time: so few that those who hold one while they wait leave none."""
MANY = 20


@pytest.fixture
def port() -> Iterator[int]:
    """Where the site is served, as in production."""
    with serve(max_working=PLACES) as port:
        yield port


@pytest.fixture
def visitors() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MANY) as threads:
        yield threads


def ask(port: int, address: str, *, cookie: str = "", form: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """An answer, read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        headers = {"Cookie": cookie}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request("GET" if form is None else "POST", address, urlencode(form or {}), headers)
        answer = connection.getresponse()
        answer.read()
        return answer
    finally:
        connection.close()


def expect_others_to_be_answered(port: int) -> None:
    for address in ("/healthz", "/accounts/login/"):
        assert ask(port, address).status == 200


def read_first(asked: list[Future[http.client.HTTPResponse]], count: int) -> list[http.client.HTTPResponse]:
    """The answers that arrive first."""
    return [one.result() for one in islice(as_completed(asked, TIMEOUT), count)]


def begin(provider: FakeProvider) -> tuple[str, str]:
    """The address that a user comes back to, and their cookie."""
    client = Client()
    way_back = provider.sign_in(client.get("/accounts/oidc/")["Location"])
    return way_back, f"{COOKIE}={client.cookies[COOKIE].value}"


def ask_a_provider_that_hangs(
    provider: FakeProvider, port: int, visitors: ThreadPoolExecutor, ways: list[tuple[str, str]]
) -> list[Future[http.client.HTTPResponse]]:
    """The requests of people who come while it hangs: some wait, others are refused, and all others are answered."""
    provider.arrived = threading.Semaphore(0)
    provider.goes_on.clear()
    asked = [visitors.submit(ask, port, address, cookie=cookie) for address, cookie in ways]
    try:
        for _ in range(MAX_ASKING):
            assert provider.arrived.acquire(timeout=TIMEOUT)
        refused = read_first(asked, MANY - MAX_ASKING)
        assert [answer.getheader("Location") for answer in refused] == ["/accounts/login/"] * len(refused)
        expect_others_to_be_answered(port)
        assert sum(one.done() for one in asked) == len(refused)
    finally:
        provider.goes_on.set()
    return asked


def test_people_who_come_back_while_the_provider_hangs(
    provider: FakeProvider, port: int, visitors: ThreadPoolExecutor
) -> None:
    address, cookie = begin(provider)
    assert ask(port, address, cookie=cookie).status == 302
    ways = [begin(provider) for _ in range(MANY)]
    asked = ask_a_provider_that_hangs(provider, port, visitors, ways)
    assert [one.result().getheader("Location") for one in asked].count("/") == MAX_ASKING


def test_people_who_set_out_while_the_provider_hangs(
    provider: FakeProvider, port: int, visitors: ThreadPoolExecutor
) -> None:
    asked = ask_a_provider_that_hangs(provider, port, visitors, [("/accounts/oidc/", "")] * MANY)
    assert [one.result().getheader("Location") for one in asked].count("/accounts/login/") == MANY - MAX_ASKING
    assert set(provider.asked) == {DESCRIPTION} and len(provider.asked) <= MAX_ASKING
