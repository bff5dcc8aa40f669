"""Requesting that something be done to many runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q, Sum

from runs.audit_log.events import AuditAction, log_audit_event
from runs.bulk_actions.work import work_on
from runs.filters import RunFilters
from runs.matching_runs import fetch_matching_runs
from runs.models import BulkAction, BulkKind, Run, RunStatus
from runs.models.run import ENDED
from runs.paging import Position

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

MAX_CHOSEN = 1_000
"""Runs that can be chosen one by one."""
MAX_STARTED = 10_000
"""Runs that one action may start."""
MAX_COUNTED = 1_000
"""Runs that a preview counts; of more it only says that there are more."""
PREVIEW_WINDOWS = 5
"""Windows that a preview searches."""
EXAMPLES = 10
_BATCH_SIZE = 5_000
STATUSES = {BulkKind.CANCEL: (RunStatus.QUEUED, RunStatus.RUNNING), BulkKind.RUN_AGAIN: ENDED}
"""Statuses of the runs that an action affects."""


def request_bulk_action(
    *,
    token: UUID,
    kind: BulkKind,
    run_ids: Collection[int],
    filters: RunFilters | None = None,
    uses_live_version: bool = False,
    most: int | None = None,
    asked_by: AbstractBaseUser | None = None,
    is_brief: bool = False,
) -> BulkAction:
    """Store the request to do ``kind`` to these runs, and work on it for about a second, or one batch if ``is_brief``.

    What takes longer is left to a worker. ``filters`` and ``most`` are those that ``fetch_matching`` found the runs by.
    ``token`` names the request: one that comes again gives the action of the first one.
    """
    with transaction.atomic():
        action, is_new = BulkAction.objects.get_or_create(
            token=token,
            defaults={
                "kind": kind,
                "run_ids": list(run_ids),
                "run_count": len(run_ids),
                "is_chosen": filters is None,
                "query": "" if filters is None else filters.to_query(),
                "uses_live_version": uses_live_version,
                "most": most,
                "asked_by_id": asked_by.pk if asked_by else None,
            },
        )
        if is_new:
            details = {"runs": len(run_ids), **({} if action.is_chosen else {"query": action.query[:500]})}
            event = AuditAction.BULK_CANCEL if kind == BulkKind.CANCEL else AuditAction.BULK_RUN_AGAIN
            log_audit_event(action=event, about=action, details=details, actor=asked_by)
    if is_new:
        work_on(action.pk, **({"timeout": 0.0} if is_brief else {}))
        action.refresh_from_db()
    return action


def fetch_matching(kind: BulkKind, filters: RunFilters, *, newest: int, most: int | None = None) -> list[int]:
    """The runs up to number ``newest`` that match and to which ``kind`` does something, the newest first.

    Of runs that are started again no more than ``most`` or ``MAX_STARTED``. Days of filters are those of the active
    time zone.
    """
    limit = None if kind == BulkKind.CANCEL else min(most or MAX_STARTED, MAX_STARTED)
    ids, _ = fetch_with_status(filters, statuses=STATUSES[kind], newest=newest, limit=limit)
    return ids


def preview_matching(kind: BulkKind, filters: RunFilters, *, newest: int) -> dict[str, Any]:
    """The runs that ``fetch_matching`` would give, counted up to a bound."""
    ids, is_complete = fetch_with_status(
        filters, statuses=STATUSES[kind], newest=newest, limit=MAX_COUNTED + 1, windows=PREVIEW_WINDOWS
    )
    return _build_preview(ids[:MAX_COUNTED], is_exact=is_complete and len(ids) <= MAX_COUNTED, left_out=0)


def preview_chosen(kind: BulkKind, run_ids: Collection[int]) -> dict[str, Any]:
    """Those of these runs to which ``kind`` would do something."""
    meant = Run.objects.filter(status__in=STATUSES[kind], pk__in=run_ids).order_by("-created_at", "-pk")
    ids = list(meant.values_list("pk", flat=True))
    return _build_preview(ids, is_exact=True, left_out=len(set(run_ids)) - len(ids))


def fetch_with_status(
    filters: RunFilters,
    *,
    statuses: Collection[RunStatus],
    newest: int,
    limit: int | None,
    windows: int | None = None,
) -> tuple[list[int], bool]:
    """The matching runs up to number ``newest`` in one of ``statuses``, the newest first, and whether it is complete.

    A list of ``limit`` runs counts as complete. After ``windows`` windows the search ends, unless it has found none.
    """
    possible = [status for status in statuses if not filters.statuses or status in filters.statuses]
    if not possible:
        return [], True
    wanted = RunFilters(filters.to_query(status=",".join(possible)))
    ids: list[int] = []
    position: Position | None = None
    while windows is None or windows > 0 or not ids:
        size = _BATCH_SIZE if limit is None else min(_BATCH_SIZE, limit - len(ids))
        found = fetch_matching_runs(wanted, before=position, newest=newest, limit=size)
        ids += found.ids
        position = found.searched_to
        if len(found.ids) == size:
            position = found.positions[-1]
        if position is None or len(ids) == limit:
            return ids, True
        windows = None if windows is None else windows - 1
    return ids, False


def _build_preview(ids: Sequence[int], *, is_exact: bool, left_out: int) -> dict[str, Any]:
    """The runs that would be cancelled or run again: how many, the newest of them, and what they cost."""
    figures = Run.objects.filter(pk__in=ids).aggregate(
        cost=Sum("cost"), unpriced=Sum("unpriced_count"), simulated=Count("pk", filter=Q(is_simulated=True))
    )
    examples = (
        Run.objects.filter(pk__in=ids[:EXAMPLES])
        .select_related("flow", "version")
        .defer("input", "model_settings", "end_sentence", "version__spec")
        .order_by("-created_at", "-pk")
    )
    return {
        "count": len(ids),
        # False if there may be more.
        "is_exact": is_exact,
        "examples": list(examples),
        "cost": figures["cost"],
        "unpriced": figures["unpriced"] or 0,
        "simulated": figures["simulated"],
        # Chosen runs to which nothing would be done.
        "left_out": left_out,
    }
