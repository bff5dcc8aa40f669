"""Exports as they travel: from a real server to a reader who waits, or goes away."""

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

from runs.filters import find_runs
from runs.models import TrailEntry
from runs.pages import downloads, export_stream
from tests.runs.builders import make_run, make_version
from tests.serving import serve
from tests.waiting import wait_until
from toolflow_site import request_handler

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[int]:
    """The site, served as in production; gives its port."""
    with serve() as port:
        yield port


class Gate:
    """Lets looks for runs pass one by one, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0
        self._permits = threading.Semaphore(1)
        monkeypatch.setattr(export_stream, "find_runs", self._find_runs)
        monkeypatch.setattr(export_stream, "BATCH", 2)

    def open(self, times: int = 1) -> None:
        self._permits.release(times)

    def _find_runs(self, *arguments: Any, **options: Any) -> Any:
        assert self._permits.acquire(timeout=PATIENCE)
        self.passed += 1
        return find_runs(*arguments, **options)


class CountedLooks:
    """Looks for runs that last until ``go_on``, and how many there were at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        self.go_on = threading.Event()
        self._lock = threading.Lock()
        monkeypatch.setattr(export_stream, "find_runs", self._find_runs)

    def _find_runs(self, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.go_on.wait(PATIENCE)
        with self._lock:
            self.now -= 1
        return find_runs(*arguments, **options)


def sign_in(client: Client | None = None) -> str:
    """The cookie of ``client``, or of somebody who may do everything."""
    if client is None:
        client = Client()
        client.force_login(User.objects.create_superuser("root"))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@contextlib.contextmanager
def ask(
    port: int, address: str, cookie: str = "", *, method: str = "GET", authorization: str = ""
) -> Iterator[http.client.HTTPResponse]:
    """An answer that has begun; whoever asked goes away at the end."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request(method, address, headers={"Cookie": cookie, "Authorization": authorization})
        with connection.getresponse() as answer:
            yield answer


@contextlib.contextmanager
def begin_download(port: int) -> Iterator[http.client.HTTPResponse]:
    """A download by somebody who is signed in."""
    with ask(port, "/runs/export/csv", sign_in()) as answer:
        yield answer


def make_runs(count: int) -> list[int]:
    """Numbers of new runs, the newest first."""
    version = make_version()
    return [make_run(version).pk for _ in range(count)][::-1]


def test_the_first_runs_arrive_before_the_last_are_read(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = make_runs(5)
    gate = Gate(monkeypatch)
    with begin_download(server) as answer:
        header, *lines = (answer.readline() for _ in range(3))
        assert header.startswith("\ufeffrun,flow,".encode())
        assert [int(line.split(b",")[0]) for line in lines] == numbers[:2]
        assert gate.passed == 1
        gate.open(3)
        assert [int(line.split(b",")[0]) for line in answer.read().splitlines()] == numbers[2:]


def test_a_reader_who_goes_away_ends_the_reading(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs(9)
    gate = Gate(monkeypatch)
    with begin_download(server) as answer:
        for _ in range(3):
            answer.readline()
    gate.open()

    def is_over() -> bool:
        # An answer whose client went away is held by a circle of references.
        gc.collect()
        return not list(downloads._answers)

    wait_until(is_over, within=PATIENCE, what="the download is over")
    assert gate.passed <= 2


def test_pages_are_answered_beside_as_many_downloads_as_there_may_be(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_runs(3)
    looks, cookie = CountedLooks(monkeypatch), sign_in()
    assert downloads.MAX_FILES > request_handler.MAX_WORKING > request_handler.MAX_PARTS
    with contextlib.ExitStack() as stack:
        answers = [stack.enter_context(ask(server, "/runs/export/csv", cookie)) for _ in range(downloads.MAX_FILES)]
        wait_until(lambda: looks.now == request_handler.MAX_PARTS, within=PATIENCE, what="parts are being made")
        for address in ("/runs/", "/", "/healthz"):
            assert stack.enter_context(ask(server, address, cookie)).status == 200
        kept = TrailEntry.objects.count()
        for address in ("/runs/export/jsonl", "/trail/export.csv", "/api/v1/runs/export"):
            refused = stack.enter_context(ask(server, address, cookie))
            assert (refused.status, refused.headers["Retry-After"]) == (503, "30")
            sentence = "This server is sending 20 files already, as many as it may. Try again in 30 seconds."
            assert sentence in refused.read().decode()
        assert TrailEntry.objects.count() == kept
        looks.go_on.set()
        assert {len(answer.read().splitlines()) for answer in answers} == {4}
    assert looks.most == request_handler.MAX_PARTS

    def is_answered() -> bool:
        with ask(server, "/runs/export/csv", cookie) as again:
            return again.status == 200

    # The last byte arrives before the server is done with its answer.
    wait_until(is_answered, within=PATIENCE, what="there is room for one more")


def test_whoever_only_asks_about_a_file_gets_its_headers_and_takes_nobodys_place(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MAX_FILES", 1)
    make_runs(1)
    cookie = sign_in()
    before = TrailEntry.objects.count()
    for _ in range(3):
        for address in ("/runs/export/csv", "/trail/export.csv"):
            with ask(server, address, cookie, method="HEAD") as answer:
                assert (answer.status, answer.read()) == (200, b"")
                assert answer.getheader("Content-Type") == "text/csv; charset=utf-8"
                assert answer.getheader("Content-Length") is None
    assert TrailEntry.objects.count() == before
