"""Keys of rows that no single index finds: read off one, checked against the rest, never without a bound.

Where that is not enough, the finding says how far it looked, and whoever wants more goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.functions import Cast

LOOKS = (300, 1_700)
"""Rows that are checked at first, where a page is found as a rule, and then."""

Sift = Callable[[Sequence[Any]], Sequence[int]]


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """Keys of rows that belong to a list, the newest first, and how to go on."""

    keys: tuple[int, ...]
    looked_to: int | None
    """The last key that was looked at where looking stopped early; None if ``keys`` are all, or as many as wanted."""


def find_keys(
    streams: Sequence[QuerySet[Any, Any]],
    *,
    limit: int,
    before: int | None = None,
    after: int | None = None,
    time: str = "",
    columns: Sequence[str] = (),
    sift: Sift | None = None,
) -> FoundKeys:
    """Up to ``limit`` keys: the newest behind ``before``, or the oldest ahead of ``after``, which are keys too.

    No two ``streams`` have a row in common, and an index has each in the order of ``time`` and key. ``sift`` gets rows,
    each its key and the values of ``columns``, and gives the keys of those that belong to the list, in their order;
    without it all do. One query for each stream and one for the place, and again where few rows are left.
    """
    found: list[int] = []
    looked_to: int | None = None
    for look in (limit,) if sift is None else (max(LOOKS[0], limit), LOOKS[1]):
        rows, looked_to = _look(streams, before, after, look, time, columns)
        found += [key for key, *_ in rows] if sift is None else sift(rows)
        if sift is None or len(found) >= limit or looked_to is None:
            looked_to = None
            break
        before, after = (looked_to, None) if after is None else (None, looked_to)
    return FoundKeys(tuple(found[:limit] if after is None else reversed(found[:limit])), looked_to)


def read_from(
    streams: Sequence[QuerySet[Any, Any]], *, before: int | None = None, after: int | None = None, time: str = ""
) -> list[QuerySet[Any, Any]]:
    """Of each stream the rows behind the key ``before``, the newest first, or ahead of ``after``, the oldest first.

    With ``time``, one query looks up where that key is.
    """
    sign, direction = ("lt", "-") if after is None else ("gt", "")
    order = [f"{direction}{name}" for name in (time, "pk") if name]
    key = before if after is None else after
    if key is None:
        return [rows.order_by(*order) for rows in streams]
    beyond = Q(**{f"pk__{sign}": key})
    if time:
        # If the row is gone, the time of the one before it stands for its own. Times are compared as the database
        # writes them: SQLite keeps texts, some with fewer digits than Django gives it.
        earlier = streams[0].model._default_manager.filter(pk__lte=key).order_by("-pk")
        moment = earlier.values_list(Cast(time, TextField()), flat=True).first()
        if moment is None:
            return [rows.none() if after is None else rows.order_by(*order) for rows in streams]
        edge = Value(moment, output_field=TextField())
        # The first half bounds the index: SQLite does not seek by OR.
        beyond = Q(**{f"{time}__{sign}e": edge}) & (Q(**{f"{time}__{sign}": edge}) | (Q(**{time: edge}) & beyond))
    return [rows.filter(beyond).order_by(*order) for rows in streams]


def _look(
    streams: Sequence[QuerySet[Any, Any]],
    before: int | None,
    after: int | None,
    look: int,
    time: str,
    columns: Sequence[str],
) -> tuple[Sequence[Sequence[Any]], int | None]:
    """The next rows of all streams together, and the key of the last one if there may be more."""
    names = [name for name in (time, "pk") if name]
    place = len(names)
    rows: list[tuple[Any, ...]] = []
    ends: list[tuple[Any, ...]] = []
    for ordered in read_from(streams, before=before, after=after, time=time):
        part = list(ordered.values_list(*names, *columns)[:look])
        rows += part
        if len(part) == look:
            ends.append(part[-1][:place])
    rows.sort(key=lambda row: row[:place], reverse=after is None)
    if not ends:
        return [row[place - 1 :] for row in rows], None
    # Behind the end of one stream, another one may have rows that would come later than those not read of the first.
    end = max(ends) if after is None else min(ends)
    kept = [row for row in rows if (row[:place] >= end if after is None else row[:place] <= end)]
    return [row[place - 1 :] for row in kept], end[-1]
