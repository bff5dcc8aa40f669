"""The simulated model over TCP."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from flows.engine.simulated_model.app import RESET_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

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

        async def offer_reset(
            scope: MutableMapping[str, Any],
            receive: Callable[[], Awaitable[Any]],
            send: Callable[[Any], Awaitable[None]],
        ) -> None:
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
        # Nothing of the process that it serves in is its own to change.
        log_config=None,
        log_level="error",
        access_log=False,
        backlog=2_048,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def open_socket(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket and the base URL for clients. Port 0 takes any free port. Raises ``OSError``."""
    listener = socket.create_server((host, port), backlog=2_048)
    # Accepted connections inherit it. Without it each answer waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown = f"[{host}]" if ":" in host else host
    return listener, f"http://{shown}:{listener.getsockname()[1]}/v1"
