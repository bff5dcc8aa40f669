"""Search in what runs were given, what came out, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Words to look for, as ``read_query`` understood them."""

    words: tuple[str, ...]


def read_query(text: str) -> SearchQuery:
    """What somebody typed into a search field. Raises ``ValueError`` with a sentence if nothing can be looked for."""
    return SearchQuery(tuple(text.split()))


def search_runs(
    query: SearchQuery, *, before: int | None = None, after: int | None = None, limit: int = 50
) -> list[int]:
    """Numbers of up to ``limit`` runs that hold all words, the newest first: the newest below ``before``, or the
    oldest above ``after``. Only runs that have ended are found."""
    return []


def index_runs(run_ids: Collection[int]) -> None:
    """Make the texts of runs that have ended searchable; within the transaction that marks them as tallied."""
