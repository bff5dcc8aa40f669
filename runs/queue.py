"""Waking workers. A message says only “make sure that a drain is running”; the Run table says what there is to do."""

from __future__ import annotations

from django_q.tasks import async_task

DRAIN_TASK = "runs.worker.drain"
SWEEP_TASK = "runs.sweep.sweep"


def wake_worker() -> None:
    """Make sure that some worker looks for queued runs.

    With the database as broker the message is part of the caller's transaction, so that neither is kept alone.
    """
    async_task(DRAIN_TASK)
