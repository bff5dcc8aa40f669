"""The command ``toolflow`` as automators run it: a process of its own, against a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from django.apps import apps

from runs.access_groups import create_groups
from tests.api.asking import make_token, make_user
from tests.api.event_reading import serve
from tests.client.stand_in import Asked, Reply, StandIn
from tests.warm_python import CLIENT_MODULES, run_python

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Where somebody types commands; ``environment`` is what they have set."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        # Neither the developer's settings nor the width of a terminal that others write to.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLOW_", "COLUMNS"))}
        self.environment = {**inherited, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **environment}
        self.asked: list[Asked] = []
        self._begun: list[subprocess.Popen[str]] = []

    def begin(self, *arguments: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        """Begin a command that waits for something, or is to find everything as a fresh Python does."""
        process = subprocess.Popen(
            [sys.executable, "-m", "runs.client", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._begun.append(process)
        return process

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """Run a command to its end."""
        done = run_python(
            *("-m", "runs.client", *arguments),
            cwd=self.folder,
            environment=self.environment,
            input=stdin,
            timeout=PATIENCE,
            modules=CLIENT_MODULES,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def end(self, process: subprocess.Popen[str]) -> Done:
        """What a command leaves behind that has begun."""
        out, err = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err
        return Done(process.returncode, out or "", err)

    def close(self) -> None:
        """End what is left of commands, where a test went wrong."""
        for process in self._begun:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Makes servers that give these replies one after the other, each with the terminal of somebody who knows it.

    ``asked`` of the terminal is what the server was asked.
    """
    begun: list[tuple[StandIn, Terminal]] = []

    def make(*replies: Reply, **environment: str) -> Terminal:
        server = StandIn(replies)
        known = {"TOOLFLOW_URL": server.url, "TOOLFLOW_TOKEN": "tf_0123", **environment}
        terminal = Terminal(tmp_path, **known)
        terminal.asked = server.asked
        begun.append((server, terminal))
        return terminal

    yield make
    for server, terminal in begun:
        terminal.close()
        server.close()


@pytest.fixture
def server(transactional_db: None) -> Iterator[str]:
    """The address of the site, served as in production."""
    create_groups(apps=apps, using="default")
    with serve() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def make_terminal(server: str, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Makes the terminal of somebody in a group."""
    terminals = []

    def make(group: str, **environment: str) -> Terminal:
        token = make_token(make_user(group.lower(), group))
        terminals.append(Terminal(tmp_path, TOOLFLOW_URL=server, TOOLFLOW_TOKEN=token, **environment))
        return terminals[-1]

    yield make
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def terminal(make_terminal: Callable[..., Terminal]) -> Terminal:
    """The terminal of an editor."""
    return make_terminal("Editor")
