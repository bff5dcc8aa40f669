"""Finding entries of the trail by filters: off the index that fits best, and never without a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_

from django.db.models import Q, QuerySet

from runs.models import TrailEntry
from runs.paging import Found, Stream, check, scan

KINDS: Mapping[str, str] = {
    "run": "Run",
    "flow": "Flow",
    "user": "User",
    "group": "Group",
    "apitoken": "API token",
    "bulkaction": "Bulk action",
    "webhookdelivery": "Webhook",
    "webhookendpoint": "Webhook endpoint",
    "ratelimit": "Limit",
}
"""What entries are about, by ``object_kind``."""
MOST_STREAMS = 8
"""Actions that are read each off the index; where more are asked for, they are looked for among all others."""


@dataclass(frozen=True, slots=True)
class TrailFilters:
    """Which entries are meant; what is empty or None doesn't filter."""

    actor: str = ""
    actions: frozenset[str] = frozenset()
    kind: str = ""
    object_id: str = ""
    """Of a thing of ``kind``; without that, of those of any of ``KINDS``."""
    since: datetime | None = None
    until: datetime | None = None
    """The first moment that is too late."""


def find_entries(
    filters: TrailFilters, *, limit: int, before: int | None = None, after: int | None = None
) -> tuple[dict[int, TrailEntry], Found]:
    """Up to ``limit`` entries that match: the newest behind ``before``, or the oldest ahead of ``after``, both numbers.

    Gives them by number, the newest first, and where the search can continue.
    """
    rows = TrailEntry.objects.all()
    if filters.since is not None:
        rows = rows.filter(at__gte=filters.since)
    if filters.until is not None:
        rows = rows.filter(at__lt=filters.until)
    streams, rest = _choose_streams(rows, filters)
    found = scan(streams, limit=limit, before=before, after=after, matches=check(rest) if rest else None)
    entries = TrailEntry.objects.in_bulk(found.ids)
    return {number: entries[number] for number in found.ids if number in entries}, found


def _choose_streams(rows: QuerySet[TrailEntry], filters: TrailFilters) -> tuple[Sequence[Stream], Q]:
    """The entries by the filter that fewest match as a rule, each stream in the order of an index, and the others."""
    conditions = {
        "actor": Q(actor_name=filters.actor) if filters.actor else Q(),
        "actions": Q(action__in=filters.actions) if filters.actions else Q(),
        "kind": Q(object_kind=filters.kind) if filters.kind else Q(),
    }
    if filters.object_id:
        conditions.pop("kind")
        own = rows.filter(object_id=filters.object_id)
        kinds = [filters.kind] if filters.kind else list(KINDS)
        streams = [Stream.of(own, "object_kind", kind, time="at") for kind in kinds]
    elif conditions.pop("actor"):
        streams = [Stream.of(rows, "actor_name", filters.actor, time="at")]
    elif 0 < len(filters.actions) <= MOST_STREAMS:
        conditions.pop("actions")
        streams = [Stream.of(rows, "action", action, time="at") for action in sorted(filters.actions)]
    elif filters.kind:
        conditions.pop("kind")
        streams = [Stream.of(rows, "object_kind", filters.kind, time="at")]
    else:
        streams = [Stream(rows, time="at")]
    return streams, reduce(and_, conditions.values(), Q())
