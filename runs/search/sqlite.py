"""Words of runs in SQLite: a table with each run's words, and an FTS5 index over it that triggers keep."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.db import connection

from runs.search.documents import Document
from runs.search.queries import SearchQuery, Term


def store_documents(documents: Mapping[int, Document]) -> None:
    """Store what these runs are found by, in place of what is stored."""
    with connection.cursor() as cursor:
        cursor.executemany("DELETE FROM runs_searchdocument WHERE run_id = %s", [(run_id,) for run_id in documents])
        cursor.executemany(
            "INSERT INTO runs_searchdocument (run_id, words) VALUES (%s, %s)",
            [(run_id, " ".join(document.list_words())) for run_id, document in documents.items()],
        )


def list_matching(query: SearchQuery, *, limit: int) -> list[int]:
    """Up to ``limit`` runs that match."""
    return _fetch_numbers("", _write_match(query), limit)


def select_matching(query: SearchQuery, run_ids: Collection[int]) -> set[int]:
    """Those of ``run_ids`` whose runs match.

    FTS5 would look up all words again for each number; it walks along a range of numbers in one go.
    """
    bounds = (min(run_ids), max(run_ids))
    return set(_fetch_numbers("AND rowid BETWEEN %s AND %s", _write_match(query), *bounds, -1)).intersection(run_ids)


def _fetch_numbers(condition: str, *parameters: str | int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT rowid FROM runs_searchindex WHERE runs_searchindex MATCH %s {condition} LIMIT %s",  # noqa: S608
            parameters,
        )
        return [run_id for (run_id,) in cursor.fetchall()]


def _write_match(query: SearchQuery) -> str:
    wanted = " AND ".join(map(_write_term, query.wanted))
    if not query.unwanted:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(map(_write_term, query.unwanted))})"


def _write_term(term: Term) -> str:
    return f'"{" ".join(term.words)}"' + ("*" if term.is_beginning else "")
