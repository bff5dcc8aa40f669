"""Keys of rows that no single index finds: read off one, checked against the rest, never without a bound.

Where that is not enough, the finding says how far it looked, and whoever wants more goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from django.db.models import QuerySet

LOOKS = (300, 1_700)
"""Rows that are checked at first, where a page is found as a rule, and then."""
PROBED = 500
"""Rows of each way of reading that are counted to find the rarest one."""

Sift = Callable[[Sequence[Any]], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the rows of a list.

    No two ``streams`` have a row in common, and an index has each in the order of its keys. ``sift`` gets rows, each
    its key and the values of ``columns``, and gives the keys of those that belong to the list, in their order; without
    it all do.
    """

    streams: Sequence[QuerySet[Any, Any]]
    columns: Sequence[str] = ()
    sift: Sift | None = None


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """Keys of rows that belong to a list, the greatest first, and how to go on."""

    keys: tuple[int, ...]
    looked_to: int | None
    """The last key that was looked at where looking stopped early; None if ``keys`` are all, or as many as wanted."""


def find_keys(
    readings: Sequence[Reading], *, limit: int, before: int | None = None, after: int | None = None
) -> FoundKeys:
    """Up to ``limit`` keys: the greatest below ``before``, or the least above ``after``.

    All ``readings`` are of the same list. The first is tried, and where that is not enough the one that has the fewest
    rows. One query for each stream, and again where few rows are left; more for each reading if there are several.
    """
    reading = readings[0]
    if reading.sift is None:
        rows, _ = _look(reading, before, after, limit)
        return FoundKeys(_order([row[0] for row in rows], limit, after), None)
    found: list[int] = []
    looked_to: int | None = None
    for turn, look in enumerate((max(LOOKS[0], limit), LOOKS[1])):
        if turn == 1 and len(readings) > 1:
            # It pays to find out which is the rarest only where any of them was not enough.
            reading = min(readings, key=lambda one: _weigh(one, before, after))
        rows, looked_to = _look(reading, before, after, look)
        found += reading.sift(rows) if reading.sift is not None else [row[0] for row in rows]
        if len(found) >= limit or looked_to is None:
            return FoundKeys(_order(found, limit, after), None)
        before, after = (looked_to, None) if after is None else (None, looked_to)
    return FoundKeys(_order(found, limit, after), looked_to)


def _order(found: Sequence[int], limit: int, after: int | None) -> tuple[int, ...]:
    return tuple(found[:limit] if after is None else reversed(found[:limit]))


def _weigh(reading: Reading, before: int | None, after: int | None) -> tuple[int, int]:
    """How many rows are ahead, up to a bound; of very many, those that lie the farthest apart are fewer."""
    rows, _ = _look(Reading(reading.streams), before, after, PROBED)
    last = rows[min(PROBED, len(rows)) - 1][0] if rows else 0
    return min(PROBED, len(rows)), last if after is None else -last


def _look(
    reading: Reading, before: int | None, after: int | None, look: int
) -> tuple[Sequence[Sequence[Any]], int | None]:
    """The next rows of all streams together, and the last key that was looked at if there may be more."""
    rows: list[Sequence[Any]] = []
    ends: list[int] = []
    for stream in reading.streams:
        if after is not None:
            stream = stream.filter(pk__gt=after)
        elif before is not None:
            stream = stream.filter(pk__lt=before)
        part = list(stream.order_by("-pk" if after is None else "pk").values_list("pk", *reading.columns)[:look])
        rows += part
        if len(part) == look:
            ends.append(part[-1][0])
    rows.sort(key=itemgetter(0), reverse=after is None)
    if not ends:
        return rows, None
    # Behind the end of one stream, another one may have rows that would come later than those not read of the first.
    end = max(ends) if after is None else min(ends)
    return [row for row in rows if (row[0] >= end if after is None else row[0] <= end)], end
