"""Waking workers. A message says only “make sure that a drain is running”; the Run table says what there is to do."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import transaction
from django_q.tasks import async_task

logger = logging.getLogger(__name__)

DRAIN_TASK = "runs.worker.drain"
SWEEP_TASK = "runs.sweep.sweep"


def wake_worker() -> None:
    """Make sure that some worker looks for queued runs.

    With the database as broker the message is part of the caller's transaction, so that neither is kept alone. With
    Redis it goes out on commit, and a broker that can't be reached keeps nobody from starting a run: the sweep finds
    it.
    """
    if "orm" in settings.Q_CLUSTER:
        async_task(DRAIN_TASK)
    else:
        transaction.on_commit(_send_message)


def _send_message() -> None:
    try:
        async_task(DRAIN_TASK)
    except Exception:  # whichever broker it is, its errors are its own
        logger.warning("The queue's broker can't be reached; queued runs wait for the next sweep.", exc_info=True)
