"""Who owns a run: a name that says on which host, and in which process, its worker lives.

A process id alone would not do: after a reboot, in another container, or once the id is used again, it names another
process. So the name holds the boot, the PID namespace and the start of the process too. A process with the same boot
and namespace knows for sure whether the owner is alive.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker by name. ``str(owner)`` is what runs carry."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    """When the process started, in clock ticks after the boot; distinguishes processes that had the same id."""
    drain: str
    """Distinguishes the drains of one process."""

    def __str__(self) -> str:
        return f"{self.host}/{self.boot}/{self.namespace}/{self.pid}/{self.started}/{self.drain}"

    @classmethod
    def of_this_process(cls) -> Self:
        """A new owner that lives in this process."""
        boot, namespace = _read_machine()
        # A host name may be as long as 253 characters; the column holds 200 in all.
        host = socket.gethostname().replace("/", "-")[:80]
        return cls(host, boot, namespace, os.getpid(), _read_start(os.getpid()), uuid.uuid4().hex[:12])

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The owner that has this name, None if it isn't the name of one."""
        parts = name.split("/")
        if len(parts) != 6 or not parts[3].isdecimal():
            return None
        host, boot, namespace, pid, started, drain = parts
        return cls(host, boot, namespace, int(pid), started, drain)

    @property
    def is_gone(self) -> bool:
        """Whether its process lived on this machine and is certainly dead. False where that is unknown."""
        if not self.boot or not self.namespace or (self.boot, self.namespace) != _read_machine():
            return False
        return _read_start(self.pid) != self.started


@cache
def _read_machine() -> tuple[str, str]:
    """The id of this boot and of this PID namespace, both empty where the system has none."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:16]
        namespace = str((_PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return "", ""
    return boot, namespace


def _read_start(pid: int) -> str:
    """When a process started, in clock ticks after the boot; empty if there is none, or only a dead one's remains."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return ""
    # The name in parentheses may hold anything, also spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
