"""What the queue calls: retention a moment at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.utils import timezone
from django_q.tasks import async_task

from runs.locks import RETENTION, acquire, release, renew
from runs.retention.leftovers import clear, list_leftovers
from runs.retention.pacing import Pace
from runs.retention.purging import list_tasks, purge
from runs.retention.telling import PurgeTelling
from runs.trail.acting import TOOLFLOW, acting_as

logger = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds of one message. One worker process of a host is left for sweeps, and these messages share it."""
LEASE = timedelta(minutes=10)
"""After so long without a message that was begun, or passed on, the last one counts as lost."""
TASK = "runs.retention.tasks.purge_due"


def purge_due(token: int | None = None) -> str:
    """Take away what is due, for a moment, and send another message if more is left.

    The queue's schedule calls it without ``token``, which is that of the message before. What fails for one flow or
    one kind of rows is logged, and keeps no other. Gives a sentence for the queue's own log.
    """
    # A lock alone would let each hour begin one more chain of messages: one process takes them one after the other.
    token = acquire(RETENTION, LEASE, token=token)
    if token is None:
        return "Retention is under way already."
    until = time.monotonic() + PATIENCE

    def is_over() -> bool:
        return time.monotonic() >= until

    now, pace = timezone.now(), Pace()
    runs = rows = 0
    for task in list_tasks(now=now):
        with _logged(f"the {task.part.value} of the flow “{task.flow.name}”"):
            telling = PurgeTelling(task, by_worker=True)
            runs += purge(task, pace=pace, is_over=is_over, begin=telling.begin, tell=telling.end).runs
        if is_over():
            break
    for leftover in list_leftovers():
        if is_over():
            break
        with _logged(leftover.name), acting_as(TOOLFLOW):
            for count in clear(leftover, now=now):
                rows += count
                if is_over():
                    break
    if is_over():
        _pass_on(token)
    else:
        release(RETENTION, token)
    return f"Retention took away {runs} runs or their outputs, and {rows} other rows."


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log what goes wrong: all else that is due goes nonetheless."""
    try:
        yield
    except Exception:
        logger.exception("Retention could not see to %s; it tries again within the hour.", what)


def _pass_on(token: int) -> None:
    if not renew(RETENTION, LEASE, token):
        return
    try:
        async_task(TASK, token)
    except Exception as error:  # noqa: BLE001  # whichever broker it is, its errors are its own
        release(RETENTION, token)
        logger.warning("The queue's broker can't be reached; retention goes on within the hour: %s", error)
