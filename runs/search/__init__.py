"""Search in what runs were given, what came out, and what was wrong with it. A run is found once it has ended."""

from runs.search.excerpts import Excerpt, find_excerpts
from runs.search.index import empty_index, fetch_matching_among, fetch_matching_ids, forget_runs, index_runs
from runs.search.words import SearchQuery, parse_search

__all__ = [
    "Excerpt",
    "SearchQuery",
    "empty_index",
    "fetch_matching_among",
    "fetch_matching_ids",
    "find_excerpts",
    "forget_runs",
    "index_runs",
    "parse_search",
]
