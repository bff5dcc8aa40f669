"""The ids of a run's spans. They follow from the run, so that all workers that ever had it tell of one trace."""

from __future__ import annotations

import threading
from hashlib import sha256

from opentelemetry.sdk.trace.id_generator import IdGenerator


def make_trace_id(run_id: str) -> int:
    """The id of the trace of a run, given by what names it to the outside (``runs.stored_history.make_run_id``)."""
    return int.from_bytes(sha256(run_id.encode()).digest()[:16], "big") or 1


def make_span_id(run_id: str, *place: int) -> int:
    """The id of the span of a run, of a step of it by its number, or of an attempt by step and number."""
    name = "/".join((run_id, *map(str, place)))
    return int.from_bytes(sha256(name.encode()).digest()[16:24], "big") or 1


class GivenIds(IdGenerator):
    """Hands out the ids that were given last, in this thread."""

    def __init__(self) -> None:
        self._given = threading.local()

    def give(self, trace_id: int, span_id: int) -> None:
        """These are for the next span that this thread starts."""
        self._given.trace_id, self._given.span_id = trace_id, span_id

    def generate_trace_id(self) -> int:
        """The trace's id."""
        trace_id: int = self._given.trace_id
        return trace_id

    def generate_span_id(self) -> int:
        """The span's id."""
        span_id: int = self._given.span_id
        return span_id
