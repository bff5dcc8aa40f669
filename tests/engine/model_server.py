"""A pytest plug-in: the simulated model over TCP, for tests that need a real connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pytest
import uvicorn

from flows.engine.simulated_model import SimulatedModel
from flows.engine.simulated_model.server import build_server, open_socket


class ModelServer:
    """Serves a simulated model on a loopback port of its own, in a thread of this process.

    ``start`` and ``stop`` may alternate: the port stays the same, as it would for a provider that comes back.
    """

    def __init__(self, app: SimulatedModel | None = None) -> None:
        self.app: Any = app or SimulatedModel()
        """Requests go to whatever is here when they come in."""
        self.base_url = ""
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Take requests, unless it does already. Callers need not wait: they queue until the thread gets to them."""
        if self._server is not None:
            return
        listener, self.base_url = open_socket("127.0.0.1", self._port)
        self._port = listener.getsockname()[1]
        self._server = build_server(self._forward)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections and refuse new ones."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(timeout=30)
        assert not self._thread.is_alive(), "the model server did not stop"
        self._server = self._thread = None

    async def _forward(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@pytest.fixture(scope="session")
def _shared_model_server() -> Iterator[ModelServer]:
    """Starting and stopping takes longer than most tests."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def model_server(_shared_model_server: ModelServer) -> ModelServer:
    """A running server with a fresh simulated model; set its ``app`` to have another one answer."""
    _shared_model_server.app = SimulatedModel()
    _shared_model_server.start()
    return _shared_model_server
