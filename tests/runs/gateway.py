"""A gateway in front of a server, which a test can open and close to have the server come and go."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self
from urllib.parse import urlsplit


class Gateway:
    """Forwards connections on a loopback port of its own to the server of ``url`` while it is open.

    It is closed at first: connections are refused. Closing it breaks those that there are.
    """

    def __init__(self, url: str = "") -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 0)
        self._connections: list[socket.socket] = []
        self._reserve()

    def _reserve(self, port: int = 0) -> None:
        # Bound and not listening: no other process gets the port, and connections are refused.
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]

    def open(self) -> None:
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        # A listener that is only closed stays as long as a thread waits in it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self.__exit__()
        self._reserve(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        while self._connections:
            _break(self._connections.pop())

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
                self._connections += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_forward, args=(source, sink), daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65_536):
            sink.sendall(chunk)
    _break(sink)


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
