"""Processes that do the same work in different ways; each reads lines with tasks and answers with what they took."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / "peers"


class ContenderError(Exception):
    """A contender gave no answer. The message says which, and where its words are."""


class Contender:
    """A process that takes commands as JSON, one a line, and answers each with one line of JSON."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        """``log`` takes what the process writes besides its answers."""
        self.name = name
        self._log = log
        self._stderr = log.open("ab")
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=dict(environment)
        )
        self.about: dict[str, Any] = self._read()
        """What the process said of itself when it was ready."""

    def ask(self, **command: Any) -> dict[str, Any]:
        """The answer to ``command``. Raises ``ContenderError`` if the process failed."""
        if self._process.stdin is None:
            raise ContenderError(f"{self.name} takes no commands.")
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        return self._read()

    def stop(self) -> None:
        """End the process in order: it has no more commands to expect."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            words = self._log.read_text(errors="replace").strip().splitlines()
            raise ContenderError(f"{self.name} failed: {words[-1] if words else 'it said nothing'} (see {self._log})")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def start_peer(name: str, *, python: Path, base_url: str, work: Path, folder: Path) -> Contender:
    """Start ``peers/NAME.py`` under the interpreter ``python``."""
    command = [str(python), str(PEERS / f"{name}.py"), base_url, str(work), str(folder)]
    return Contender(
        name, command, log=folder / f"{name}.log", environment={"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    )


def start_bare(*, base_url: str, work: Path, folder: Path) -> Contender:
    """Start the bare calls, with the ``openai`` client that ToolFlow uses."""
    return start_peer("bare", python=Path(sys.executable), base_url=base_url, work=work, folder=folder)
