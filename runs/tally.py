"""What is made of a run once it has ended: statistics, search, what it can be found by, and whom it is told to.

It is made batch by batch, beside the work itself. A run is tallied in the transaction that marks it, so that it counts
once, however it ended and whoever comes to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, transaction

from runs.locks import STATISTICS, hold
from runs.models import OriginalInput, Run
from runs.models.run import RunQuerySet
from runs.search import index_runs
from runs.statistics import count_runs
from runs.webhooks.making import make_deliveries
from runs.webhooks.messages import DueWatch

logger = logging.getLogger(__name__)

FIRST_BATCH, BATCH = 10, 100
"""Runs tallied in one transaction: with how many a worker begins, since some may be large, and at most."""
TIME_BOX = 0.05
"""Seconds that a transaction may take: whoever has something to store waits for so long. Batches are made to fit."""
PATIENCE = 1.0
"""Seconds between looks for runs that have ended, while there are none."""
SHARE = 3
"""While runs are under way, tallying rests for so many times as long as it worked."""
FIRST_REST, LONGEST_REST = 0.1, 60.0
"""Seconds until the next try after some that failed: twice as long each time, up to the latter."""
OUTAGE_FAILURES = 6
"""Failures in a row that are logged as an outage. Fewer isolate a run that fails."""
OUTAGE_ERRORS = (OperationalError, InterfaceError, InternalError)
"""Errors of a database that is away, full or read-only. A statement of a single run may raise them too."""


Teller = Callable[[list[int]], None]
"""Hears of runs that were tallied. It raises nothing."""


def tally_ended_runs(*, limit: int = BATCH, without: Collection[int] = (), tell: Teller | None = None) -> int:
    """Tally up to ``limit`` runs that have ended, the oldest first; gives their number.

    ``tell`` is called with them once that is stored.

    Gives 0 also while somebody else is at it, or statistics are rebuilt. ``without`` are runs that are left alone.
    """
    waiting = _find_waiting(without)
    # Asked often and mostly in vain: a look that takes no lock comes first.
    if not waiting.exists():
        return 0
    with transaction.atomic():
        if not hold(STATISTICS):
            return 0
        # Nobody else tallies now, and ended runs don't change: a lock keeps them from being deleted meanwhile.
        run_ids = list(waiting.select_for_update(skip_locked=True).values_list("pk", flat=True)[:limit])
        if run_ids:
            count_runs(run_ids)
            index_runs(run_ids)
            make_deliveries(run_ids)
            OriginalInput.objects.filter(pk__in=run_ids).delete()
            Run.objects.filter(pk__in=run_ids).update(is_tallied=True)
    if tell is not None and run_ids:
        tell(run_ids)
    return len(run_ids)


def _find_waiting(without: Collection[int]) -> RunQuerySet:
    return Run.objects.untallied().exclude(pk__in=without).order_by("pk")


class Tally:
    """The tallying of one worker, a batch at a time beside its other work."""

    def __init__(self, *, tell: Teller | None = None) -> None:
        self._tell = tell
        self._size = FIRST_BATCH
        self._left_out: list[int] = []
        """Runs that can't be tallied; the next worker tries them again."""
        self._suspects: set[int] = set()
        """Runs that raised an outage error alone. One that does so again right after another succeeded is left out."""
        self._failures = 0
        """Tries in a row that failed."""
        self._webhooks = DueWatch()

    def advance(self, *, is_busy: bool) -> float:
        """Tally the next batch; gives the seconds until the next one is due. Raises nothing.

        ``is_busy`` says whether the worker has runs under way, which come first.
        """
        begin = time.monotonic()
        try:
            count = tally_ended_runs(limit=self._size, without=self._list_skipped(), tell=self._tell)
            self._webhooks.look()
        except Exception as error:  # whatever it is, runs go on  # noqa: BLE001
            return self._note_failure(error)
        taken = time.monotonic() - begin
        self._note_success(count)
        if count < self._size:
            rest = PATIENCE
        else:
            rest = taken * SHARE if is_busy else 0.0
        self._fit(count, taken)
        return rest

    def _list_skipped(self) -> list[int]:
        # While tries fail, another run shows whether the suspects or the database are the cause.
        return [*self._left_out, *self._suspects] if self._failures else self._left_out

    def _note_success(self, count: int) -> None:
        if self._suspects and not count:
            # No other run waits. The suspects are tried again.
            self._suspects.clear()
            return
        if not self._failures:
            self._suspects.clear()
        if self._failures >= OUTAGE_FAILURES:
            logger.warning("Runs that have ended can be counted again.")
        self._failures = 0

    def _fit(self, count: int, taken: float) -> None:
        """Choose the size of the next batch by how long the last one took."""
        if taken > TIME_BOX:
            self._size = max(1, self._size // 2)
        elif count == self._size and taken < TIME_BOX / 2 and not self._suspects:
            self._size = min(BATCH, self._size * 2)

    def _note_failure(self, error: Exception) -> float:
        """Take fewer runs at a time, to isolate one that can't be tallied; gives the seconds until the next try."""
        if self._size == 1:
            self._note_failed_run(error)
        self._failures += 1
        if self._failures == OUTAGE_FAILURES:
            logger.error("Runs that have ended can't be counted; retrying every minute.", exc_info=error)
        self._size = max(1, self._size // 4)
        return min(LONGEST_REST, FIRST_REST * 2.0 ** min(self._failures, 16))

    def _note_failed_run(self, error: Exception) -> None:
        """Leave out the run that was tried alone, unless the database may be the cause."""
        try:
            run_id = _find_waiting(self._list_skipped()).values_list("pk", flat=True).first()
        except (DatabaseError, InterfaceError):
            # The connection broke since. The next try finds the run again.
            return
        if run_id is None:
            return
        if isinstance(error, OUTAGE_ERRORS) and run_id not in self._suspects:
            self._suspects.add(run_id)
            return
        self._suspects.discard(run_id)
        self._left_out.append(run_id)
        logger.error("Run %s is left out of statistics and search.", run_id, exc_info=error)
