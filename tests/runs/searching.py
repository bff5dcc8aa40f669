"""Searching as somebody does who looks further until there is no more."""

from __future__ import annotations

from runs.search import SearchQuery, look_for_runs


def search_runs(
    query: SearchQuery, *, before: int | None = None, after: int | None = None, limit: int = 50
) -> list[int]:
    """Like ``look_for_runs``, however far it has to look."""
    found: list[int] = []
    while True:
        hits = look_for_runs(query, before=before, after=after, limit=limit - len(found))
        found = hits.ids + found if after is not None else found + hits.ids
        if hits.looked_to is None:
            return found
        before, after = (None, hits.looked_to) if after is not None else (hits.looked_to, None)
