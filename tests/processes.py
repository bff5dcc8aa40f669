"""Python processes that tests start, with an environment of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]


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
    prefix: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start Python with these arguments (``manage.py …`` or ``-m MODULE …``), at the head of a session of its own.

    ``environment`` is all that it sees; errors go to ``output`` where they have no place of their own. ``prefix`` is a
    command that starts another one.
    """
    return subprocess.Popen(
        [*prefix, sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        stdin=input or subprocess.DEVNULL,
        stdout=output,
        stderr=errors or subprocess.STDOUT,
        start_new_session=True,
    )


def run_python(
    *arguments: str, cwd: Path, environment: Mapping[str, str], timeout: float, input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end. Raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        timeout=timeout,
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )
