"""Waking a sender. A message says only “something may be due”; the rows say what."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, transaction
from django_q.tasks import async_task

from runs.models import WebhookDelivery
from runs.models.run import in_future
from runs.webhooks.sender_lock import SenderLock

logger = logging.getLogger(__name__)

SEND_TASK = "runs.webhooks.tasks.send_due"
LOOK = 1.0
"""Seconds between looks for what is due."""
OVERDUE = timedelta(seconds=1)
"""What is due for so long has not been seen to by whoever made it."""
PATIENCE = 3.0
"""Seconds in which a sender should have begun that was asked for."""


def wake_sender() -> None:
    """Let a worker look for what is due, once the caller's transaction is stored.

    A message that gets lost on the way does no harm: the queue's schedule looks every minute.
    """
    transaction.on_commit(_send_message)


def _send_message() -> None:
    # Whoever sends on this host looks once more after it has let go of the lock, and the rows can be seen by now.
    if SenderLock.is_taken():
        return
    try:
        async_task(SEND_TASK)
    except Exception as error:  # noqa: BLE001  # whichever broker it is, its errors are its own
        logger.warning("The queue's broker can't be reached; webhooks wait for the next sweep: %s", error)


class DueWatch:
    """Has a sender woken when the time of a retry has come, which may be seconds from the last try."""

    def __init__(self) -> None:
        self._next = 0.0
        """When to look again, by the monotonic clock."""

    def look(self) -> None:
        """Look whether anything is due, not more often than is worthwhile. Raises nothing of the database's."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        # Whoever has something to store says that the database is away; here the next look is soon enough.
        with suppress(DatabaseError, InterfaceError):
            if WebhookDelivery.objects.due().filter(next_try_at__lte=in_future(-OVERDUE)).exists():
                self._next = now + PATIENCE
                wake_sender()
