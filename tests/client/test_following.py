"""Waiting for a run: the server tells of changes, and is asked where it can't. Against servers that tests conduct."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from runs.client import waiting
from runs.client.errors import ClientError
from runs.client.server import Server
from runs.client.waiting import wait_for_end

BROKEN_OFF = b"retry: 3000\n\n"


def make_run(status: str = "running", **fields: Any) -> dict[str, Any]:
    figures = {"steps_passed": 0, "step_count": 2, "attempt_count": 1, "usage": {"total": 0, "cost": None}}
    return {"id": 7, "status": status, "waiting_for": None, **figures, **fields}


def write_event(name: str, place: str, document: dict[str, Any]) -> bytes:
    return f"event: {name}\nid: {place}\ndata: {json.dumps(document)}\n\n".encode()


@dataclass
class Conducted:
    """What a server says of run 7, and what it was asked."""

    streams: list[bytes | int]
    """Each the events of one stream, or the status that refuses it; one beyond them says nothing and stays open."""
    runs: list[dict[str, Any]]
    asked: list[str] = field(default_factory=list)
    server: Server = field(init=False)
    is_over: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def conduct() -> Iterator[Callable[..., Conducted]]:
    begun: list[tuple[ThreadingHTTPServer, Conducted]] = []

    def make(*, streams: tuple[bytes | int, ...] = (), runs: tuple[dict[str, Any], ...] = ()) -> Conducted:
        conducted = Conducted(list(streams), list(runs))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place = self.path.removeprefix("/api/v1/")
                is_stream = place == "runs/7/events"
                last_id = self.headers.get("Last-Event-ID")
                conducted.asked.append(f"{place} after {last_id}" if last_id else place)
                if not is_stream:
                    return self._answer("application/json", json.dumps(conducted.runs.pop(0)).encode())
                events = conducted.streams.pop(0) if conducted.streams else None
                if isinstance(events, int):
                    return self._answer("application/problem+json", b'{"detail": "No."}', events)
                # Whoever gave up has closed the connection.
                with suppress(OSError):
                    self._answer("text/event-stream", events or b"")
                if events is None:
                    conducted.is_over.wait(60)
                return None

            def _answer(self, kind: str, body: bytes, status: int = 200) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

            def log_message(self, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        begun.append((server, conducted))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        conducted.server = Server(f"http://127.0.0.1:{server.server_port}", "tf_0123")
        return conducted

    yield make
    for server, conducted in begun:
        conducted.is_over.set()
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_PAUSE", 0.0)


def test_one_request_hears_of_everything(conduct: Callable[..., Conducted], capfd: pytest.CaptureFixture[str]) -> None:
    events = (
        write_event("attempt", "0-1-1", {"step": 1, "number": 1})
        + write_event("run", "3-1-1", make_run(steps_passed=1, attempt_count=2))
        + write_event("end", "4-2-1-end", make_run("succeeded", steps_passed=2))
    )
    conducted = conduct(streams=(events,))
    assert wait_for_end(conducted.server, make_run("queued", attempt_count=0))["status"] == "succeeded"
    assert conducted.asked == ["runs/7/events"]
    assert capfd.readouterr().err.splitlines() == [
        "Run 7: queued, 0 of 2 steps passed, 0 attempts",
        "Run 7: running, 1 of 2 steps passed, 2 attempts",
    ]


def test_a_stream_that_breaks_off_goes_on_after_what_arrived(conduct: Callable[..., Conducted]) -> None:
    first = write_event("run", "3-1-1", make_run(steps_passed=1))
    second = write_event("end", "4-2-1-end", make_run("failed"))
    conducted = conduct(streams=(first, second), runs=(make_run(steps_passed=1),))
    assert wait_for_end(conducted.server, make_run())["status"] == "failed"
    assert conducted.asked == ["runs/7/events", "runs/7?attempts=none", "runs/7/events after 3-1-1"]


@pytest.mark.parametrize("refusal", [501, 503, 404, BROKEN_OFF])
def test_where_there_is_no_stream_the_run_is_asked_for(conduct: Callable[..., Conducted], refusal: bytes | int) -> None:
    conducted = conduct(streams=(refusal,), runs=(make_run(), make_run("errored")))
    assert wait_for_end(conducted.server, make_run())["status"] == "errored"
    assert conducted.asked == ["runs/7/events", *["runs/7?attempts=none"] * 2]


def test_a_stream_that_shows_no_sign_of_life_is_given_up(
    conduct: Callable[..., Conducted], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "WORKER_PATIENCE", 0.05)
    monkeypatch.setattr(waiting, "SILENCE", 0.1)
    queued = make_run("queued", waiting_for="Its flow has 3 runs under way, which is its limit.")
    conducted = conduct(runs=(queued, queued, make_run("cancelled")))
    assert wait_for_end(conducted.server, make_run("queued"))["status"] == "cancelled"
    # The first silence is only a reason to look why nothing happens.
    assert conducted.asked.count("runs/7?attempts=none") == 3
    assert capfd.readouterr().err.count("Its flow has 3 runs under way") == 1


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"id": 7}'])
def test_an_event_that_can_t_be_read_is_told_in_a_sentence(conduct: Callable[..., Conducted], data: bytes) -> None:
    conducted = conduct(streams=(b"event: run\nid: 1\ndata: " + data + b"\n\n",))
    with pytest.raises(ClientError, match=r"can’t be read|is not ToolFlow|has no “status”"):
        wait_for_end(conducted.server, make_run())


def test_a_run_that_ended_meanwhile_is_asked_for_nothing_more(conduct: Callable[..., Conducted]) -> None:
    conducted = conduct()
    wait_for_end(conducted.server, make_run("succeeded"))
    assert conducted.asked == []
