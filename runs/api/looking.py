"""Pages of lists that no single index answers: see ``runs.row_streams``.

Where looking stops early the page says how far it looked, and ``next`` goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from runs.api.paging import Page, Paging, Turn
from runs.prepared_select import LARGEST_NUMBER
from runs.row_streams import Sift, find_keys

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
    """The keys of a page, the greatest first, read off ``streams`` and sifted: see ``find_keys``."""
    limit = paging.limit + 1
    found = find_keys(streams, limit=limit, before=paging.before, after=paging.after, columns=columns, sift=sift)
    return cut_found(found.keys, found.looked_to, paging)


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
