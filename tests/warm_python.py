"""Processes of ToolFlow that need not begin from nothing: forked from a Python that has imported what takes longest.

A process under test reads its environment itself, and so its settings, as any other does: before the fork nothing is
imported that asks for a setting. Where a fresh Python is the point, a test starts one by itself.

``python -m tests.warm_python CHANNEL MODULE…`` is the Python that is forked.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]

SERVER_MODULES = (
    "aiohttp",
    "django.contrib.admin",
    "django.contrib.messages.middleware",
    "django.contrib.postgres.fields",
    "django.contrib.sessions.middleware",
    "django.contrib.staticfiles.storage",
    "django.core.management",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.executor",
    "django.test.client",
    "flows.engine.openai_client",
    "flows.engine.running",
    "flows.engine.simulated_model",
    "flows.examples.plugins",
    "flows.flow_file",
    "jinja2",
    "markdown",
    "openai",
    "prometheus_client",
    "pygments.styles.default",
    "redis",
    "requests",
)
"""What ToolFlow's commands spend most of their start on."""

LONGEST_ORDER = 128_000
"""Bytes that the arguments and the environment of a process may have."""
WORD = struct.Struct("i")


class WarmProcess:
    """A process that was forked: what ``subprocess.Popen`` would give, as far as tests ask for it."""

    def __init__(self, arguments: Sequence[str], report: int) -> None:
        """``report`` can be read: first the process's id comes, and at its end the status."""
        self.arguments = arguments
        self.returncode: int | None = None
        self._report = report
        self.pid = self._read_word()

    def poll(self) -> int | None:
        """The exit status; negative for the signal that ended it, None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once there is one. Raises ``subprocess.TimeoutExpired``."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(list(self.arguments), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._report, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1000):
                self.returncode = os.waitstatus_to_exitcode(self._read_word())
                os.close(self._report)
        return self.returncode

    def _read_word(self) -> int:
        word = os.read(self._report, WORD.size)
        if not word:
            raise RuntimeError("The Python that processes are forked from is gone.")
        return int(WORD.unpack(word)[0])


Process = WarmProcess | subprocess.Popen[bytes]


class WarmPython:
    """A Python that has imported these modules, and is forked for every process that is started."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_python", str(other.fileno()), *modules],
                cwd=ROOT,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                # Ctrl-C is for the tests, which end it.
                start_new_session=True,
            )

    def start(
        self, arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], streams: Sequence[int]
    ) -> WarmProcess:
        """Start a process; ``start_python`` explains the parameters."""
        order = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
        report, others_end = os.pipe()
        try:
            socket.send_fds(self._channel, [json.dumps(order).encode()], [*streams, others_end])
        finally:
            os.close(others_end)
        return WarmProcess(arguments, report)

    def close(self) -> None:
        """End it; what was forked from it goes on."""
        self._channel.close()
        self._process.wait()


@functools.cache
def share_warm_python(modules: tuple[str, ...]) -> WarmPython:
    """The one that all tests of this process use."""
    python = WarmPython(modules)
    atexit.register(python.close)
    return python


def clean_environment() -> dict[str, str]:
    """The environment without what ToolFlow and Django would read from it."""
    ours = ("TOOLFLOW_", "OPENAI_", "DATABASE_URL", "DJANGO_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def start_python(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str],
    output: IO[bytes],
    errors: IO[bytes] | None = None,
    input: IO[bytes] | None = None,
    modules: tuple[str, ...] = SERVER_MODULES,
) -> Process:
    """Start Python with these arguments (``manage.py …`` or ``-m MODULE …``), at the head of a session of its own.

    ``environment`` is all that it sees; ``modules`` are imported already. Errors go to ``output`` as well if there is
    no other place for them.
    """
    with Path(os.devnull).open("rb") as nothing:
        streams = [(file or other).fileno() for file, other in ((input, nothing), (output, output), (errors, output))]
        if hasattr(os, "pidfd_open"):
            return share_warm_python(modules).start(arguments, cwd=cwd, environment=environment, streams=streams)
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


def run_python(
    *arguments: str, cwd: Path, environment: Mapping[str, str], timeout: float, input: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end: ``start_python`` says with what."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(input.encode())
        stdin.seek(0)
        process = start_python(
            *arguments, cwd=cwd, environment=environment, input=stdin, output=stdout, errors=stderr, **options
        )
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(list(arguments), status, stdout.read().decode(), stderr.read().decode())


# ---------------------------------------------------------------------------------------------------------------
# The Python that is forked


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for every order that comes. Returns in each fork with its order, and at the end with None."""
    forks: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd != channel.fileno():
                poll.unregister(fd)
                os.close(fd)
                report_end(*forks.pop(fd))
                continue
            message, streams, _, _ = socket.recv_fds(channel, LONGEST_ORDER, 4)
            if not message:
                return None
            report = streams.pop()
            pid = os.fork()
            if pid == 0:
                for known in (channel.detach(), report, *forks, *(pipe for _, pipe in forks.values())):
                    os.close(known)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                order: dict[str, Any] = json.loads(message)
                return order
            for stream in streams:
                os.close(stream)
            os.write(report, WORD.pack(pid))
            found = os.pidfd_open(pid)
            poll.register(found, select.POLLIN)
            forks[found] = pid, report


def report_end(pid: int, report: int) -> None:
    """Tell the status of a process that has ended to whoever started it."""
    _, status = os.waitpid(pid, 0)
    # A test that went wrong may have forgotten it.
    with suppress(BrokenPipeError):
        os.write(report, WORD.pack(status))
    os.close(report)


def become(order: Mapping[str, Any]) -> None:
    """Do what was ordered, as if this process had been started for it."""
    os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    first, *others = order["arguments"]
    if first == "-m":
        module, *sys.argv[1:] = others
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *others]
        runpy.run_path(first, run_name="__main__")


def main() -> dict[str, Any] | None:
    """Import what is asked for and serve."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    # Forks share the memory as long as nobody writes to it.
    gc.collect()
    gc.freeze()
    return serve(channel)


if __name__ == "__main__" and (its_order := main()):
    become(its_order)
