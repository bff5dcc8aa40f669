"""One reader over HTTP who asks question after question, and how long the answers take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from statistics import median

from benchmarks.contender import ContenderError
from benchmarks.figures import Figure

ROUNDS = 60
"""Requests of each question."""
DEPTHS = 20
"""Places in the history that lists are opened at."""


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of request: addresses that are asked for in turn, and how long answers may take, in milliseconds."""

    name: str
    addresses: tuple[str, ...]
    p50: float | None = None
    p95: float | None = None

    def describe_target(self) -> str:
        """How long answers may take, for a cell of a table."""
        return " / ".join("–" if limit is None else f"{limit:.0f}" for limit in (self.p50, self.p95))


class Asker:
    """One reader with one connection that is kept; ``headers`` say who it is."""

    def __init__(self, port: int, headers: Mapping[str, str]) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = dict(headers)

    def time(self, question: Question) -> list[float]:
        """Milliseconds of each request. Every address is asked once before: caches are warm, as on a busy day."""
        addresses = question.addresses
        # What has no target is slow: a few requests tell enough.
        rounds = ROUNDS if question.p95 is not None else ROUNDS // 6
        for address in addresses if question.p95 is not None else addresses[:3]:
            self.get(address)
        return [self.get(addresses[number % len(addresses)]) for number in range(rounds)]

    def get(self, address: str) -> float:
        """Read an address; gives the milliseconds it took. Raises ``ContenderError``."""
        return self._send("GET", address, None, {}, 200)

    def post(self, address: str, body: bytes, headers: Mapping[str, str]) -> float:
        """Have something made of JSON; gives the milliseconds it took. Raises ``ContenderError``."""
        return self._send("POST", address, body, {"Content-Type": "application/json", **headers}, 202)

    def _send(self, method: str, address: str, body: bytes | None, headers: Mapping[str, str], expected: int) -> float:
        began = time.perf_counter()
        self._connection.request(method, address, body, {**self._headers, **headers})
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status != expected:
            raise ContenderError(f"{address} answered with status {answer.status}: {said[:300].decode()}")
        return (time.perf_counter() - began) * 1000


def ask_all(
    asker: Asker, questions: Iterable[Question], database: str
) -> tuple[list[tuple[str, str, str, str]], list[Figure]]:
    """Ask all questions; gives a row of the table for each, and the figures that have targets."""
    rows, figures = [], []
    for question in questions:
        times = asker.time(question)
        p50, p95 = median(times), sorted(times)[int(len(times) * 0.95)]
        rows.append((question.name, f"{p50:.1f}", f"{p95:.1f}", question.describe_target()))
        name = f"{database}, {question.name}"
        if question.p50 is not None:
            figures.append(Figure(f"{name}, median", p50, "ms", at_most=question.p50))
        if question.p95 is not None:
            figures.append(Figure(f"{name}, 95th percentile", p95, "ms", at_most=question.p95))
    return rows, figures
