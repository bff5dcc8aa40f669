"""The workers and the runs that wait, as pages, metrics and commands show them. Ages are in database time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, DurationField, Exists, ExpressionWrapper, F, Min, OuterRef, Q
from django.db.models.functions import Now

from runs.models import Run, RunStatus, Worker
from runs.models.run import RunQuerySet, in_future

MAX_SHOWN = 1_000
"""Queued runs of a kind that are counted for a page, which asks again and again."""
MAX_COUNTED = 100_000
"""The same for machines."""
START_TIMEOUT = timedelta(seconds=5)
"""A run that is ready for longer has no worker: one that is idle wakes up sooner."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """The workers, and how many queued runs are ready, wait for a time, or wait for something else, up to a limit."""

    workers: list[Any]
    """Rows of ``Worker`` with their ``state``, ``running_for`` and ``silent_for``: see ``_fetch_workers``."""
    ready: int
    later: int
    waiting: int
    oldest_ready: timedelta | None
    """How long the oldest ready run has been ready; None if there is none."""
    is_unattended: bool
    """Runs are ready, and no worker is alive that could take them."""

    @property
    def slots(self) -> int:
        """How many runs the workers that are alive may have in flight."""
        return sum(worker.slots for worker in self.workers if worker.state != "silent")

    @property
    def in_flight(self) -> int:
        """How many runs the workers that are alive have in flight."""
        return sum(worker.in_flight for worker in self.workers if worker.state != "silent")


def fetch_queue_state(*, limit: int = MAX_COUNTED) -> QueueState:
    """The figures of this moment, in four queries, which read the workers and ``limit`` queued runs of each kind."""
    workers = _fetch_workers()
    queued = Run.objects.filter(status=RunStatus.QUEUED)
    # What waited for a time, whatever the reason, is ready once it has come.
    in_time = queued.filter(waiting_since__isnull=True).order_by("available_at", "pk")
    ready = in_time.filter(available_at__lte=Now(), cancel_requested=False)[:limit].aggregate(
        count=Count("pk"),
        oldest=ExpressionWrapper(Now() - Min("available_at"), output_field=DurationField()),
        overdue=Count("pk", filter=_is_overdue()),
    )
    later: dict[str, int] = in_time.filter(available_at__gt=Now())[:limit].aggregate(
        free=Count("pk", filter=Q(waiting_for="")), held=Count("pk", filter=~Q(waiting_for=""))
    )
    waiting = queued.filter(waiting_since__isnull=False).order_by("waiting_since")[:limit].count()
    return QueueState(
        workers=workers,
        ready=ready["count"],
        later=later["free"],
        waiting=min(waiting + later["held"], limit),
        oldest_ready=ready["oldest"],
        is_unattended=bool(ready["overdue"]) and all(worker.state == "silent" for worker in workers),
    )


def runs_without_worker() -> RunQuerySet:
    """Queued runs that could be claimed while no worker is alive."""
    return Run.objects.filter(~Exists(Worker.objects.alive()), _is_overdue(), status=RunStatus.QUEUED)


def _is_overdue() -> Q:
    """True of a queued run that a worker would have claimed."""
    return Q(available_at__lt=in_future(-START_TIMEOUT), cancel_requested=False)


def _fetch_workers() -> list[Any]:
    """The drains at their last heartbeat: ``working``, ``stopping`` or ``silent``, how long until it and since."""
    rows: Any = Worker.objects.annotate(
        is_silent=Exists(Worker.objects.silent().filter(pk=OuterRef("pk"))),
        silent_for=ExpressionWrapper(Now() - F("heartbeat_at"), output_field=DurationField()),
    )
    for row in rows:
        row.state = "silent" if row.is_silent else "stopping" if row.is_stopping else "working"
        row.running_for = row.heartbeat_at - row.started_at
        row.silent_for = max(row.silent_for, timedelta(0))
    return list(rows)
