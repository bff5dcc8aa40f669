"""The way from one page of a list to the next, where pages are found by the keys that they begin or end at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runs.prepared_select import LARGEST_NUMBER


@dataclass(frozen=True, slots=True)
class ListTurns:
    """Where the pages beside one lie; empty where there is none."""

    newer_url: str = ""
    older_url: str = ""
    newest_url: str = ""
    """Leads to the first page; empty on it."""
    looked_to: int | None = None
    """The last key that was looked at, where looking stopped early."""
    is_upwards: bool = False
    """Whether newer rows than those of another page were looked for."""

    @property
    def further_url(self) -> str:
        """Where looking goes on that stopped early; empty if it did not."""
        if self.looked_to is None:
            return ""
        return self.newer_url if self.is_upwards else self.older_url


def turn_pages(
    found: Sequence[int],
    looked_to: int | None,
    *,
    page_size: int,
    before: int | None,
    after: int | None,
    build_url: Callable[..., str],
) -> tuple[Sequence[int], ListTurns]:
    """The keys of a page and the ways from it.

    ``found`` are keys, the greatest first, one more than a page has if there are so many: those below ``before`` or
    right above ``after``. ``looked_to`` is the last key that was looked at if looking stopped early. ``build_url``
    takes ``before`` or ``after``.
    """
    is_full = len(found) > page_size
    # With ``after``, the row too many is the newest one.
    keys = found[-page_size:] if after is not None else found[:page_size]
    newest_url = build_url() if before is not None or after is not None else ""
    if after is not None:
        onward = keys[0] if is_full else looked_to
        newer_url = "" if onward is None else build_url(after=onward)
        older_url = build_url(before=keys[-1] if keys else min(after + 1, LARGEST_NUMBER))
    else:
        onward = keys[-1] if is_full else looked_to
        older_url = "" if onward is None else build_url(before=onward)
        newer_url = "" if before is None else build_url(after=keys[0] if keys else max(before - 1, 0))
    return keys, ListTurns(newer_url, older_url, newest_url, looked_to, after is not None)
