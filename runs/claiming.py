"""Which queued runs a worker takes next: by priority, fairly between flows, within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

from django.db import models, transaction
from django.db.models import Exists, ExpressionWrapper, F, OuterRef, Q
from django.db.models.functions import Coalesce, Now

from flows.models import Flow
from runs.models import Priority, Run, RunStatus
from runs.models.run import RunQuerySet, in_future

Room = Callable[[str], int | None]
"""Given a model, how many calls to it could begin now; None where nothing limits them."""

LOOK_AHEAD = 4
"""How many times as many runs are looked at as can be taken, where some can't go now for a limit of their model."""


def no_limits(model: str) -> None:
    """The room of every model where there are no limits."""


def has_ready_runs(*, unable: Collection[int] = ()) -> bool:
    """Whether any run is queued for a worker that can't execute the versions ``unable``. One look, no lock."""
    return _find_ready(unable).exists()


def claim_runs(
    *,
    free: int,
    owner: str,
    lease: timedelta,
    is_simulated: bool,
    in_flight: Mapping[int, int] | None = None,
    room: Room = no_limits,
    unable: Collection[int] = (),
) -> list[Run]:
    """Take up to ``free`` queued runs and give them to ``owner`` until ``lease`` from now, the oldest first.

    Of a higher priority comes first. Within a priority every flow that has queued runs gets the same share of what is
    under way: ``in_flight`` says how many runs of each flow the owner has already. ``room`` bounds the runs by the
    model of their next call. ``unable`` are versions that the owner can't execute. ``is_simulated`` says whether the
    owner's calls go to the simulated model.
    """
    ready = _find_ready(unable)
    flows = _find_flows(ready)
    limits = {flow: limit for flow, limit, *_ in flows if limit is not None}
    # Looked at without a lock first: this is asked often, and a flow that has all it may have is no news.
    left = _count_left(limits)
    flows = [flow for flow in flows if left.get(flow[0], 1)]
    if free <= 0 or not flows:
        return []
    with transaction.atomic():
        if limits:
            # Whoever else wants to claim runs of these flows waits until this claim can be seen.
            list(Flow.objects.select_for_update().filter(pk__in=limits).order_by("pk").values_list("pk", flat=True))
            left = _count_left(limits)
        ids = _choose(ready, flows, free=free, left=left, in_flight=Counter(in_flight or {}), room=room)
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
                default=models.Value(is_simulated),
            ),
            revision=F("revision") + 1,
        )
        return list(Run.objects.filter(pk__in=ids).order_by("priority", "pk"))


def _find_ready(unable: Collection[int]) -> RunQuerySet:
    ready = Run.objects.queued()
    return ready.exclude(version__in=unable) if unable else ready


def _find_flows(ready: RunQuerySet) -> list[tuple[Any, ...]]:
    """Flows that have runs to claim: key, how many may be under way, and for each priority whether there are any."""
    return list(
        # One look into an index for each flow and priority, however many runs are queued.
        Flow.objects.annotate(
            **{
                f"has_{priority.name.lower()}": Exists(ready.filter(flow=OuterRef("pk"), priority=priority))
                for priority in Priority
            }
        )
        .filter(Q(has_high=True) | Q(has_normal=True) | Q(has_low=True))
        .order_by("pk")
        .values_list("pk", "max_runs_in_flight", *(f"has_{priority.name.lower()}" for priority in Priority))
    )


def _choose(
    ready: RunQuerySet,
    flows: list[tuple[Any, ...]],
    *,
    free: int,
    left: dict[int, int],
    in_flight: Counter[int],
    room: Room,
) -> list[int]:
    """The ids of the runs to take, locked."""
    rooms: dict[str, int | None] = {}
    chosen: list[int] = []
    for position, priority in enumerate(Priority):
        waiting = [flow for flow, _, *has in flows if has[position]]
        # Shares that a flow can't use go to the others.
        while waiting and len(chosen) < free:
            shares = share_slots(free - len(chosen), {flow: in_flight[flow] for flow in waiting}, left)
            exhausted = set()
            for flow, share in shares.items():
                taken = _take(ready.filter(flow=flow, priority=priority).exclude(pk__in=chosen), share, room, rooms)
                chosen += taken
                in_flight[flow] += len(taken)
                if flow in left:
                    left[flow] -= len(taken)
                if len(taken) < share:
                    exhausted.add(flow)
            waiting = [flow for flow in waiting if shares.get(flow) and flow not in exhausted]
    return chosen


def _count_left(limits: Mapping[int, int]) -> dict[int, int]:
    """How many more runs each flow with a limit may have under way, on all hosts together."""
    if not limits:
        return {}
    running = dict(
        Run.objects.running()
        .filter(flow__in=limits)
        .order_by()
        .values_list("flow")
        .annotate(count=models.Count("pk"))
        .values_list("flow", "count")
    )
    return {flow: max(0, limit - running.get(flow, 0)) for flow, limit in limits.items()}


def share_slots(free: int, in_flight: Mapping[int, int], left: Mapping[int, int]) -> dict[int, int]:
    """Give ``free`` slots to flows one by one, always to the one that has the fewest runs under way.

    ``left`` bounds what some flows may get. Flows that get nothing are left out.
    """
    level = Counter(in_flight)
    shares: Counter[int] = Counter()
    for _ in range(free):
        open_flows = [flow for flow in in_flight if shares[flow] < left.get(flow, free)]
        if not open_flows:
            break
        fewest = min(open_flows, key=lambda flow: level[flow])
        shares[fewest] += 1
        level[fewest] += 1
    return dict(shares)


def _take(ready: RunQuerySet, share: int, room: Room, rooms: dict[str, int | None]) -> list[int]:
    """Up to ``share`` ids of runs whose model has room, oldest first, locked."""
    # In the order of submission: a run that was handed back is not sent behind all those that came after it.
    candidates = ready.order_by("pk").values_list("pk", "next_model")
    found = list(candidates[:share])
    kept = _keep_within(found, share, room, rooms)
    if len(kept) < len(found) == share:
        # Some wait for a limit of their model: runs of other models behind them may go.
        more = list(candidates[share : share * LOOK_AHEAD])
        kept += _keep_within(more, share - len(kept), room, rooms)
    # Only what is taken is locked: a backlog that waits for a limit is looked at again and again.
    lockable = ready.filter(pk__in=kept).order_by("pk").select_for_update(skip_locked=True, of=("self",))
    return list(lockable.values_list("pk", flat=True)) if kept else []


def _keep_within(found: list[tuple[int, str]], most: int, room: Room, rooms: dict[str, int | None]) -> list[int]:
    kept: list[int] = []
    for run_id, model in found:
        if len(kept) >= most:
            break
        if model not in rooms:
            rooms[model] = room(model) if model else None
        left = rooms[model]
        if left is None:
            kept.append(run_id)
        elif left > 0:
            rooms[model] = left - 1
            kept.append(run_id)
    return kept
