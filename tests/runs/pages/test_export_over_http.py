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

from runs import admission
from runs.models import RunExport, TrailEntry, WorkState
from runs.pages import export_stream, part_stream, trail
from runs.run_filters import find_runs
from runs.tokens import make_token, revoke_token
from tests.moved_clock import MovedClock
from tests.runs.builders import make_run, make_version
from tests.runs.pages.reading import read_words
from tests.waiting import wait_until
from toolflow_site import request_threads
from toolflow_site.request_threads import DashboardHandler, KeptThreads

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "5eed" * 8
PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[int]:
    """The site, served as in production; gives its port."""
    application = KeptThreads(DashboardHandler())
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_config=None, log_level="warning", lifespan="off")
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
    with ask(port, f"/runs/export/csv?progress={TOKEN}", sign_in()) as answer:
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


class TestBrokenOff:
    """A download goes on while its reader would be let in: another one is cut off, and is not whole."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> MovedClock:
        return MovedClock(monkeypatch, admission)

    def test_who_is_signed_out_gets_no_further_part_and_sees_that_the_file_is_not_whole(
        self, server: int, monkeypatch: pytest.MonkeyPatch, clock: MovedClock
    ) -> None:
        numbers = make_runs(7)
        gate = Gate(monkeypatch)
        leaving, staying = Client(), Client()
        root = User.objects.create_superuser("root")
        for client in (leaving, staying):
            client.force_login(root)
        with ask(server, f"/runs/export/csv?progress={TOKEN}", sign_in(leaving)) as answer:
            lines = [answer.readline() for _ in range(3)]
            assert [int(line.split(b",")[0]) for line in lines[1:]] == numbers[:2]
            # One part more may be under way already.
            leaving.post("/accounts/logout/")
            clock.go_on(admission.ASKED_EACH)
            gate.open(9)
            with pytest.raises(http.client.IncompleteRead) as cut:
                answer.read()
        assert len(cut.value.partial.splitlines()) <= 2
        wait_until(
            lambda: RunExport.objects.get().state == WorkState.STOPPED, within=PATIENCE, what="the export was stopped"
        )
        assert RunExport.objects.get().written <= 4
        page = read_words(staying.get(f"/runs/export/progress/{TOKEN}").content.decode())
        assert page.startswith("Stopped")
        assert "or you were signed out meanwhile; the file is not whole" in page

    def test_the_file_of_a_token_that_is_revoked_is_cut_off_and_that_of_another_is_whole(
        self, server: int, monkeypatch: pytest.MonkeyPatch, clock: MovedClock
    ) -> None:
        make_runs(7)
        gate = Gate(monkeypatch)
        root = User.objects.create_superuser("root")
        tokens = [make_token(user=root, name=name, scope="read", lifetime=None) for name in ("leaving", "staying")]
        with ask(server, "/api/v1/runs/export", authorization=f"Bearer {tokens[0][1]}") as answer:
            answer.readline()
            assert revoke_token(tokens[0][0])
            clock.go_on(admission.ASKED_EACH)
            # A part that was begun before is made.
            gate.open()
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        gate.open()
        with ask(server, "/api/v1/runs/export", authorization=f"Bearer {tokens[1][1]}") as answer:
            answer.readline()
            clock.go_on(admission.ASKED_EACH)
            gate.open(9)
            assert len(answer.read().splitlines()) == 6
        states = RunExport.objects.order_by("pk").values_list("state", flat=True)
        wait_until(
            lambda: list(states.all()) == [WorkState.STOPPED, WorkState.DONE], within=PATIENCE, what="both are over"
        )

    def test_so_is_the_file_of_the_trail(self, server: int, monkeypatch: pytest.MonkeyPatch, clock: MovedClock) -> None:
        monkeypatch.setattr(trail, "BATCH", 1)
        cookie = sign_in()
        TrailEntry.objects.bulk_create(TrailEntry(action="run_started") for _ in range(20_000))
        with ask(server, "/trail/export.csv", cookie) as answer:
            answer.readline()
            User.objects.update(is_superuser=False)
            clock.go_on(admission.ASKED_EACH)
            with pytest.raises(http.client.IncompleteRead):
                answer.read()


def test_pages_are_answered_beside_as_many_downloads_as_there_may_be(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_runs(3)
    looks, cookie = CountedLooks(monkeypatch), sign_in()
    assert part_stream.MOST_FILES > request_threads.MOST_AT_ONCE > request_threads.MOST_PARTS
    with contextlib.ExitStack() as stack:
        answers = [stack.enter_context(ask(server, "/runs/export/csv", cookie)) for _ in range(part_stream.MOST_FILES)]
        wait_until(lambda: looks.now == request_threads.MOST_PARTS, within=PATIENCE, what="parts are being made")
        for address in ("/runs/", "/", "/healthz"):
            assert stack.enter_context(ask(server, address, cookie)).status == 200
        kept = (RunExport.objects.count(), TrailEntry.objects.count())
        for address in ("/runs/export/jsonl", "/trail/export.csv", "/api/v1/runs/export"):
            refused = stack.enter_context(ask(server, address, cookie))
            assert (refused.status, refused.headers["Retry-After"]) == (503, "30")
            sentence = "This server is sending 20 files already, as many as it may. Try again in 30 seconds."
            assert sentence in refused.read().decode()
        assert (RunExport.objects.count(), TrailEntry.objects.count()) == kept
        looks.go_on.set()
        assert {len(answer.read().splitlines()) for answer in answers} == {4}
    assert looks.most == request_threads.MOST_PARTS

    def is_answered() -> bool:
        with ask(server, "/runs/export/csv", cookie) as again:
            return again.status == 200

    # The last byte arrives before the server is done with its answer.
    wait_until(is_answered, within=PATIENCE, what="there is room for one more")


def test_whoever_only_asks_about_a_file_gets_its_headers_and_takes_nobodys_place(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_stream, "MOST_FILES", 1)
    make_runs(1)
    cookie = sign_in()
    before = TrailEntry.objects.count()
    for _ in range(3):
        for address in ("/runs/export/csv", "/trail/export.csv"):
            with ask(server, address, cookie, method="HEAD") as answer:
                assert (answer.status, answer.read()) == (200, b"")
                assert answer.getheader("Content-Type") == "text/csv; charset=utf-8"
                assert answer.getheader("Content-Length") is None
    assert (RunExport.objects.count(), TrailEntry.objects.count()) == (0, before)
