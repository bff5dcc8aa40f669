"""The clock by which a gate waits."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from flows.engine.clock import SystemClock


class SteadyClock(SystemClock):
    """Goes on evenly whoever sets the clock of this machine. Its times mean nothing to other processes."""

    def now(self) -> datetime:
        """The time since some moment in the past, as a date."""
        return datetime.fromtimestamp(time.monotonic(), UTC)
