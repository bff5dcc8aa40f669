"""Processes of a host under test, as the kernel sees them: found by the session they are in, killed one by one."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is not dead yet.

    ``name`` is what ``ps`` shows; ``session`` is the one that it was born into; ``started`` tells apart two that had
    the same id.
    """

    pid: int
    name: str
    parent: int
    session: int
    started: int

    @classmethod
    def read(cls, pid: int) -> Self | None:
        """The process with this id; None if there is none, or only a dead one's remains."""
        try:
            text = (_PROC / str(pid) / "stat").read_text()
        except OSError:
            return None
        # The name stands in parentheses and may hold anything.
        opening, _, fields = text.rpartition(")")
        state, parent, _, session, *rest = fields.split()
        if state in "ZX":
            return None
        return cls(pid, opening.partition("(")[2], int(parent), int(session), int(rest[15]))

    @property
    def is_alive(self) -> bool:
        now = Process.read(self.pid)
        # Its parent may be another one by now: orphans are adopted.
        return now is not None and now.started == self.started

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it is dead already."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def find_processes(session: int) -> list[Process]:
    """All processes of that session, the oldest first: orphans stay in it."""
    return [process for process in _read_all() if process.session == session]


def find_descendants(pid: int) -> list[Process]:
    """All processes below ``pid``, whichever session they are in, the oldest first."""
    below = {pid}
    found = []
    for process in _read_all():
        if process.parent in below:
            below.add(process.pid)
            found.append(process)
    return found


def _read_all() -> list[Process]:
    every = (Process.read(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return sorted(filter(None, every), key=lambda process: (process.started, process.pid))
