"""Finding entries of the trail by filters: off the index that fits best, and never without a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import QuerySet

from runs.models import TrailEntry
from runs.row_streams import Reading, find_keys

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
DISORDER = 200
"""Entries next to a bound of time whose numbers may be the other way round."""

_CHECKED = ("actor_name", "action", "object_kind", "object_id", "at")


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
    """Up to ``limit`` entries that match: the newest below ``before``, or the oldest above ``after``."""
    rows = _find_span(filters)
    if rows is None:
        return FoundEntries((), None)
    readings = list(_list_readings(rows, filters))
    if len(readings) == 1 and readings[0].sift is None and len(readings[0].streams) == 1:
        return FoundEntries(_read_whole(readings[0].streams[0], limit, before, after), None)
    found = find_keys(readings, limit=limit, before=before, after=after)
    return FoundEntries(list(TrailEntry.objects.filter(pk__in=found.keys).order_by("-pk")), found.looked_to)


def _read_whole(
    stream: QuerySet[TrailEntry], limit: int, before: int | None, after: int | None
) -> Sequence[TrailEntry]:
    """The same in one query, where all rows of a stream match."""
    if after is not None:
        return list(stream.filter(pk__gt=after).order_by("pk")[:limit])[::-1]
    if before is not None:
        stream = stream.filter(pk__lt=before)
    return list(stream.order_by("-pk")[:limit])


def _find_span(filters: TrailFilters) -> QuerySet[TrailEntry] | None:
    """The entries between the numbers that the days come to, roughly; None if no entry can match.

    Entries are numbered very nearly in the order in which they come; each is checked against the days too.
    """
    rows = TrailEntry.objects.all()
    if filters.since is not None:
        first = TrailEntry.objects.filter(at__gte=filters.since).order_by("at", "pk")
        if not (numbers := list(first.values_list("pk", flat=True)[:DISORDER])):
            return None
        rows = rows.filter(pk__gte=min(numbers))
    if filters.until is not None:
        last = TrailEntry.objects.filter(at__lt=filters.until).order_by("-at", "-pk")
        if not (numbers := list(last.values_list("pk", flat=True)[:DISORDER])):
            return None
        rows = rows.filter(pk__lte=max(numbers))
    return rows


def _list_readings(rows: QuerySet[TrailEntry], filters: TrailFilters) -> Sequence[Reading]:
    """The ways to read the entries in the order of an index, each by one filter and checked against the others."""
    readings: list[Reading] = []

    def add(streams: Sequence[QuerySet[TrailEntry]], rest: TrailFilters) -> None:
        sift = None if rest == TrailFilters() else partial(_sift, rest)
        readings.append(Reading(streams, _CHECKED if sift else (), sift))

    if filters.object_id:
        kinds = [filters.kind] if filters.kind else list(KINDS)
        own = [rows.filter(object_kind=kind, object_id=filters.object_id) for kind in kinds]
        add(own, replace(filters, kind="", object_id=""))
    if filters.actor:
        add([rows.filter(actor_name=filters.actor)], replace(filters, actor=""))
    if 0 < len(filters.actions) <= MOST_STREAMS:
        streams = [rows.filter(action=action) for action in sorted(filters.actions)]
        add(streams, replace(filters, actions=frozenset()))
    if filters.kind and not filters.object_id:
        add([rows.filter(object_kind=filters.kind)], replace(filters, kind=""))
    if not readings:
        add([rows], filters)
    return readings


def _sift(rest: TrailFilters, rows: Sequence[Any]) -> list[int]:
    """The numbers of the entries that match; each row is such a number and the entry’s ``_CHECKED``."""
    return [
        number
        for number, actor, action, kind, object_id, at in rows
        if (not rest.actor or actor == rest.actor)
        and (not rest.actions or action in rest.actions)
        and (not rest.kind or kind == rest.kind)
        and (not rest.object_id or object_id == rest.object_id)
        and (rest.since is None or at >= rest.since)
        and (rest.until is None or at < rest.until)
    ]
