"""How much is taken away at once, and how long others then have the database for themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import connection

from runs.models import Run

FIRST_BATCH, MOST = 20, 1_000
"""Attempts removed in one transaction: with how many to begin, since some may be large, and at most."""
LOOK = 1.0
"""Seconds between looks whether runs are under way."""


@dataclass(frozen=True, slots=True)
class Manners:
    """What a database takes without making whoever stores attempts wait."""

    time_box: float
    """Seconds that a transaction should take."""
    least: int
    """Attempts removed in one transaction, however long they took: where the machine is busy, fewer would only cost
    more each."""
    share: float
    """While runs are under way, seconds of rest for each second of work."""


# SQLite has one writer at a time, and who waits for it looks again after up to a tenth of a second. PostgreSQL locks
# rows of ended runs, which nobody writes; there it is only the disk and the processor that are shared.
MANNERS = {
    "sqlite": Manners(time_box=0.01, least=10, share=3.0),
    "postgresql": Manners(time_box=0.2, least=100, share=0.25),
}


@dataclass(slots=True)
class Pace:
    """Chooses the size of the next batch by how long the last one took, and rests while runs are under way."""

    rest: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    attempts: int = FIRST_BATCH
    """How many the next batch may have."""
    _manners: Manners = field(default_factory=lambda: MANNERS[connection.vendor])
    _looked_at: float | None = None
    _is_busy: bool = True

    def come_to_end(self, *, attempts: int, taken: float) -> None:
        """After a batch of so many attempts that took so many seconds: choose the next size, and rest."""
        if taken > self._manners.time_box:
            # Where attempts are large, even the first few may be too many.
            self.attempts = min(self.attempts, max(self._manners.least, self.attempts // 2))
        elif attempts >= self.attempts // 2 and taken < self._manners.time_box / 2:
            self.attempts = min(MOST, self.attempts * 2)
        if self._has_company():
            self.rest(taken * self._manners.share)

    def _has_company(self) -> bool:
        now = self.clock()
        if self._looked_at is None or now - self._looked_at >= LOOK:
            self._looked_at, self._is_busy = now, Run.objects.running().exists()
        return self._is_busy
