"""Reading the audit log by filters, in the order of time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet, Subquery

from runs.models import AuditEntry

KINDS: Mapping[str, str] = {
    "run": "Run",
    "flow": "Flow",
    "user": "User",
    "group": "Group",
    "apitoken": "API token",
    "backtest": "Backtest",
    "bulkaction": "Bulk action",
    "webhookdelivery": "Webhook",
    "webhookendpoint": "Webhook endpoint",
    "ratelimit": "Limit",
}
"""What entries are about, by ``object_kind``."""


def filter_entries(
    *,
    actor: str = "",
    actions: Collection[str] = (),
    kind: str = "",
    object_id: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[AuditEntry]:
    """The entries that match, in no order; what is empty or None does not filter.

    ``object_id`` is that of a thing of ``kind``, else of any of ``KINDS``. ``until`` itself is too late.
    """
    conditions: dict[str, Any] = {
        "actor_name": actor,
        "action__in": actions,
        "object_kind__in": [kind] if kind else list(KINDS) if object_id else [],
        "object_id": object_id,
        "at__gte": since,
        "at__lt": until,
    }
    return AuditEntry.objects.filter(**{name: value for name, value in conditions.items() if value})


def fetch_entries(
    rows: QuerySet[AuditEntry], *, limit: int, before: int | None = None, after: int | None = None
) -> list[AuditEntry]:
    """Up to ``limit`` of ``rows``, the newest first: the newest behind ``before``, or the oldest ahead of ``after``.

    Both are numbers of entries, which may have been purged.
    """
    if after is not None:
        at = Subquery(AuditEntry.objects.filter(pk__gte=after).order_by("pk").values("at")[:1])
        newer = rows.filter(Q(at__gt=at) | Q(pk__gt=after), at__gte=at)
        return list(newer.order_by("at", "pk")[:limit])[::-1]
    if before is not None:
        at = Subquery(AuditEntry.objects.filter(pk__lte=before).order_by("-pk").values("at")[:1])
        rows = rows.filter(Q(at__lt=at) | Q(pk__lt=before), at__lte=at)
    return list(rows.order_by("-at", "-pk")[:limit])


def iterate_entries(rows: QuerySet[AuditEntry], *, batch_size: int, limit: int) -> Iterator[Sequence[AuditEntry]]:
    """Up to ``limit`` of ``rows``, the newest first, in batches."""
    before: int | None = None
    while limit > 0:
        entries = fetch_entries(rows, limit=min(batch_size, limit), before=before)
        if not entries:
            return
        yield entries
        limit -= len(entries)
        before = entries[-1].pk
