"""The web server of a throwaway installation, and one reader who times its answers over HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure

START_TIMEOUT = 60
"""Seconds."""
ROUNDS = 60
"""Requests of each question."""
DEPTHS = 20
"""Places in the history at which lists are opened."""


def build_environment(data: Path, **variables: str) -> dict[str, str]:
    """The environment of an installation that keeps its data in a folder of its own."""
    return {
        "PATH": os.environ["PATH"],
        "TOOLFLOW_ENV_FILE": os.devnull,
        "TOOLFLOW_DATA_DIR": str(data),
        "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
        **variables,
    }


@contextmanager
def serving_pages(environment: dict[str, str], log: Path) -> Iterator[int]:
    """Serve an installation as ``manage.py serve`` does; gives the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "manage.py", "serve", "--port", str(port), "--processes", "1"]
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while not _is_listening(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise ContenderError(f"The web server did not start (see {log}).")
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()
            server.wait(timeout=30)


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of request: addresses that are read in turn, and how many milliseconds answers may take."""

    name: str
    addresses: tuple[str, ...]
    p50: float | None = None
    p95: float | None = None


class Reader:
    """One reader with one connection that is kept; ``headers`` authenticate it."""

    def __init__(self, port: int, headers: Mapping[str, str]) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = dict(headers)

    def measure(
        self, questions: Iterable[Question], database: str
    ) -> tuple[list[tuple[str, str, str, str]], list[Figure]]:
        """Ask all questions; gives a row of a table for each, and the figures that have targets."""
        rows, figures = [], []
        for question in questions:
            # Every address is read once before: caches are warm, as on a busy day.
            for address in question.addresses:
                self.get(address)
            times = sorted(self.get(question.addresses[number % len(question.addresses)]) for number in range(ROUNDS))
            p50, p95 = median(times), times[int(ROUNDS * 0.95)]
            target = " / ".join("–" if limit is None else f"{limit:.0f}" for limit in (question.p50, question.p95))
            rows.append((question.name, f"{p50:.1f}", f"{p95:.1f}", target))
            for name, value, limit in (("median", p50, question.p50), ("95th percentile", p95, question.p95)):
                if limit is not None:
                    figures.append(Figure(f"{database}, {question.name}, {name}", value, "ms", at_most=limit))
        return rows, figures

    def get(self, address: str) -> float:
        """Read an address; gives the milliseconds it took. Raises ``ContenderError``."""
        return self._send("GET", address, None, {}, 200)

    def post(self, address: str, body: bytes, headers: Mapping[str, str]) -> float:
        """Send JSON; gives the milliseconds until it was accepted. Raises ``ContenderError``."""
        return self._send("POST", address, body, {"Content-Type": "application/json", **headers}, 202)

    def _send(self, method: str, address: str, body: bytes | None, headers: Mapping[str, str], expected: int) -> float:
        began = time.perf_counter()
        self._connection.request(method, address, body, {**self._headers, **headers})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != expected:
            raise ContenderError(f"{address} answered with status {answer.status}: {text[:300].decode()}")
        return (time.perf_counter() - began) * 1000


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
