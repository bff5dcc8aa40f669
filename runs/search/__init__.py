"""Search in what runs were given, what came out, and what was wrong with it.

A run is found once it has ended: ``index_runs`` stores its words (``documents``; what a word is says ``words``) in a
table with an index of the database's own kind (``sqlite``, ``postgresql``). ``read_query`` reads what somebody typed,
``list_matching`` and ``select_matching`` find runs, ``find_excerpts`` shows where in a run the words stand.
"""

from runs.search.excerpts import Excerpt, find_excerpts
from runs.search.indexing import index_runs, reindex_runs
from runs.search.queries import SearchQuery, read_query
from runs.search.searching import Hits, list_matching, select_matching

__all__ = [
    "Excerpt",
    "Hits",
    "SearchQuery",
    "find_excerpts",
    "index_runs",
    "list_matching",
    "read_query",
    "reindex_runs",
    "select_matching",
]
