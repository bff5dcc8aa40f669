"""Outages of what the worker can wait for: logged once, again from time to time, and when they are over."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)

REMINDER_INTERVAL = 60.0
"""Seconds between lines about an outage that goes on."""


class Outage:
    """Whether ``subject`` (“The database”) is away, and since when."""

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
