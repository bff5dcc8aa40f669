"""What processes have used so far, read from the kernel (Linux)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_OWN_TIME = slice(11, 13)
_TIME_WITH_DEAD_CHILDREN = slice(11, 15)
"""Fields of /proc/PID/stat, counted behind the name."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds of CPU by process, at one moment."""

    own: Mapping[int, float]
    total: float
    """Of all of them, with the children that have ended."""


def read_cpu_times(pids: Iterable[int]) -> CpuTimes:
    """What these processes have used since they began; those that have ended are left out."""
    own, total = {}, 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = _read_stat(pid)
            own[pid] = sum(map(int, fields[_OWN_TIME])) * _TICK
            total += sum(map(int, fields[_TIME_WITH_DEAD_CHILDREN])) * _TICK
    return CpuTimes(own, total)


def find_busiest(before: CpuTimes, after: CpuTimes) -> tuple[int, float]:
    """The process that used most in between, and how many seconds."""
    used = {pid: seconds - before.own.get(pid, 0.0) for pid, seconds in after.own.items()}
    pid = max(used, key=lambda pid: used[pid])
    return pid, used[pid]


def find_process_tree(root: int) -> list[int]:
    """``root`` and all processes that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_read_stat(int(entry.name))[1]), []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, ()))
    return tree


def forget_peak_memory(pid: int) -> None:
    """Have the peak of a process count from now on."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def read_peak_memory(pid: int) -> int:
    """The most memory that a process held, in bytes: with the pages that it shares with others, so rather too much."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _read_stat(pid: int) -> list[str]:
    # The name is in parentheses and may hold spaces.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
