"""The way from one page of a list to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runs.paging import Found, cut_page


@dataclass(frozen=True, slots=True)
class ListTurns:
    """Where the pages beside one lie; empty where there is none."""

    newer_url: str = ""
    older_url: str = ""
    newest_url: str = ""
    """Leads to the first page; empty on it."""
    searched_key: int | None = None
    """The key of the last row that was checked, where the search ended before the page was full."""
    is_upwards: bool = False
    """Whether newer rows than those of another page were searched for."""

    @property
    def further_url(self) -> str:
        """Where the search continues that ended early; empty if it did not."""
        if self.searched_key is None:
            return ""
        return self.newer_url if self.is_upwards else self.older_url


def turn_pages(
    found: Found, *, page_size: int, before: int | None, after: int | None, build_url: Callable[..., str]
) -> tuple[Sequence[int], ListTurns]:
    """The keys of a page and the ways from it; ``build_url`` takes ``before`` or ``after``."""
    page = cut_page(found, limit=page_size, before=before, after=after)
    newest_url = build_url() if before is not None or after is not None else ""
    newer, older = ("" if turn is None else build_url(**turn) for turn in (page.newer, page.older))
    return page.keys, ListTurns(newer, older, newest_url, page.searched_to, after is not None)
