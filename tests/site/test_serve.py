"""What ``manage.py serve`` answers to bytes that no ordinary client sends."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from django.conf import settings

from runs.management.commands.serve import MAX_HEADER_BYTES
from tests.site.test_settings import make_environment
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [sys.executable, "manage.py", "serve", "--port", str(port)]
    environment = make_environment(tmp_path_factory.mktemp("data"), {})
    with subprocess.Popen(command, cwd=settings.BASE_DIR, env=environment) as server:
        try:
            wait_until(lambda: is_listening(port), within=60, what="the server answers")
            yield port
        finally:
            server.terminate()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def send(port: int, request: bytes) -> bytes:
    """All bytes of the answer. A server that closes the connection while it is sent to may leave none."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65_536):
                answer += part
    return answer


@pytest.mark.parametrize(
    ("header_bytes", "heads"),
    [(MAX_HEADER_BYTES - 1_000, {b"HTTP/1.1 200"}), *((size, {b"HTTP/1.1 400", b""}) for size in (400_000, 1_000_000))],
)
def test_too_many_headers_are_refused(port: int, header_bytes: int, heads: set[bytes]) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: "
    assert send(port, request + b"x" * header_bytes + b"\r\n\r\n")[:12] in heads


@pytest.mark.parametrize("address", [b"/healthz", b"/readyz"])
def test_a_probe_of_http_1_0_gets_an_answer_without_chunks(port: int, address: bytes) -> None:
    head, _, body = send(port, b"GET " + address + b" HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body.startswith(b'{"status"')
