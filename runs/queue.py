"""Waking workers. A message says only “make sure that a drain is running”; the Run table says what there is to do."""

from __future__ import annotations

import logging
import threading

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import OrmQ
from django_q.tasks import async_task

logger = logging.getLogger(__name__)

DRAIN_TASK = "runs.worker.tasks.drain"
"""Sent with ``timeout=-1``: a drain has no end but the worker's."""
SWEEP_TASK = "runs.sweep.sweep"

_broker_is_away = threading.Event()
"""Set while this process has said that it can't reach the broker, so that not each sweep says it again."""


def wake_worker() -> None:
    """Make sure that some worker looks for queued runs.

    With the database as broker the message is part of the caller's transaction, so that neither is kept alone. With
    Redis it goes out on commit, and a broker that can't be reached keeps nobody from starting a run: the sweep finds
    it. One message that waits is enough for any number of runs.
    """
    if "orm" in settings.Q_CLUSTER:
        with transaction.atomic():
            # Locked, so that nobody takes the message off the queue before the caller's rows can be seen.
            waiting = OrmQ.objects.select_for_update(skip_locked=True).filter(
                key=get_broker().list_key, lock__lte=timezone.now()
            )
            if waiting.first() is None:
                async_task(DRAIN_TASK, timeout=-1)
    else:
        transaction.on_commit(_send_message)


def name_channel() -> str:
    """The Redis channel on which drains that are at work hear of queued runs."""
    return f"{settings.Q_CLUSTER['name']}:runs-queued"


def _send_message() -> None:
    try:
        broker = get_broker()
        # Whoever listens is at work already, and starts the run without the way through the queue.
        broker.connection.publish(name_channel(), "")
        if not broker.queue_size():
            async_task(DRAIN_TASK, broker=broker, timeout=-1)
    except Exception as error:  # noqa: BLE001  # whichever broker it is, its errors are its own
        if not _broker_is_away.is_set():
            logger.warning("The queue's broker can't be reached; queued runs wait for the next sweep: %s", error)
        _broker_is_away.set()
    else:
        if _broker_is_away.is_set():
            logger.warning("The queue's broker can be reached again.")
        _broker_is_away.clear()
