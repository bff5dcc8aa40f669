"""What commands share: progress, tables, and lines for the operator."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence

from django.conf import settings
from django.core.management.base import BaseCommand

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL = 2.0
"""Seconds between two lines on progress."""


class Progress:
    """Writes a line on progress, at most one every ``PROGRESS_INTERVAL``."""

    def __init__(self, command: BaseCommand) -> None:
        self._command = command
        self._written_at = time.monotonic()

    def __call__(self, line: str) -> None:
        if time.monotonic() - self._written_at >= PROGRESS_INTERVAL:
            self._written_at = time.monotonic()
            self._command.stdout.write(line)


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows with their columns aligned; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def announce(command: BaseCommand, line: str) -> None:
    """Write a line of a server or a worker at once: to the log where that is JSON, else to standard output."""
    if settings.TOOLFLOW_LOG_FORMAT == "json":
        # Standard output is collected with the log, and is to hold one format.
        logger.info("%s", line)
        return
    # A terminal that was closed must not keep a worker from an orderly stop.
    with contextlib.suppress(OSError):
        command.stdout.write(line)
        command.stdout.flush()
