"""Finding the runs that hold what is looked for, the newest first, at any depth."""

from __future__ import annotations

from django.db import connection

from runs.search import postgresql, sqlite
from runs.search.hits import Hits
from runs.search.queries import SearchQuery

LAST_RUN = 2**63 - 1


def look_for_runs(query: SearchQuery, *, before: int | None = None, after: int | None = None, limit: int = 50) -> Hits:
    """Numbers of up to ``limit`` runs that match, the newest first: the newest below ``before``, or the oldest above
    ``after``. Only runs that have ended are found.

    There is a bound on the work: it may stop early, and says how far it looked. That happens where words are found in
    very many runs, but hardly ever one after the other as a phrase asks for.
    """
    if limit <= 0:
        return Hits([])
    look = postgresql.look_for_runs if connection.vendor == "postgresql" else sqlite.look_for_runs
    if after is not None:
        return look(query, lowest=after + 1, highest=LAST_RUN, limit=limit, is_upwards=True)
    highest = LAST_RUN if before is None else before - 1
    return look(query, lowest=1, highest=highest, limit=limit, is_upwards=False)
