"""Reading server-sent events as clients do, from a server as in production."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.serving import TIMEOUT


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it arrived; a comment has the name “comment” and its text."""

    name: str
    id: str
    document: Any


class Reader:
    """An answer that is read event by event."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer
        self.status = answer.status
        self.headers = answer.headers

    def read_block(self) -> list[str]:
        """The lines up to the next empty one; none at the end."""
        lines = []
        while line := self.answer.readline().decode().rstrip("\n"):
            lines.append(line)
        return lines

    def read_event(self) -> Event:
        """The next event; comments are events here. Raises ``EOFError`` at the end."""
        lines = self.read_block()
        if not lines:
            raise EOFError
        if lines[0].startswith(":"):
            return Event("comment", "", lines[0][1:].strip())
        fields = dict(line.split(": ", 1) for line in lines)
        return Event(fields["event"], fields["id"], json.loads(fields["data"]))

    def read_rest(self) -> list[Event]:
        """All events up to the end."""
        events = []
        with contextlib.suppress(EOFError):
            while True:
                events.append(self.read_event())
        return events


@contextlib.contextmanager
def follow(port: int, run_id: int, token: str | None, last: str = "", *, cookie: str = "") -> Iterator[Reader]:
    """The events of a run from a server, for a client that leaves at the end; its ``retry`` is read already."""
    headers = {"Accept": "text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if cookie:
        headers["Cookie"] = f"sessionid={cookie}"
    if last:
        headers["Last-Event-ID"] = last
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
        connection.request("GET", f"/api/v1/runs/{run_id}/events", headers=headers)
        with connection.getresponse() as answer:
            reader = Reader(answer)
            if answer.status == 200:
                assert reader.read_block() == ["retry: 3000"]
            yield reader
