"""Exports from a real server: they arrive while they are read, and few are sent at a time."""

from __future__ import annotations

import contextlib
import gc
import http.client
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from runs.exports import streaming
from runs.filters import find_runs
from runs.models import TrailEntry
from tests.runs.builders import make_run, make_version
from tests.serving import serve
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[int]:
    """The site, served as in production; gives its port."""
    with serve() as port:
        yield port


class Gate:
    """Lets searches for runs pass one by one, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0
        self._permits = threading.Semaphore(1)
        monkeypatch.setattr(streaming, "find_runs", self._find_runs)
        monkeypatch.setattr(streaming, "BATCH_SIZE", 2)

    def open(self, times: int = 1) -> None:
        self._permits.release(times)

    def _find_runs(self, *arguments: Any, **options: Any) -> Any:
        assert self._permits.acquire(timeout=PATIENCE)
        self.passed += 1
        return find_runs(*arguments, **options)


@pytest.fixture
def cookie() -> str:
    """The cookie of a user who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@contextlib.contextmanager
def ask(port: int, address: str, cookie: str, *, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
    """A response that has begun; the client disconnects at the end."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request(method, address, headers={"Cookie": cookie})
        with connection.getresponse() as answer:
            yield answer


def make_runs(count: int) -> list[int]:
    """Numbers of new runs, the newest first."""
    version = make_version()
    return [make_run(version).pk for _ in range(count)][::-1]


@pytest.mark.parametrize("address", ["/runs/export/csv", "/api/v1/runs/export?format=csv"])
def test_the_first_runs_arrive_before_the_last_are_read(
    server: int, cookie: str, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    numbers = make_runs(5)
    gate = Gate(monkeypatch)
    with ask(server, address, cookie) as answer:
        header, *lines = (answer.readline() for _ in range(3))
        assert header.startswith("\ufeffrun,flow,".encode())
        assert [int(line.split(b",")[0]) for line in lines] == numbers[:2]
        assert gate.passed == 1
        gate.open(3)
        assert [int(line.split(b",")[0]) for line in answer.read().splitlines()] == numbers[2:]


def test_a_client_that_disconnects_ends_the_export(server: int, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs(9)
    gate = Gate(monkeypatch)
    with ask(server, "/runs/export/csv", cookie) as answer:
        for _ in range(3):
            answer.readline()
    gate.open()

    def is_over() -> bool:
        # A response whose client disconnected is held by a circle of references.
        gc.collect()
        return not list(streaming._sending)

    wait_until(is_over, within=PATIENCE, what="the export is over")
    assert gate.passed <= 2


def test_a_bounded_number_is_sent_at_a_time(server: int, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_FILES", 2)
    make_runs(3)
    gate = Gate(monkeypatch)
    with contextlib.ExitStack() as stack:
        answers = [stack.enter_context(ask(server, "/runs/export/csv", cookie)) for _ in range(2)]
        logged = TrailEntry.objects.count()
        assert stack.enter_context(ask(server, "/runs/", cookie)).status == 200
        for address in ("/runs/export/jsonl", "/trail/export.csv", "/api/v1/runs/export"):
            refused = stack.enter_context(ask(server, address, cookie))
            assert (refused.status, refused.headers["Retry-After"]) == (503, "30")
            # What only asks for the headers takes no slot, and needs none.
            with ask(server, address, cookie, method="HEAD") as head:
                assert (head.status, head.read()) == (200, b"")
        assert TrailEntry.objects.count() == logged
        gate.open(10)
        assert {len(answer.read().splitlines()) for answer in answers} == {4}

    def is_accepted() -> bool:
        with ask(server, "/runs/export/csv", cookie) as again:
            return again.status == 200

    # The last byte arrives before the server has closed its response.
    wait_until(is_accepted, within=PATIENCE, what="a slot is free")
