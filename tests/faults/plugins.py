"""Plug-ins that take their worker down: registered audits that kill the process they run in, or hang it."""

from __future__ import annotations

import os
import re
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.engine.plugins import audit

LOG = "FAULTS_POISON_LOG"
"""The variable that names the file to which each death and each hang is written."""


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
