"""Plug-ins that take their worker down, hang it, or are at work when it is taken down."""

from __future__ import annotations

import os
import re
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.engine.plugins import audit, function

LOG = "FAULTS_POISON_LOG"
"""The variable that names the file to which each death and each hang is written."""
STALLS = "FAULTS_STALLS"
"""The variable that names the folder in which each plug-in that never returned has left a file."""


@audit("poison")
def poison(input: dict[str, Any]) -> bool:
    """Pass, unless the run's input asks for the death of its worker."""
    if input.get("is_poison"):
        _log_now()
        os.kill(os.getpid(), signal.SIGKILL)
    return True


@audit("hang")
def hang(input: dict[str, Any]) -> bool:
    """Pass, but the first time hold the interpreter lock for ever: no thread of the process goes on."""
    if not Path(os.environ[LOG]).exists():
        _log_now()
        re.fullmatch("(a+)+b", "a" * 99)
    return True


def _log_now() -> None:
    with Path(os.environ[LOG]).open("a") as log:
        log.write(f"{datetime.now(UTC).isoformat()}\n")


def _stall_once(name: str) -> None:
    """Never return the first time: the worker has to be killed. The second call returns at once."""
    mark = Path(os.environ[STALLS]) / name
    if not mark.exists():
        mark.touch()
        threading.Event().wait()


@function("stall_output_sanitizer")
def stall_output_sanitizer(value: dict[str, Any]) -> dict[str, Any]:
    """Give the output as it is."""
    _stall_once("output_sanitizer")
    return value


@audit("stall_audit")
def stall_audit() -> bool:
    """Pass."""
    _stall_once("audit")
    return True


@function("stall_input_expression")
def stall_input_expression(previous: dict[str, Any]) -> dict[str, Any]:
    """Give the output of the step before."""
    _stall_once("input_expression")
    return previous


@function("stall_input_sanitizer")
def stall_input_sanitizer(value: dict[str, Any]) -> dict[str, Any]:
    """Give the input as it is."""
    _stall_once("input_sanitizer")
    return value
