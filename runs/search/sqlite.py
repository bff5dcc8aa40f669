"""Words of runs in SQLite: a table with each run's words, and an FTS5 index over it that triggers keep."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connection

from runs.search.documents import Document
from runs.search.hits import Hits
from runs.search.queries import SearchQuery, Term


def store_documents(documents: Mapping[int, Document]) -> None:
    """Store what these runs are found by, in place of what is stored."""
    with connection.cursor() as cursor:
        cursor.executemany("DELETE FROM runs_searchdocument WHERE run_id = %s", [(run_id,) for run_id in documents])
        cursor.executemany(
            "INSERT INTO runs_searchdocument (run_id, words) VALUES (%s, %s)",
            [(run_id, " ".join(document.list_words())) for run_id, document in documents.items()],
        )


def look_for_runs(query: SearchQuery, *, lowest: int, highest: int, limit: int, is_upwards: bool) -> Hits:
    """Runs that match, from ``lowest`` to ``highest``: the first ``limit`` of them in the direction of looking.

    FTS5 walks its lists of runs in the order of their numbers and passes over what one of them lacks, phrases included.
    """
    order = "ASC" if is_upwards else "DESC"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT rowid FROM runs_searchindex WHERE runs_searchindex MATCH %s AND rowid BETWEEN %s AND %s"  # noqa: S608
            f" ORDER BY rowid {order} LIMIT %s",
            (_write_match(query), lowest, highest, limit),
        )
        ids = [run_id for (run_id,) in cursor.fetchall()]
    return Hits(ids[::-1] if is_upwards else ids)


def _write_match(query: SearchQuery) -> str:
    wanted = " AND ".join(map(_write_term, query.wanted))
    if not query.unwanted:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(map(_write_term, query.unwanted))})"


def _write_term(term: Term) -> str:
    return f'"{" ".join(term.words)}"' + ("*" if term.is_beginning else "")
