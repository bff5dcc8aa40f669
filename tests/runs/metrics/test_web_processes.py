"""What Prometheus reads of a web server with several processes: the same, whichever of them answers."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from django.conf import settings

from tests.site.test_settings import make_environment
from tests.waiting import wait_until

TOKEN = "a-token-of-this-test"
COUNT = "toolflow_http_requests_total"
SCRAPES = 12


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Callable[..., None]]:
    """Starts a server as operators do, with two processes, and stops it in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **variables: str) -> None:
        environment = make_environment(tmp_path, {"TOOLFLOW_METRICS_TOKEN": TOKEN, **variables})
        started.append(subprocess.Popen([sys.executable, *command], cwd=settings.BASE_DIR, env=environment))
        wait_until(lambda: answers(port), within=60, what="the server answers")

    yield start
    for server in started:
        server.terminate()
        server.wait(30)


def ask(port: int, path: str) -> str:
    """An answer over a connection of its own, which any of the processes may take."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def answers(port: int) -> bool:
    try:
        return bool(ask(port, "/healthz"))
    except OSError:
        return False


def count(text: str, route: str) -> int:
    """The requests that are reported with that pattern."""
    lines = [line for line in text.splitlines() if line.startswith(f"{COUNT}{{") and f'route="{route}"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


@pytest.mark.nightly
def test_all_processes_count_together_and_a_new_server_starts_from_zero(
    start: Callable[..., None], port: int, tmp_path: Path
) -> None:
    folder = tmp_path / "web-metrics" / str(port)
    folder.mkdir(parents=True)
    (folder / "counter_1.db").write_bytes(b"what an earlier server left" * 100)
    start("manage.py", "serve", "--port", str(port), "--processes", "2")
    for _ in range(SCRAPES):
        ask(port, "/no/such/page")
    found = [ask(port, "/metrics") for _ in range(SCRAPES)]
    assert {count(text, "(none)") for text in found} == {SCRAPES}
    scrapes = [count(text, "/metrics") for text in found]
    assert scrapes == sorted(scrapes) and scrapes[-1] == SCRAPES - 1
    assert 'toolflow_http_request_seconds_bucket{le="+Inf",route="(none)"} 12.0' in found[-1]
    assert not (folder / "counter_1.db").exists() and any(folder.glob("counter_*.db"))
