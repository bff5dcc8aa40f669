"""The provider of an installation under test: the simulated model over TCP, with a record of every call it got."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from flows.engine.simulated_model import Latency, SimulatedModel
from flows.engine.simulated_model.script import draw_latency

_Message = MutableMapping[str, Any]
_KEY = re.compile(r"-(\d+)-(\d+)-(\d+)$")
"""An idempotency key ends with the run, the step and the attempt."""


@dataclass(slots=True)
class ReceivedCall:
    """One call as the provider saw it. Times are of ``time.monotonic()``."""

    key: str
    received_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    status: int | None = None
    """The HTTP status of the answer; None while there is none, and where the client went away before."""

    @property
    def place(self) -> tuple[int, int, int]:
        """Run, step and number of the attempt that it was made for. Raises ``ValueError`` if its key names none."""
        match = _KEY.search(self.key)
        if match is None:
            raise ValueError(f"The idempotency key “{self.key}” does not end with run, step and attempt.")
        return int(match[1]), int(match[2]), int(match[3])


class CountingModel:
    """A simulated model, as an ASGI application, that remembers every call: who asked, when, and how it ended.

    ``latency`` is what calls take that come in from then on, in seconds; it may be changed at any time.
    """

    def __init__(self, model: SimulatedModel, *, latency: Latency) -> None:
        self.latency = latency
        self.calls: list[ReceivedCall] = []
        self.in_flight = 0
        """How many calls wait for their answer now."""
        self._model = model

    def calls_of(self, run: int) -> list[ReceivedCall]:
        """The calls that were made for a run."""
        return [call for call in self.calls if call.place[0] == run]

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Serve one ASGI request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._model(scope, receive, send)
            return
        call = ReceivedCall(dict(scope["headers"]).get(b"idempotency-key", b"").decode("latin-1"))
        self.calls.append(call)
        self.in_flight += 1
        messages: asyncio.Queue[_Message] = asyncio.Queue()
        gone = asyncio.Event()

        async def listen() -> None:
            while not gone.is_set():
                message = await receive()
                if message["type"] == "http.disconnect":
                    self._end(call)
                    gone.set()
                messages.put_nowait(message)

        async def answer(message: _Message) -> None:
            if message["type"] == "http.response.start" and call.ended_at is None:
                call.status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self._end(call)

        listening = asyncio.create_task(listen())
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), draw_latency(self.latency, call.key))
            if not gone.is_set():
                await self._model(scope, messages.get, answer)
        finally:
            listening.cancel()
            self._end(call)

    def _end(self, call: ReceivedCall) -> None:
        if call.ended_at is None:
            call.ended_at = time.monotonic()
            self.in_flight -= 1
