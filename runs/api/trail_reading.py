"""Reading the trail by its filters: off the index that fits best, and never without a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import QuerySet

from runs.api.looking import cut_found, find_page
from runs.api.paging import Page, Paging, read_page
from runs.models import TrailEntry

MOST_STREAMS = 8
"""Actions that are read each off the index; where more are asked for, all entries are looked at."""
DISORDER = 200
"""Entries next to a bound of time whose numbers may be the other way round."""

_CHECKED = ("actor_name", "action", "object_kind", "at")


@dataclass(frozen=True, slots=True)
class TrailFilters:
    """Which entries are meant; what is empty or None doesn't filter. ``object_id`` comes with ``kind`` only."""

    actor: str = ""
    actions: frozenset[str] = frozenset()
    kind: str = ""
    object_id: str = ""
    since: datetime | None = None
    until: datetime | None = None
    """The first moment that is too late."""


def read_trail_page(filters: TrailFilters, paging: Paging[int]) -> Page[TrailEntry]:
    """The page of the entries that match, the newest first."""
    rows = _find_span(filters)
    if rows is None:
        return _load(cut_found((), None, paging))
    streams, rest = _choose_streams(rows, filters)
    if rest == TrailFilters() and len(streams) == 1:
        return read_page(streams[0], paging, column="pk", key_of=lambda row: row.pk, is_descending=True)
    sift = None if rest == TrailFilters() else partial(_sift, rest)
    return _load(find_page(streams, paging, columns=_CHECKED, sift=sift))


def _load(found: Page[int]) -> Page[TrailEntry]:
    rows = TrailEntry.objects.filter(pk__in=found.rows).order_by("-pk")
    return Page(rows=list(rows), next=found.next, previous=found.previous)


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


def _choose_streams(
    rows: QuerySet[TrailEntry], filters: TrailFilters
) -> tuple[list[QuerySet[TrailEntry]], TrailFilters]:
    """The entries in the order of an index, as few as one filter leaves, and the filters that are left to check."""
    if filters.object_id:
        own = rows.filter(object_kind=filters.kind, object_id=filters.object_id)
        return [own], replace(filters, kind="", object_id="")
    if filters.actor:
        return [rows.filter(actor_name=filters.actor)], replace(filters, actor="")
    if 0 < len(filters.actions) <= MOST_STREAMS:
        streams = [rows.filter(action=action) for action in sorted(filters.actions)]
        return streams, replace(filters, actions=frozenset())
    return [rows], filters


def _sift(rest: TrailFilters, rows: Sequence[Any]) -> list[int]:
    """The numbers of the entries that match; each row is such a number and the entry’s ``_CHECKED``."""
    return [
        number
        for number, actor, action, kind, at in rows
        if (not rest.actor or actor == rest.actor)
        and (not rest.actions or action in rest.actions)
        and (not rest.kind or kind == rest.kind)
        and (rest.since is None or at >= rest.since)
        and (rest.until is None or at < rest.until)
    ]
