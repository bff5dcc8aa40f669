"""Processes of a host under test, as the kernel sees them: found by a mark in their environment, killed one by one."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self

MARK = "TOOLFLOW_FAULTS_HOST"
"""The variable that all processes of a host inherit, so that orphans are found as well."""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is not dead yet.

    ``name`` is what ``ps`` shows; ``started`` tells apart two that had the same id.
    """

    pid: int
    name: str
    parent: int
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
        state, parent, *rest = fields.split()
        return None if state in "ZX" else cls(pid, opening.partition("(")[2], int(parent), int(rest[17]))

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


def find_processes(mark: str) -> list[Process]:
    """All processes with that mark, the oldest first."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0") and (process := Process.read(int(entry.name))):
                found.append(process)
    return sorted(found, key=lambda process: (process.started, process.pid))
