"""One host of an installation under test: ``manage.py run_worker``, or ``up``, and all the processes below it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.processes import start_python
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 30.0
"""Seconds that the processes of a host may take to be there, on a busy machine."""
STOP_TIMEOUT = 30.0
"""Seconds that a host may take to stop, with short calls under way."""

_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
FOREIGN = (*_UNSHARE, "sh", "-c", 'hostname "$0"; exec "$@"')
"""Before a command: run it as if on another machine, with its own process ids and the host name that follows."""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is not dead yet.

    ``name`` is what ``ps`` shows; ``session`` is the one that it was born into; ``started`` distinguishes two that had
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
        # The name is in parentheses and may hold anything.
        opening, _, fields = text.rpartition(")")
        state, parent, _, session, *rest = fields.split()
        if state in "ZX":
            return None
        return cls(pid, opening.partition("(")[2], int(parent), int(session), int(rest[15]))

    @property
    def is_alive(self) -> bool:
        now = Process.read(self.pid)
        # Its parent may be another one: orphans are adopted.
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


class Host:
    """The worker of one host.

    ``environment`` is all that it sees; ``list_drains`` gives the ids of all processes that say they are drains.
    """

    def __init__(
        self,
        name: str,
        *,
        environment: Mapping[str, str],
        folder: Path,
        list_drains: Callable[[], set[int]],
        is_foreign: bool = False,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._environment = environment
        self._list_drains = list_drains
        self.is_foreign = is_foreign
        self._prefix = (*FOREIGN, name) if is_foreign else ()
        self._main: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        """Start the worker, or another command; it may still be on its way up afterwards."""
        arguments = ("manage.py", *(command or ["run_worker"]))
        assert self._main is None or self._main.poll() is not None, f"{self.name} runs already."
        with self.log.open("ab") as log:
            self._main = start_python(
                *arguments, cwd=ROOT, environment=self._environment, output=log, prefix=self._prefix
            )

    @property
    def main(self) -> Process:
        """The process that was started."""
        process = Process.read(self._main.pid) if self._main is not None else None
        assert process is not None, f"{self.name} is not running:\n{self.read_log()}"
        return process

    @property
    def exit_status(self) -> int | None:
        """What the worker ended with; None while it runs."""
        return None if self._main is None else self._main.poll()

    @property
    def processes(self) -> list[Process]:
        """All processes of the host, those of an earlier start not among them."""
        if self._main is None:
            return []
        # The first of them leads a session. A worker's are all born into it; those of ``up`` lead others.
        found = {one.pid: one for one in (*find_processes(self._main.pid), *find_descendants(self._main.pid))}
        return list(found.values())

    def find(self, name: str) -> list[Process]:
        """The host's processes that ``ps`` shows under this name."""
        return [process for process in self.processes if process.name == name]

    def find_supervisor(self) -> list[Process]:
        """The process that starts all others and puts another in the place of one that dies."""
        return self.find("toolflow-superv")

    def find_dispatcher(self) -> list[Process]:
        """The process that fetches the queue's messages."""
        return self.find("toolflow-dispat")

    def find_drains(self) -> list[Process]:
        """The worker processes that execute runs."""
        pids = self._list_drains()
        return [process for process in self.find("toolflow-worker") if process.pid in pids]

    def find_idle_workers(self) -> list[Process]:
        """The worker processes that don't."""
        drains = self.find_drains()
        return [process for process in self.find("toolflow-worker") if process not in drains]

    def wait_for(self, role: Callable[[Host], list[Process]], what: str) -> list[Process]:
        """The processes of that role, once there are some: ``host.wait_for(Host.find_drains, "drain")``."""
        return wait_until(lambda: role(self), within=START_TIMEOUT, what=f"{self.name} has a {what}")

    def stop(self) -> int:
        """Tell the worker to stop, as a service manager does; gives its exit status."""
        self.main.send(signal.SIGTERM)
        return self.wait_for_end()

    def wait_for_end(self) -> int:
        """The exit status, once all processes of the host have ended."""
        assert self._main is not None
        wait_until(lambda: self.exit_status is not None, within=STOP_TIMEOUT, what=f"{self.name} stops")
        wait_until(lambda: not self.processes, within=STOP_TIMEOUT, what=f"nothing of {self.name} is left")
        return self._main.returncode

    def kill(self) -> None:
        """Kill all processes at once, and see that they are gone."""
        while processes := self.processes:
            for process in processes:
                process.send(signal.SIGSTOP)
            for process in processes:
                process.send(signal.SIGKILL)
            wait_until(
                lambda gone=processes: not any(one.is_alive for one in gone),  # type: ignore[misc]  # bound at once
                within=STOP_TIMEOUT,
                what="killed processes die",
            )
        if self._main is not None:
            self._main.wait(timeout=STOP_TIMEOUT)

    def read_log(self) -> str:
        """The end of what the host wrote to its terminal."""
        return self.log.read_text(errors="replace")[-8_000:] if self.log.exists() else ""


def can_be_foreign() -> bool:
    """Whether this machine lets us run processes as if on another one."""
    try:
        command = [*FOREIGN, "elsewhere", "true"]
        return os.name == "posix" and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
