"""Pages of lists that no single index answers: rows are read off one, checked against the rest, never without a bound.

Where that is not enough for a page, the page says how far it looked, and ``next`` goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from django.db.models import QuerySet

from runs.api.paging import LARGEST_NUMBER, Page, Paging, Turn

Sift = Callable[[Sequence[Any]], Sequence[int]]

LOOKS = (300, 1_700)
"""Rows that are checked at first, where a page is found as a rule, and then."""

STOPS_EARLY = (
    "Filters that find little among very much may stop early: then a page has fewer items than `limit`, or none, and "
    "`next` goes on from where it stopped. The list ends where `next` is null."
)
"""What the documentation says of such lists."""


def find_page(
    streams: Sequence[QuerySet[Any, Any]],
    paging: Paging[int],
    *,
    columns: Sequence[str] = (),
    sift: Sift | None = None,
) -> Page[int]:
    """The keys of a page, the greatest first.

    No two ``streams`` have a row in common, and an index has each in the order of its keys. ``sift`` gets rows, each
    its key and the values of ``columns``, and gives the keys of those that belong to the list, in their order; without
    it all do. One query for each stream, and another one where few rows are left.
    """
    is_upwards = paging.after is not None
    wanted = paging.limit + 1
    found: list[int] = []
    place = paging.after if is_upwards else paging.before
    looked_to: int | None = None
    for look in (max(LOOKS[0], wanted), LOOKS[1]) if sift is not None else (wanted,):
        rows, looked_to = _look(streams, place, look, columns, is_upwards=is_upwards)
        found += sift(rows) if sift is not None else [row[0] for row in rows]
        if len(found) >= wanted or looked_to is None:
            looked_to = None
            break
        place = looked_to
    return cut_found(sorted(found[:wanted], reverse=True), looked_to, paging)


def _look(
    streams: Sequence[QuerySet[Any, Any]], place: int | None, look: int, columns: Sequence[str], *, is_upwards: bool
) -> tuple[list[Any], int | None]:
    """The next rows of all streams together, and the last key that was looked at if there may be more."""
    rows: list[Any] = []
    ends: list[int] = []
    for stream in streams:
        if place is not None:
            stream = stream.filter(**{"pk__gt" if is_upwards else "pk__lt": place})
        part = list(stream.order_by("pk" if is_upwards else "-pk").values_list("pk", *columns)[:look])
        rows += part
        if len(part) == look:
            ends.append(part[-1][0])
    rows.sort(key=itemgetter(0), reverse=not is_upwards)
    if not ends:
        return rows, None
    # Behind the end of one stream, another one may have rows that would come later than those not read of the first.
    end = min(ends) if is_upwards else max(ends)
    return [row for row in rows if (row[0] <= end if is_upwards else row[0] >= end)], end


def cut_found(ids: Sequence[int], looked_to: int | None, paging: Paging[int]) -> Page[int]:
    """The page that keys make, the greatest first: one more was looked for than the page holds.

    ``looked_to`` is the last key that was looked at where looking ended before it had found so many.
    """
    is_backward = paging.after is not None
    is_full = len(ids) > paging.limit
    kept = ids[-paging.limit :] if is_backward else ids[: paging.limit]
    onward: Turn | None = None
    if is_full or looked_to is not None:
        last = kept[0 if is_backward else -1] if is_full else looked_to
        onward = {"after" if is_backward else "before": str(last)}
    if paging.after is not None:
        back = kept[-1] if kept else min(paging.after + 1, LARGEST_NUMBER)
        return Page(kept, next={"before": str(back)}, previous=onward)
    if paging.before is None:
        return Page(kept, next=onward, previous=None)
    back = kept[0] if kept else paging.before - 1
    # Before row 1 there is nothing; the newest rows are what leads to all others.
    return Page(kept, next=onward, previous={"after": str(back)} if back else {})
