"""Pages of lists that no single index answers: see ``runs.paging``.

Where looking stops early the page says how far it looked, and ``next`` goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models.expressions import Combinable

from runs.api.paging import Page, Paging, Turn
from runs.paging import Found, Position, Stream, cut_page, scan

STOPS_EARLY = (
    "Filters that find little among very much may stop early: then a page has fewer items than `limit`, or none, and "
    "`next` goes on from where it stopped. The list ends where `next` is null."
)
"""What the documentation says of such lists."""


def find_page(streams: Sequence[Stream], paging: Paging[int], *, matches: Combinable | None = None) -> Page[int]:
    """The keys of a page, the greatest first, read off ``streams`` and checked: see ``scan``."""
    found = scan(streams, limit=paging.limit + 1, before=paging.before, after=paging.after, matches=matches)
    return cut_found(found.ids, found.looked_to, paging)


def cut_found(ids: Sequence[int], looked_to: int | None, paging: Paging[int]) -> Page[int]:
    """The page that keys make, the greatest first: one more was looked for than the page holds.

    ``looked_to`` is the last key that was looked at where looking ended before it had found so many.
    """
    searched_to = None if looked_to is None else Position("", looked_to)
    found = Found([Position("", key) for key in ids], searched_to)
    page = cut_page(found, limit=paging.limit, before=paging.before, after=paging.after)
    return Page(page.keys, next=_write(page.older), previous=_write(page.newer))


def _write(turn: Mapping[str, int] | None) -> Turn | None:
    return None if turn is None else {name: str(key) for name, key in turn.items()}
