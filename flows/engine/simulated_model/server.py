"""The simulated model over TCP, and the command that serves it."""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from flows.engine.simulated_model.app import RESET_EXTENSION, SimulatedModel

_BACKLOG = 2_048
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _ResettableProtocol(H11Protocol):
    """HTTP that lets the application break the connection, as a failing network would."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        app: Any = self.app

        def reset() -> None:
            # Closed with no time to linger, a socket sends RST instead of FIN.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()

        async def offer_reset(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            scope.setdefault("extensions", {})[RESET_EXTENSION] = reset
            await app(scope, receive, send)

        self.app = offer_reset


def build_server(app: Callable[..., Awaitable[None]]) -> uvicorn.Server:
    """A server of the ASGI application ``app``, to be run on a socket: ``server.run(sockets=[socket])``."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        proxy_headers=False,
        http=_ResettableProtocol,
        ws="none",
        lifespan="off",
        # Logging belongs to the process that it serves in.
        log_config=None,
        log_level="error",
        access_log=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def open_socket(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket and the base URL for clients. Port 0 takes any free port. Raises ``OSError``."""
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    # Accepted connections inherit it. Without it each answer waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener, f"http://{host}:{listener.getsockname()[1]}/v1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted. Wrong arguments end the program with one sentence and status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.engine.simulated_model",
        description="Serve an OpenAI-compatible model that invents its answers.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes any free port")
    parser.add_argument("--latency", default="0", metavar="SECONDS", help="0.5, or 0.2-0.8 for a spread")
    options = parser.parse_args(arguments)
    try:
        latencies = [float(seconds) for seconds in options.latency.split("-")]
        app = SimulatedModel(latency=(latencies[0], latencies[-1]), keep_calls=0)
        listener, address = open_socket("127.0.0.1", options.port)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"Simulated model at {address}", flush=True)  # noqa: T201  # a program's own terminal
    build_server(app).run(sockets=[listener])
