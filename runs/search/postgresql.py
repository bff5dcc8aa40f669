"""Words of runs in PostgreSQL: a table with each run's words and their places, under a GIN index.

The index tells which runs hold some words, of all runs at once, and knows neither order nor neighbours. Whether the
words that a run holds stand as a phrase asks for is looked up run by run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db import connection

from runs.search.documents import GAP, Document
from runs.search.queries import SearchQuery, Term


def store_documents(documents: Mapping[int, Document]) -> None:
    """Store what these runs are found by, in place of what is stored."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_searchdocument (run_id, words)"
            " SELECT * FROM unnest(%s::bigint[], %s::text[]::tsvector[])"
            " ON CONFLICT (run_id) DO UPDATE SET words = excluded.words",
            (list(documents), [_write_words(document) for document in documents.values()]),
        )


def list_matching(query: SearchQuery, *, limit: int) -> tuple[list[int], bool]:
    """Up to ``limit`` runs that hold the words, and whether they stand as the query asks for in all of them."""
    loose = _write_query(query, has_phrases=False)
    ids = _list_numbers(
        "SELECT run_id FROM runs_list_by_words(%s::tsquery) AS run_id LIMIT %s",
        (loose, limit),
    )
    return ids, loose == _write_query(query)


def select_matching(query: SearchQuery, run_ids: Collection[int]) -> set[int]:
    """Those of ``run_ids`` whose runs match."""
    # “IS TRUE” keeps the index out: it would be asked for all runs there are.
    return set(
        _list_numbers(
            "SELECT run_id FROM runs_searchdocument WHERE run_id = ANY(%s) AND (words @@ %s::tsquery) IS TRUE",
            (list(run_ids), _write_query(query)),
        )
    )


def _list_numbers(sql: str, parameters: tuple[Any, ...]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return [number for (number,) in cursor.fetchall()]


def _write_words(document: Document) -> str:
    """The words of a document with their places, as the text of a ``tsvector``."""
    places: dict[str, list[str]] = {}
    for place, word in enumerate(document.list_words(), start=1):
        if word != GAP:
            places.setdefault(word, []).append(str(place))
    return " ".join(f"'{word}':{','.join(numbers)}" for word, numbers in places.items())


def _write_query(query: SearchQuery, *, has_phrases: bool = True) -> str:
    """The text of a ``tsquery``; without phrases it matches at least what it matches with them."""
    joint = " <-> " if has_phrases else " & "
    wanted = [_write_term(term, joint) for term in query.wanted]
    unwanted = [_write_term(term, joint) for term in query.unwanted if has_phrases or len(term.words) == 1]
    return " & ".join([*wanted, *(f"!{term}" for term in unwanted)])


def _write_term(term: Term, joint: str) -> str:
    words = [f"'{word}'" for word in term.words]
    if term.is_beginning:
        words[-1] += ":*"
    return f"({joint.join(words)})"
