"""Who is at work and what waits: the figures that people and machines watch the queue by.

All of them are read in database time, so that hosts' clocks don't matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from django.db.models import (
    Count,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Value,
)
from django.db.models.functions import Now

from runs.models import Run, RunStatus, Worker
from runs.models.run import RunQuerySet, in_future
from runs.prepared_select import PreparedSelect

MOST_SHOWN = 1_000
"""Queued runs of a kind that are counted for a page, which asks again and again."""
MAX_COUNTED = 100_000
"""The same for machines."""
PATIENCE = timedelta(seconds=5)
"""A run that is ready may lie so long before anybody is told: a worker that wakes up takes a moment."""


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One drain, as it was last heard of."""

    host: str
    pid: int
    version: str
    slots: int
    in_flight: int
    state: str
    """``working``, ``stopping`` or ``silent``."""
    running_for: timedelta
    """From its start until it was last heard of."""
    silent_for: timedelta


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The workers, and how many queued runs are ready, wait for a time, or wait for something else."""

    workers: tuple[WorkerFigures, ...]
    ready: int
    later: int
    waiting: int
    oldest_ready: timedelta | None
    """How long the oldest ready run has been ready; None if there is none."""
    is_unattended: bool
    """Runs are ready, and no worker is alive that could take them."""
    more: frozenset[str] = frozenset()
    """Of which of ``ready``, ``later`` and ``waiting`` there are more than were counted: a backlog may be long."""

    @property
    def slots(self) -> int:
        """How many runs the workers that are alive may have under way."""
        return sum(worker.slots for worker in self.workers if worker.state != "silent")

    @property
    def in_flight(self) -> int:
        """How many runs the workers that are alive have under way."""
        return sum(worker.in_flight for worker in self.workers if worker.state != "silent")


def read_queue_figures(*, most: int = MAX_COUNTED) -> QueueFigures:
    """The figures of this moment. Costs four queries, which read the workers and ``most`` queued runs of each kind."""
    workers = tuple(
        WorkerFigures(
            host=host,
            pid=pid,
            version=version,
            slots=slots,
            in_flight=in_flight,
            state="silent" if is_silent else "stopping" if is_stopping else "working",
            running_for=heartbeat_at - started_at,
            silent_for=max(silent_for, timedelta(0)),
        )
        for (
            host,
            pid,
            version,
            slots,
            in_flight,
            is_stopping,
            started_at,
            heartbeat_at,
            is_silent,
            silent_for,
        ) in _WORKERS.fetch()
    )
    selects = _prepare_queued(most)
    ready, oldest_ready, patience_lost = _fetch_one(selects.ready, (0, None, 0))
    later, waiting_for_time = _fetch_one(selects.later, (0, 0))
    (waiting,) = _fetch_one(selects.waiting, (0,))
    more = {"ready"} if ready > most else set()
    more |= {"later", "waiting"} if later + waiting_for_time > most else set()
    more |= {"waiting"} if waiting > most else set()
    is_attended = any(worker.state != "silent" for worker in workers)
    return QueueFigures(
        workers=workers,
        ready=min(ready, most),
        later=min(later, most),
        waiting=min(waiting + waiting_for_time, most),
        oldest_ready=oldest_ready,
        is_unattended=bool(patience_lost) and not is_attended,
        more=frozenset(more),
    )


def _select_workers(_: Sequence[Any]) -> QuerySet[Any, tuple[Any, ...]]:
    rows = Worker.objects.annotate(
        is_silent=Exists(Worker.objects.silent().filter(pk=OuterRef("pk"))),
        silent_for=ExpressionWrapper(Now() - F("heartbeat_at"), output_field=DurationField()),
    )
    told = ("host", "pid", "version", "slots", "in_flight", "is_stopping", "started_at", "heartbeat_at")
    return rows.values_list(*told, "is_silent", "silent_for")


class _QueuedSelects(NamedTuple):
    """What counts queued runs, one row each; none where there is no run of the kind."""

    ready: PreparedSelect
    later: PreparedSelect
    waiting: PreparedSelect


@cache
def _prepare_queued(most: int) -> _QueuedSelects:
    # Whoever waited for a time, whatever the reason, is ready once it has come; a worker is waited for until one comes.
    queued = Run.objects.filter(status=RunStatus.QUEUED)
    in_time = queued.filter(waiting_since__isnull=True).order_by("available_at", "pk")
    age = ExpressionWrapper(Now() - Min("available_at"), output_field=DurationField(null=True))
    ready = _count_first(
        in_time.filter(available_at__lte=Now(), cancel_requested=False),
        most,
        count=Count("pk"),
        oldest=age,
        patience_lost=Count("pk", filter=_patience_lost()),
    )
    later = _count_first(
        in_time.filter(available_at__gt=Now()),
        most,
        later=Count("pk", filter=Q(waiting_for="")),
        waiting=Count("pk", filter=~Q(waiting_for="")),
    )
    waiting = _count_first(
        queued.filter(waiting_since__isnull=False).order_by("waiting_since"), most, count=Count("pk")
    )
    return _QueuedSelects(ready, later, waiting)


def _count_first(rows: QuerySet[Run], most: int, **counts: Any) -> PreparedSelect:
    """What counts the first rows, one more than ``most``."""
    # Grouped by what is the same for all: a queryset of one row, or of none.
    first = Run.objects.filter(pk__in=rows.values("pk")[: most + 1]).order_by().values(every=Value(1))
    return PreparedSelect(lambda _: first.annotate(**counts).values_list(*counts))


def _fetch_one(select: PreparedSelect, nothing: tuple[Any, ...]) -> tuple[Any, ...]:
    return next(iter(select.fetch()), nothing)


def unattended_runs() -> RunQuerySet:
    """Queued runs that could be claimed, by nobody: no worker is alive."""
    return Run.objects.filter(~Exists(Worker.objects.alive()), _patience_lost(), status=RunStatus.QUEUED)


def is_unattended() -> bool:
    """Whether there is such a run: every page asks."""
    return bool(_UNATTENDED.fetch())


def _patience_lost() -> Q:
    """What is true of a queued run that a worker would have taken by now, had there been one."""
    return Q(available_at__lt=in_future(-PATIENCE), cancel_requested=False)


_WORKERS = PreparedSelect(_select_workers)
_UNATTENDED = PreparedSelect(lambda _: unattended_runs().order_by().values_list("pk")[:1])
