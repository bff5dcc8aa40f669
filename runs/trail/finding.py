"""Finding entries of the trail by filters: off the index that fits best, and never without a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import QuerySet

from runs.models import TrailEntry
from runs.row_streams import find_keys, read_from

KINDS: Mapping[str, str] = {
    "run": "Run",
    "flow": "Flow",
    "user": "User",
    "group": "Group",
    "apitoken": "API token",
    "bulkaction": "Bulk action",
    "webhookdelivery": "Webhook",
    "ratelimit": "Limit",
}
"""What entries are about, by ``object_kind``."""
MOST_STREAMS = 8
"""Actions that are read each off the index; where more are asked for, they are looked for among all others."""

_CHECKED = ("actor_name", "action", "object_kind", "object_id")


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


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """Entries that match, the newest first, and how to go on."""

    entries: Sequence[TrailEntry]
    looked_to: int | None
    """The number of the last entry that was looked at where looking stopped early: see ``FoundKeys``."""


def find_entries(
    filters: TrailFilters, *, limit: int, before: int | None = None, after: int | None = None
) -> FoundEntries:
    """Up to ``limit`` entries that match, in the order of time: the newest behind ``before``, or the oldest ahead of
    ``after``, which are numbers of entries.
    """
    rows = TrailEntry.objects.all()
    if filters.since is not None:
        rows = rows.filter(at__gte=filters.since)
    if filters.until is not None:
        rows = rows.filter(at__lt=filters.until)
    streams, rest = _choose_streams(rows, replace(filters, since=None, until=None))
    if len(streams) == 1 and rest == TrailFilters():
        (ordered,) = read_from(streams, before=before, after=after, time="at")
        entries = list(ordered[:limit])
        return FoundEntries(entries if after is None else entries[::-1], None)
    found = find_keys(
        streams, limit=limit, before=before, after=after, time="at", columns=_CHECKED, sift=partial(_sift, rest)
    )
    entries = list(TrailEntry.objects.filter(pk__in=found.keys).order_by("-at", "-pk"))
    return FoundEntries(entries, found.looked_to)


def _choose_streams(
    rows: QuerySet[TrailEntry], filters: TrailFilters
) -> tuple[Sequence[QuerySet[TrailEntry]], TrailFilters]:
    """The entries by the filter that fewest match as a rule, each stream in the order of an index, and the others."""
    if filters.object_id:
        kinds = [filters.kind] if filters.kind else list(KINDS)
        own = [rows.filter(object_kind=kind, object_id=filters.object_id) for kind in kinds]
        return own, replace(filters, kind="", object_id="")
    if filters.actor:
        return [rows.filter(actor_name=filters.actor)], replace(filters, actor="")
    if 0 < len(filters.actions) <= MOST_STREAMS:
        by_action = [rows.filter(action=action) for action in sorted(filters.actions)]
        return by_action, replace(filters, actions=frozenset())
    if filters.kind:
        return [rows.filter(object_kind=filters.kind)], replace(filters, kind="")
    return [rows], filters


def _sift(rest: TrailFilters, rows: Sequence[Any]) -> list[int]:
    """The numbers of the entries that match; each row is such a number and the entry’s ``_CHECKED``."""
    return [
        number
        for number, actor, action, kind, object_id in rows
        if (not rest.actor or actor == rest.actor)
        and (not rest.actions or action in rest.actions)
        and (not rest.kind or kind == rest.kind)
        and (not rest.object_id or object_id == rest.object_id)
    ]
