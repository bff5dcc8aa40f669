"""Search in what runs were given, what came out, and what was wrong with it. A run is found once it has ended."""

from runs.search.excerpts import Excerpt, find_excerpts
from runs.search.index import Hits, empty_index, forget_runs, index_runs, list_matching, select_matching
from runs.search.words import SearchQuery, read_query

__all__ = [
    "Excerpt",
    "Hits",
    "SearchQuery",
    "empty_index",
    "find_excerpts",
    "forget_runs",
    "index_runs",
    "list_matching",
    "read_query",
    "select_matching",
]
