"""Which runs hold what is searched for. Only runs that have ended are found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db import connection

from runs.search import postgresql, sqlite
from runs.search.queries import SearchQuery


@dataclass(frozen=True, slots=True)
class Hits:
    """Numbers of all runs that match, in no order."""

    ids: list[int]
    is_exact: bool = True
    """False if some of them may not hold the words next to each other, as a phrase asks for."""


def list_matching(query: SearchQuery, *, limit: int) -> Hits | None:
    """All runs that match; None if they are more than ``limit``."""
    if connection.vendor == "postgresql":
        ids, is_exact = postgresql.list_matching(query, limit=limit + 1)
    else:
        ids, is_exact = sqlite.list_matching(query, limit=limit + 1), True
    return None if len(ids) > limit else Hits(ids, is_exact)


def select_matching(query: SearchQuery, run_ids: Collection[int]) -> set[int]:
    """Those of ``run_ids`` whose runs match."""
    if not run_ids:
        return set()
    select = postgresql.select_matching if connection.vendor == "postgresql" else sqlite.select_matching
    return select(query, run_ids)
