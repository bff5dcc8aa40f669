"""Which queued runs a worker takes next: by priority, fairly between flows, within limits."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.db import connection, models, transaction
from django.db.models import Exists, ExpressionWrapper, F, OuterRef, Q
from django.db.models.functions import Coalesce, Now

from flows.models import Flow
from runs.models import Priority, Run, RunStatus
from runs.models.run import RunQuerySet, in_future

AvailablePermits = Callable[[str], int | None]
"""Given a model, how many calls to it could begin now; None where nothing limits them."""

SUSPECT_CRASHES = 2
"""A run that lost its worker this often since its last stored attempt is a suspect: a drain has one at a time.

A run that kills its worker takes all others there with it. One loss makes no suspect, or every run that was in flight
beside it would have to wait for the others.
"""

LOOK_AHEAD = 4
"""How many times as many runs are read as can be taken, since some may not go now."""


def claim_runs(
    *,
    free: int,
    owner: str,
    lease: timedelta,
    is_simulated: bool | None,
    in_flight: Mapping[int, int] | None = None,
    has_suspect: bool = False,
    available_permits: AvailablePermits = lambda _model: None,
    unable: Collection[int] = (),
) -> list[Run] | None:
    """Claim up to ``free`` queued runs for ``owner`` until ``lease`` from now, the oldest first.

    Returns None without taking a lock if none is queued, and an empty list if none of those that are may go now.

    A higher priority comes first. Within a priority every flow that has queued runs gets the same share of what is in
    flight: ``in_flight`` says how many runs of each flow the owner has already, ``has_suspect`` whether one of them is
    a suspect. ``available_permits`` bounds the runs by the model of their next call. ``unable`` are versions that the
    owner can't execute. ``is_simulated`` says whether all of the owner's calls go to the simulated model, or none; None
    leaves the runs as they were submitted.
    """
    flows = _fetch_flows(unable, has_suspect=has_suspect)
    if free <= 0 or not flows:
        return None
    limits = {flow: limit for flow, limit, *_ in flows if limit is not None}
    # Counted without a lock first: this is asked often, and mostly a flow with a limit has all it may have.
    left = _count_left(limits)
    flows = [flow for flow in flows if left.get(flow[0], 1)]
    if not flows:
        return []
    with transaction.atomic():
        if limits:
            # Other claims of runs of these flows wait until this one can be seen.
            list(Flow.objects.select_for_update().filter(pk__in=limits).order_by("pk").values_list("pk", flat=True))
            left = _count_left(limits)
        choice = _Choice(_ready_runs(unable, has_suspect=has_suspect), available_permits, has_suspect=has_suspect)
        ids = choice.choose(flows, free, left, Counter(in_flight or {}))
        if not ids:
            return []
        Run.objects.filter(pk__in=ids).update(
            status=RunStatus.RUNNING,
            owner=owner,
            epoch=F("epoch") + 1,
            lease_until=in_future(lease),
            suspect_since=None,
            waiting_for="",
            started_at=Coalesce("started_at", Now()),
            deadline_at=Coalesce(
                "deadline_at", ExpressionWrapper(Now() + F("time_limit"), output_field=models.DateTimeField())
            ),
            # What was invented once stays marked, also if a real model goes on with it.
            is_simulated=models.Case(
                models.When(attempt_count__gt=0, is_simulated=True, then=models.Value(True)),
                default=F("is_simulated") if is_simulated is None else models.Value(is_simulated),
            ),
            revision=F("revision") + 1,
        )
        return list(Run.objects.filter(pk__in=ids).order_by("priority", "pk"))


def _ready_runs(unable: Collection[int], *, has_suspect: bool) -> RunQuerySet:
    ready = Run.objects.queued()
    if has_suspect:
        ready = ready.filter(crashes__lt=SUSPECT_CRASHES)
    return ready.exclude(version__in=unable) if unable else ready


def _fetch_flows(unable: Collection[int], *, has_suspect: bool) -> list[tuple[Any, ...]]:
    """Flows that have runs to claim: key, how many may be under way, and for each priority whether there are any."""
    sql, parameters = _compile_flows_query(connection.vendor, tuple(unable), has_suspect)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


@lru_cache(maxsize=16)
def _compile_flows_query(vendor: str, unable: tuple[int, ...], has_suspect: bool) -> tuple[str, tuple[Any, ...]]:
    """The statement of ``_fetch_flows``: a drain asks every 50 ms, and to build it takes ten times as long."""
    ready = _ready_runs(unable, has_suspect=has_suspect)
    # One index lookup for each flow and priority, however many runs are queued.
    has = {
        f"has_{priority.name}": Exists(ready.filter(flow=OuterRef("pk"), priority=priority)) for priority in Priority
    }
    has_any = Q(*((name, True) for name in has), _connector=Q.OR)
    flows = Flow.objects.annotate(**has).filter(has_any).order_by("pk").values_list("pk", "max_runs_in_flight", *has)
    return flows.query.sql_with_params()


def _count_left(limits: Mapping[int, int]) -> dict[int, int]:
    """How many more runs each flow with a limit may have under way, on all hosts together."""
    if not limits:
        return {}
    running = Run.objects.running().filter(flow__in=limits).order_by().values("flow")
    counts = dict(running.annotate(count=models.Count("pk")).values_list("flow", "count"))
    return {flow: max(0, limit - counts.get(flow, 0)) for flow, limit in limits.items()}


def share_slots(free: int, in_flight: Mapping[int, int], left: Mapping[int, int]) -> dict[int, int]:
    """Give ``free`` slots to flows one by one, always to the one that has the fewest runs under way.

    ``left`` bounds what some flows may get. Flows that get nothing are left out.
    """
    heap = [
        (count, position, flow) for position, (flow, count) in enumerate(in_flight.items()) if left.get(flow, free) > 0
    ]
    heapq.heapify(heap)
    shares: Counter[int] = Counter()
    while heap and free > 0:
        count, position, flow = heapq.heappop(heap)
        shares[flow] += 1
        free -= 1
        if flow not in left or shares[flow] < left[flow]:
            heapq.heappush(heap, (count + 1, position, flow))
    return dict(shares)


class _Choice:
    """The runs of one claim, of those that are ``ready``."""

    def __init__(self, ready: RunQuerySet, available_permits: AvailablePermits, *, has_suspect: bool) -> None:
        self._ready = ready
        self._available_permits = available_permits
        self._permits: dict[str, int | None] = {"": None}
        self._has_suspect = has_suspect
        self._chosen: list[int] = []

    def choose(
        self, flows: list[tuple[Any, ...]], free: int, left: dict[int, int], in_flight: Counter[int]
    ) -> list[int]:
        """The ids of the runs to take, locked. ``left`` and ``in_flight``, by flow, are kept up to date."""
        for position, priority in enumerate(Priority):
            waiting = [flow for flow, _, *has in flows if has[position]]
            # Shares that a flow can't use go to the others.
            while waiting and len(self._chosen) < free:
                shares = share_slots(free - len(self._chosen), {flow: in_flight[flow] for flow in waiting}, left)
                if not shares:
                    break
                for flow, share in shares.items():
                    taken = self._take(self._ready.filter(flow=flow, priority=priority), share)
                    in_flight[flow] += taken
                    if flow in left:
                        left[flow] -= taken
                    if taken < share:
                        waiting.remove(flow)
        return self._chosen

    def _take(self, ready: RunQuerySet, share: int) -> int:
        """Lock up to ``share`` runs that may go now; gives their number."""
        ready = ready.exclude(pk__in=self._chosen)
        # In the order of submission: a run that was handed back is not sent behind all those that came after it.
        candidates = ready.order_by("pk").values_list("pk", "next_model", "crashes")[: share * LOOK_AHEAD]
        kept: list[int] = []
        for run_id, model, crashes in candidates:
            if len(kept) == share:
                break
            if self._allows(model, crashes):
                kept.append(run_id)
        if not kept:
            return 0
        # Only what is taken is locked: a backlog that waits for a limit is read again and again.
        lockable = ready.filter(pk__in=kept).order_by("pk").select_for_update(skip_locked=True, of=("self",))
        locked = list(lockable.values_list("pk", flat=True))
        self._chosen += locked
        return len(locked)

    def _allows(self, model: str, crashes: int) -> bool:
        """Whether a run may be claimed that asks ``model`` next and lost its worker ``crashes`` times."""
        is_suspect = crashes >= SUSPECT_CRASHES
        if is_suspect and self._has_suspect:
            return False
        if model not in self._permits:
            self._permits[model] = self._available_permits(model)
        left = self._permits[model]
        if left is not None:
            if left <= 0:
                return False
            self._permits[model] = left - 1
        self._has_suspect |= is_suspect
        return True
