"""The sweep: reclaims what dead workers left behind, and ends what waited too long."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from flows.engine.history import Outcome
from runs.models import EndReason, Run, RunStatus, Worker
from runs.models.run import RunQuerySet, end_values, in_future
from runs.observability.log_events import log_event, note_run_end
from runs.ownership import Owner
from runs.queue import wake_worker
from runs.recorder import end_running_attempts

logger = logging.getLogger(__name__)

PROCESS_GONE = "Its process died."
LEASE_EXPIRED = "It did not renew its lease: its network failed, it froze, or its host is gone."

GRACE_RATIO = 1 / 3
"""The part of a lease that a worker has to renew it after a sweep found it expired: its grace period.

After an outage of the database all leases are expired at once, and workers that lived through it hold attempts that
are paid for. They come back within seconds, and must not find their runs given away.
"""
MAX_SUSPICION_AGE = timedelta(seconds=30)
"""A suspicion that much older than the grace period is from before an outage, and no longer counts."""
MAX_SILENCE = timedelta(minutes=10)
"""How long a silent worker is shown before its row goes."""


def sweep() -> int:
    """Reclaim runs of dead workers, end what waited too long, and wake a worker if anything is to be done.

    Gives the number of runs reclaimed. Runs every minute from the queue's schedule, when a worker process starts, and
    in the heartbeat of every drain.
    """
    reclaimed = _reclaim_from_dead_processes() + _reclaim_expired()
    for run in Run.objects.cancelled_in_queue():
        run.request_cancel()
    _end_overdue()
    Worker.objects.silent(MAX_SILENCE).delete()
    # A drain that is at work sweeps every few seconds: it sees soon whether a suspect comes back.
    if Run.objects.queued().exists() or Run.objects.expired().exists():
        wake_worker()
    return reclaimed


def _reclaim_from_dead_processes() -> int:
    """Reclaim the runs of workers that lived on this machine and are certainly dead."""
    names = Run.objects.running().order_by().values_list("owner", flat=True).distinct()
    gone = [name for name in names if (owner := Owner.parse(name)) is not None and owner.is_gone]
    if not gone:
        return 0
    Worker.objects.filter(owner__in=gone).delete()
    return _reclaim(Run.objects.running().filter(owner__in=gone), PROCESS_GONE)


def _reclaim_expired() -> int:
    grace = timedelta(seconds=settings.TOOLFLOW_LEASE * GRACE_RATIO)
    is_old = Q(suspect_since__lt=in_future(-grace - MAX_SUSPICION_AGE))
    Run.objects.expired().filter(Q(suspect_since=None) | is_old).update(suspect_since=Now())
    return _reclaim(Run.objects.suspect(grace), LEASE_EXPIRED)


def _reclaim(lost: RunQuerySet, cause: str) -> int:
    reclaimed = 0
    for run in lost:
        with transaction.atomic():
            if not run.reclaim(lost, cause):
                continue
            end_running_attempts(run.pk, Outcome.INTERRUPTED)
        reclaimed += 1
        sentence = f"Run {run.pk} was taken from worker {run.owner}. {cause}"
        log_event(logger, logging.WARNING, "run.taken", sentence, run=run.pk, owner=run.owner)
        run.refresh_from_db(fields=["status", "end_reason"])
        if run.status != RunStatus.QUEUED:
            note_run_end(run.status, run.end_reason, run=run.pk)
    return reclaimed


def _end_overdue() -> None:
    """End queued runs whose time is up: their deadline passed, or no worker came that has what they need."""
    queued = Run.objects.filter(status=RunStatus.QUEUED)
    overdue = queued.filter(deadline_at__lte=Now())
    for run in overdue.only("epoch"):
        _end(overdue, run, EndReason.DEADLINE_EXCEEDED, "The run reached its time limit while it waited in the queue.")
    max_wait = timedelta(seconds=settings.TOOLFLOW_PLUGIN_WAIT)
    waiting = queued.filter(waiting_since__lte=in_future(-max_wait))
    # A worker that has the plug-ins may only have much to do; while none is alive it is not known.
    workers = list(Worker.objects.alive()) if waiting else []
    for run in waiting:
        if workers and all(run.version_id in worker.unable_versions for worker in workers):
            sentence = f"{run.waiting_for} None came within {max_wait.total_seconds():,.0f} seconds."
            _end(queued, run, EndReason.CONFIGURATION, sentence)


def _end(queued: RunQuerySet, run: Run, reason: EndReason, sentence: str) -> None:
    """End a run as errored, if it is still among ``queued`` and was not claimed since it was read."""
    with transaction.atomic():
        if not queued.filter(pk=run.pk, epoch=run.epoch).update(**end_values(RunStatus.ERRORED, reason, sentence)):
            return
        end_running_attempts(run.pk, Outcome.INTERRUPTED)
    note_run_end(RunStatus.ERRORED.value, reason.value, run=run.pk)
