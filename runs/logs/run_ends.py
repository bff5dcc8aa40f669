"""The line that tells of the end of a run, whoever ended it."""

from __future__ import annotations

import logging

from runs.logs.events import log_event

logger = logging.getLogger(__name__)


def note_run_end(status: str, reason: str, *, run: int | None = None) -> None:
    """A run has ended: ``run`` is its number where this task is not at work on it (see ``run_place``)."""
    log_event(logger, logging.INFO, "run.ended", f"The run ended: {status}.", run=run, status=status, reason=reason)
