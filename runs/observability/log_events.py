"""Events: log lines with a code for programs, and fields of their own; and what lines belong to.

Fields hold names, numbers and codes; never an input, an output, a prompt or what a provider said. The id of a request
is also on the answer, on error pages and in the audit log. A client may bring its own in ``X-Request-ID``, so that
one id goes through a proxy, ToolFlow and what called it.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from contextvars import ContextVar
from typing import NamedTuple

from django.http import HttpRequest

logger = logging.getLogger(__name__)

REMINDER_INTERVAL = 60.0
"""Seconds between lines about an outage that goes on."""

HEADER = "X-Request-ID"
META_KEY = "toolflow.request_id"
"""Where a request keeps its id."""
_VALID_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/=@-]{7,63}")

FieldValue = str | int | float | bool | None


class RunPlace(NamedTuple):
    """A run, and the attempt of it that is under way; zeros before the first."""

    run: int
    step: int = 0
    attempt: int = 0


run_place: ContextVar[RunPlace | None] = ContextVar("run_place", default=None)
"""Where in a run this task or thread, and those that it starts, are at work; None outside of a run."""

current_request: ContextVar[HttpRequest | None] = ContextVar("current_request", default=None)
"""The request that this thread or task answers, set by the site's middleware; None outside of one."""


def read_request_id() -> str | None:
    """The id of the request that is being answered; None outside of one."""
    request = current_request.get()
    return None if request is None else request.META.get(META_KEY)


def choose_request_id(offered: str | None) -> str:
    """The id that a client ``offered`` if it is 8 to 64 plain characters, else a new one."""
    if offered is not None and _VALID_ID.fullmatch(offered):
        return offered
    return uuid.uuid4().hex


def log_event(logger: logging.Logger, level: int, event: str, message: str, **fields: FieldValue) -> None:
    """Log ``message`` (whole, nothing is filled in) as the event of that code; fields without a value are left out."""
    if logger.isEnabledFor(level):
        # Not by way of ``log``, which finds the caller's file and line: the code says what happened. The fields are
        # in one attribute, so that none meets one of logging's own.
        record = logging.LogRecord(logger.name, level, "", 0, message, None, None)
        record.event, record.fields = event, fields
        logger.handle(record)


def note_run_end(status: str, reason: str, *, run: int | None = None) -> None:
    """Log the end of a run; ``run`` is its number where ``run_place`` doesn't say it."""
    log_event(logger, logging.INFO, "run.ended", f"The run ended: {status}.", run=run, status=status, reason=reason)


class Outage:
    """Logs when ``subject`` (“The database”) is away, again each minute, and when it is back."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._since: float | None = None
        self._logged_at = 0.0

    @property
    def goes_on(self) -> bool:
        return self._since is not None

    def note(self, error: Exception) -> None:
        """It did not answer: ``error`` says why."""
        now = time.monotonic()
        reason = " ".join(str(error).split()) or type(error).__name__
        if self._since is None:
            self._since = self._logged_at = now
            logger.warning("%s can't be reached; trying again until it answers. (%s)", self._subject, reason)
        elif now - self._logged_at >= REMINDER_INTERVAL:
            self._logged_at = now
            logger.warning("%s has been away for %d seconds. (%s)", self._subject, now - self._since, reason)

    def end(self) -> bool:
        """It answered. Gives whether it was away before."""
        if self._since is None:
            return False
        logger.warning("%s answers again, after %d seconds.", self._subject, time.monotonic() - self._since)
        self._since = None
        return True
