"""A plug-in that takes its worker down: a registered audit that kills the process it runs in."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.engine.plugins import audit

LOG = "FAULTS_POISON_LOG"
"""The variable that names the file to which each death is written."""


@audit("poison")
def poison(input: dict[str, Any]) -> bool:
    """Pass, unless the run's input asks for the death of its worker."""
    if input.get("is_poison"):
        with Path(os.environ[LOG]).open("a") as log:
            log.write(f"{datetime.now(UTC).isoformat()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return True
