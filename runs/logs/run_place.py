"""Where in a run this task or thread is at work, for whatever it logs meanwhile."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class RunPlace(NamedTuple):
    """A run, and the attempt of it that is under way; zeros before the first."""

    run: int
    step: int = 0
    attempt: int = 0


_place: ContextVar[RunPlace | None] = ContextVar("run_place", default=None)


def read_run_place() -> RunPlace | None:
    """Where this task or thread is; None outside of a run."""
    return _place.get()


def set_run_place(place: RunPlace | None) -> None:
    """Say where this task is from now on; tasks and threads that it starts know it too."""
    _place.set(place)
