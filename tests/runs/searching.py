"""Searching as somebody does who looks further until there is no more."""

from __future__ import annotations

from runs.run_filters import RunFilters, find_runs
from runs.search import SearchQuery


def search_runs(
    query: SearchQuery, *, before: int | None = None, after: int | None = None, limit: int = 50
) -> list[int]:
    """The runs that match, however far they are looked for."""
    found: list[int] = []
    filters = RunFilters(search=query.text)
    while True:
        part = find_runs(filters, before=before, after=after, limit=limit - len(found))
        found = [*part.ids, *found] if after is not None else [*found, *part.ids]
        if part.looked_to is None:
            return found
        before, after = (None, part.looked_to) if after is not None else (part.looked_to, None)
