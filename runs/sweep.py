"""Finding what died workers left behind."""

from __future__ import annotations

import logging

from django.db import transaction

from flows.engine.history import Outcome
from runs.models import Run
from runs.queue import wake_worker
from runs.recorder import end_running_attempts

logger = logging.getLogger(__name__)


def sweep() -> int:
    """Queue the runs again whose worker's lease ran out, and wake a worker if anything waits.

    Gives the number of runs taken from dead workers. Runs every minute from the queue's schedule, and when a worker
    starts.
    """
    reclaimed = 0
    for run in Run.objects.expired():
        with transaction.atomic():
            if not run.reclaim():
                continue
            end_running_attempts(run.pk, Outcome.INTERRUPTED)
        reclaimed += 1
        logger.warning("Run %s was taken from worker %s, whose lease ran out.", run.pk, run.owner)
    for run in Run.objects.cancelled_in_queue():
        run.request_cancel()
    if Run.objects.queued().exists():
        wake_worker()
    return reclaimed
