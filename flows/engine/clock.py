"""The clock that the execution shell is given, so that tests decide what time it is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Gives the time and waits."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""

    async def sleep_until(self, moment: datetime) -> None:
        """Return once ``moment`` has come; at once if it has passed."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep_until(self, moment: datetime) -> None:
        await asyncio.sleep(max(0.0, (moment - self.now()).total_seconds()))


def describe_seconds(count: float) -> str:
    """A time in words: ``1 second``, ``90 seconds``, ``30 minutes``, ``2 hours``, ``0.25 seconds``."""
    unit, size = "second", 1
    if count and count % 60 == 0:
        unit, size = ("hour", 3_600) if count % 3_600 == 0 else ("minute", 60)
    count /= size
    number = f"{int(count):,}" if count == int(count) else f"{count:.3g}"
    return f"{number} {unit if count == 1 else f'{unit}s'}"
