"""Asking for something to be done to many runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from runs.bulk_actions.working import narrow_filters, work_on
from runs.filters import RunFilters, find_runs
from runs.models import BulkAction, BulkKind, Run
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

MOST_CHOSEN = 1_000
"""Runs that can be chosen one by one."""
MOST_STARTED = 10_000
"""Runs that one action may start."""
REQUEST_PATIENCE = 1.0
"""Seconds that whoever asks may wait: enough for a page of runs."""


def request_bulk_action(
    *,
    token: UUID,
    kind: BulkKind,
    run_ids: Collection[int] | None,
    query: str = "",
    newest: int = 0,
    uses_live_version: bool = False,
    most: int | None = None,
    expected: int | None = None,
    asked_by: AbstractBaseUser | None = None,
    patience: float | None = None,
) -> BulkAction:
    """Do ``kind`` to the runs of ``run_ids``, or, if that is None, to all up to ``newest`` that match ``query``.

    It is begun at once; what takes longer is left to a worker. ``token`` names the request: one that comes again gives
    the action that the first one made. ``most`` is how many runs may be started, at most ``MOST_STARTED``.
    ``expected`` is how many runs it was confirmed for, where all that match are meant and were counted. Days of filters
    are those of the active time zone. ``patience`` is for how many seconds it is worked on here, usually
    ``REQUEST_PATIENCE``; whoever asks within a transaction gives 0, so that it holds one batch of runs at most.

    Raises ``ValueError`` with a sentence if a filter of ``query`` makes no sense: nothing must be done to other runs
    than those that were meant.
    """
    if run_ids is not None:
        chosen = sorted(set(run_ids), reverse=True)[:MOST_CHOSEN]
        newest = max(chosen, default=0)
        limits: dict[str, Any] = {"oldest": min(chosen, default=0)}
    else:
        chosen = None
        limits = _find_limits(kind, _read_query(query), newest)
    if kind == BulkKind.RUN_AGAIN:
        most = min(MOST_STARTED if most is None else most, MOST_STARTED)
    with transaction.atomic():
        action, is_new = BulkAction.objects.get_or_create(
            token=token,
            defaults={
                "kind": kind,
                "run_ids": chosen,
                "query": query,
                "newest": newest,
                "position": newest + 1,
                **limits,
                "time_zone": timezone.get_current_timezone_name(),
                "uses_live_version": uses_live_version,
                "most": most,
                "expected": expected,
                "asked_by_id": asked_by.pk if asked_by else None,
            },
        )
        if is_new:
            leave_trail(
                action=TrailAction.BULK_CANCEL if kind == BulkKind.CANCEL else TrailAction.BULK_RUN_AGAIN,
                about=action,
                details={"runs": len(chosen)} if chosen is not None else {"query": query[:500], "runs": expected},
                actor=asked_by,
            )
    if is_new:
        work_on(action_id=action.pk, turn=action.turn, patience=REQUEST_PATIENCE if patience is None else patience)
        action.refresh_from_db()
    return action


def _find_limits(kind: BulkKind, filters: RunFilters, newest: int) -> dict[str, Any]:
    """The last run that matches, and when it and the first one were created: to say how far the work is."""
    wanted = narrow_filters(kind, filters)
    if wanted is None:
        return {"oldest": 0}
    first, last = find_runs(wanted, newest=newest, limit=1), find_runs(wanted, after=0, newest=newest, limit=1)
    created = dict(Run.objects.filter(pk__in=[*first.ids, *last.ids]).values_list("pk", "created_at"))
    return {
        "oldest": last.ids[0] if last.ids else 0,
        "newest_at": created.get(first.ids[0]) if first.ids else None,
        "oldest_at": created.get(last.ids[0]) if last.ids else None,
    }


def _read_query(query: str) -> RunFilters:
    filters = RunFilters(query)
    if filters.problems:
        raise ValueError(" ".join(problem.message for problem in filters.problems))
    return filters
