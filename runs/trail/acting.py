"""In whose name things are done that nobody asked for by a request: a command’s, a provider’s, or ToolFlow’s own."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TOOLFLOW = "ToolFlow"
"""Who does what policies and schedules say."""

PROVIDER = "Sign-in provider"
"""Who gives and takes groups at a sign-in through a provider."""

SERVING = frozenset({"run_worker", "serve", "up", "runserver"})
"""Commands that go on by themselves: whoever started them did none of it."""

_process = ""
_task: ContextVar[str] = ContextVar("trail_actor", default="")


def read_actor() -> str:
    """The name for the trail; empty where nothing is known."""
    return _task.get() or _process


def read_task_actor() -> str:
    """The name that what is being done has by itself, whatever process or request it is a part of; empty for none."""
    return _task.get()


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Do what is in this block in that name."""
    token = _task.set(name)
    try:
        yield
    finally:
        _task.reset(token)


def act_as_command(command: str, *, caller: str = "") -> None:
    """Let all that this process does be done by whoever started ``command``, or by ToolFlow if it serves.

    ``caller`` is who is behind ``sudo``; without one it is the user of the operating system.
    """
    global _process  # noqa: PLW0603  # it is what the process was started for
    _process = TOOLFLOW if command in SERVING else f"Command line: {caller or _find_system_user()}"


def _find_system_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # In a container it may have no name.
        return f"user {os.getuid()}"
