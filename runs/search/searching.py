"""Finding the runs that hold what is looked for, the newest first, at any depth."""

from __future__ import annotations

from django.db import connection

from runs.search import postgresql, sqlite
from runs.search.hits import Hits
from runs.search.queries import SearchQuery

LAST_RUN = 2**63 - 1


def search_runs(
    query: SearchQuery, *, before: int | None = None, after: int | None = None, limit: int = 50
) -> list[int]:
    """Numbers of up to ``limit`` runs that match, the newest first: the newest below ``before``, or the oldest above
    ``after``. Only runs that have ended are found. Looks until it has them all: see ``look_for_runs``."""
    found: list[int] = []
    while True:
        hits = look_for_runs(query, before=before, after=after, limit=limit - len(found))
        found = hits.ids + found if after is not None else found + hits.ids
        if hits.looked_to is None:
            return found
        before, after = (None, hits.looked_to) if after is not None else (hits.looked_to, None)


def look_for_runs(query: SearchQuery, *, before: int | None = None, after: int | None = None, limit: int = 50) -> Hits:
    """Like ``search_runs``, with a bound on the work: it may stop early, and says how far it looked.

    That happens where words are found in very many runs, but hardly ever one after the other as a phrase asks for.
    """
    if limit <= 0:
        return Hits([])
    look = postgresql.look_for_runs if connection.vendor == "postgresql" else sqlite.look_for_runs
    if after is not None:
        return look(query, lowest=after + 1, highest=LAST_RUN, limit=limit, is_upwards=True)
    highest = LAST_RUN if before is None else before - 1
    return look(query, lowest=1, highest=highest, limit=limit, is_upwards=False)
