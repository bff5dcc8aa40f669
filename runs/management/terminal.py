"""What commands share: progress, tables, lines for the operator, and what to do where a disk is full or read-only."""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL = 2.0
"""Seconds between two lines on progress."""

_FULL = ("database or disk is full", "disk I/O error", errno.ENOSPC, errno.EDQUOT)
"""What SQLite says, and the error numbers of the system."""
_READ_ONLY = ("unable to open database file", "attempt to write a readonly database", errno.EROFS, errno.EACCES)


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


def find_remedy(error: BaseException | None) -> str:
    """What the operator has to do about an error, in one sentence; empty where it is none of storage."""
    if isinstance(error, OSError):
        what: object = error.errno
        folder = Path(error.filename).parent if error.filename else settings.TOOLFLOW_DATA_DIR
    else:
        what = str(error)
        folder = Path(settings.DATABASES["default"]["NAME"]).parent
    if what in _FULL:
        return f"Check the free space of the disk that holds {folder}."
    if what in _READ_ONLY:
        return f"The folder {folder} must exist, and this user must be able to write to it and to the files in it."
    return ""
