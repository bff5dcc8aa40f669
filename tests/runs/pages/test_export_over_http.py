"""Exports as they travel: from a real server to a reader who waits, or goes away."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from runs.models import RunExport, WorkState
from runs.pages import export_stream
from runs.run_filters import find_runs
from tests.runs.builders import make_run, make_version
from tests.runs.pages.reading import read_words
from tests.waiting import wait_until
from toolflow_site.request_threads import DashboardHandler, KeptThreads

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "5eed" * 8
PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[int]:
    """The site, served as in production; gives its port."""
    application = KeptThreads(DashboardHandler())
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run)
    thread.start()
    wait_until(lambda: uvicorn_server.started, within=PATIENCE, what="the server listens")
    yield uvicorn_server.servers[0].sockets[0].getsockname()[1]
    uvicorn_server.should_exit = True
    thread.join(PATIENCE)
    application.end()


class Gate:
    """Lets looks for runs pass one by one, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0
        self._permits = threading.Semaphore(1)
        monkeypatch.setattr(export_stream, "find_runs", self._find_runs)
        monkeypatch.setattr(export_stream, "BATCH", 2)
        monkeypatch.setattr(export_stream, "NOTE_EVERY", 0)

    def open(self, times: int = 1) -> None:
        self._permits.release(times)

    def _find_runs(self, *arguments: Any, **options: Any) -> Any:
        assert self._permits.acquire(timeout=PATIENCE)
        self.passed += 1
        return find_runs(*arguments, **options)


@contextlib.contextmanager
def begin_download(port: int) -> Iterator[http.client.HTTPResponse]:
    """A download by somebody who is signed in, and who goes away at the end; the answer has begun."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={session}"}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", f"/runs/export/csv?progress={TOKEN}", headers=headers)
        with connection.getresponse() as answer:
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


def test_a_reader_who_goes_away_ends_the_reading(server: int, monkeypatch: pytest.MonkeyPatch, viewer: Client) -> None:
    make_runs(9)
    gate = Gate(monkeypatch)
    with begin_download(server) as answer:
        for _ in range(3):
            answer.readline()
    gate.open()
    wait_until(
        lambda: RunExport.objects.get().state == WorkState.STOPPED, within=PATIENCE, what="the export was stopped"
    )
    assert gate.passed <= 2
    page = read_words(viewer.get(f"/runs/export/progress/{TOKEN}").content.decode())
    assert page.startswith("Stopped")
    assert "the file is not whole" in page
