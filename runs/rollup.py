"""What is made of a run once it has ended: statistics, the index for search, deliveries to webhooks.

It is made in batches beside the work itself. A run is marked in the transaction that counts it, so that it counts once,
however it ended and whichever worker does it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from django.db import InterfaceError, InternalError, OperationalError, transaction

from runs.locks import STATISTICS, hold
from runs.models import OriginalInput, Run
from runs.search import index_runs
from runs.statistics.counting import count_runs
from runs.webhooks.deliveries import create_deliveries
from runs.webhooks.tasks import wake_sender_if_due

logger = logging.getLogger(__name__)

MAX_RUNS = 100
"""Runs in one transaction: more gain little, and what runs have to store waits for it."""
FIRST_RUNS = 10
"""In the first transaction of a drain."""
MAX_SECONDS = 0.1
"""What one transaction should take, as claims and leases wait for it; after a longer one batches get smaller."""
INTERVAL = 1.0
"""Seconds between batches."""
BUSY_RATIO = 3
"""How many times longer than a full batch the rest after it is while the drain has runs in flight."""
MAX_TRIES = 3
"""Of a run that can't be counted, as in an outage, while others are; then it is left out."""
RETRY_INTERVAL = 5.0
"""Seconds until the next try after the database was away."""
WEBHOOK_INTERVAL = 3.0
"""Seconds between checks for webhooks whose retry is due."""
OUTAGE_ERRORS = (OperationalError, InterfaceError, InternalError)
"""Errors of a database that is away, full, locked or read-only, whichever run they meet."""

OnRolledUp = Callable[[list[int]], None]
"""Called with runs once that they are counted is stored. It raises nothing."""


def count_ended_runs(*, limit: int = MAX_RUNS, on_rolled_up: OnRolledUp | None = None) -> int:
    """Count and index up to ``limit`` runs that have ended, the oldest first; gives their number.

    That is 0 also while another process does so, or while statistics are rebuilt.
    """
    # Asked often, mostly without result: a query that takes no lock comes first.
    if not Run.objects.uncounted().exists():
        return 0
    with transaction.atomic():
        run_ids = _lock_batch(limit)
        _store(run_ids)
    if on_rolled_up is not None and run_ids:
        on_rolled_up(run_ids)
    return len(run_ids)


def _lock_batch(limit: int) -> list[int]:
    """The runs of the next batch, until the end of the transaction."""
    if not hold(STATISTICS):
        return []
    # No other process counts now, and ended runs don't change: the lock keeps them from being deleted meanwhile.
    rows = Run.objects.uncounted().order_by("pk").select_for_update(skip_locked=True)
    return list(rows.values_list("pk", flat=True)[:limit])


def _store(run_ids: Sequence[int]) -> None:
    if run_ids:
        count_runs(run_ids)
        index_runs(run_ids)
        create_deliveries(run_ids)
        _mark(run_ids)


def _mark(run_ids: Sequence[int]) -> None:
    OriginalInput.objects.filter(pk__in=run_ids).delete()
    Run.objects.filter(pk__in=run_ids).update(is_counted=True)


class Rollup:
    """The rollups of one drain, a batch at a time beside its other work."""

    def __init__(self, *, on_rolled_up: OnRolledUp | None = None) -> None:
        self._on_rolled_up = on_rolled_up
        self._next_webhook_check = 0.0
        """By the monotonic clock."""
        self._is_away = False
        self._limit = FIRST_RUNS
        self._tries: Counter[int] = Counter()
        """Of runs that could not be counted while others were."""

    def advance(self, *, is_busy: bool) -> float:
        """Count the next batch; gives the seconds until the one after it is due. Raises nothing.

        ``is_busy`` says whether the drain has runs in flight.
        """
        began_at = time.monotonic()
        try:
            counted = self._count_batch()
            seconds = time.monotonic() - began_at
            is_full = counted == self._limit
            if counted:
                self._limit = max(1, min(MAX_RUNS, int(counted * MAX_SECONDS / seconds)))
            self._check_webhooks(began_at)
        except OUTAGE_ERRORS as error:
            if not self._is_away:
                logger.error("Runs that have ended can't be counted; retrying every 5 s.", exc_info=error)
            self._is_away = True
            return RETRY_INTERVAL
        except Exception as error:  # whatever it is, runs go on
            logger.error("Runs that have ended can't be counted now.", exc_info=error)
            return RETRY_INTERVAL
        if self._is_away:
            logger.warning("Runs that have ended can be counted again.")
        self._is_away = False
        if not is_full:
            return INTERVAL
        return BUSY_RATIO * seconds if is_busy else 0.0

    def _check_webhooks(self, now: float) -> None:
        if now >= self._next_webhook_check:
            self._next_webhook_check = now + WEBHOOK_INTERVAL
            wake_sender_if_due()

    def _count_batch(self) -> int:
        """How many runs were counted or left out."""
        try:
            return count_ended_runs(limit=self._limit, on_rolled_up=self._on_rolled_up)
        except Exception:  # noqa: BLE001  # a run that raises it is found below, and logged
            run_ids = self._count_singly()
            if self._on_rolled_up is not None and run_ids:
                self._on_rolled_up(run_ids)
            return len(run_ids)

    def _count_singly(self) -> list[int]:
        """Count the runs of a batch one by one: one of them can't be. Gives those that are counted or left out.

        One that is left out is logged and marked as counted, so that it is not tried for ever; ``rebuild_statistics``
        and ``rebuild_search`` make up for it. Raises what all of them raise when the database is away.
        """
        done: list[int] = []
        outages: dict[int, Exception] = {}
        with transaction.atomic():
            # Of several at least: one alone does not distinguish a fault of its own from an outage.
            for run_id in _lock_batch(max(self._limit, FIRST_RUNS)):
                try:
                    with transaction.atomic():
                        _store([run_id])
                except OUTAGE_ERRORS as error:
                    outages[run_id] = error
                    continue
                except Exception as error:  # noqa: BLE001  # whatever it is, it is logged and the others are counted
                    _leave_out(run_id, error)
                done.append(run_id)
            if outages and not done:
                raise next(iter(outages.values()))
            # PostgreSQL reports what is wrong with one row, or takes too long, as it reports an outage.
            self._tries.update(outages.keys())
            for run_id, outage in outages.items():
                if self._tries[run_id] >= MAX_TRIES:
                    _leave_out(run_id, outage)
                    done.append(run_id)
        return done


def _leave_out(run_id: int, error: Exception) -> None:
    logger.error("Run %s is left out of statistics and search.", run_id, exc_info=error)
    _mark([run_id])
    try:
        with transaction.atomic():
            create_deliveries([run_id])
    except OUTAGE_ERRORS:
        raise
    except Exception as error:  # the mark stays
        logger.error("The webhooks of run %s can't be sent.", run_id, exc_info=error)
