"""Words of runs in PostgreSQL: a table with each run's words and their places, under a GIN index.

The index tells at once which runs hold some words, but it tells of all of them, and knows neither order nor neighbours.
So the runs next to where looking begins are looked at one by one: there is what many runs hold. What is not found there
is rare, or was frequent at another time, and the index tells where. Whether the words that a run holds stand as a
phrase asks for is looked up run by run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection

from runs.search.documents import GAP, Document
from runs.search.hits import Hits
from runs.search.queries import SearchQuery, Term

NEAR = 2_000
"""Runs that are looked at one by one before the index is asked."""
BATCH = 1_000
"""Runs that are asked at a time whether they hold a phrase."""
MOST_ASKED = 5_000
"""Runs that one search asks so."""


def store_documents(documents: Mapping[int, Document]) -> None:
    """Store what these runs are found by, in place of what is stored."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_searchdocument (run_id, words)"
            " SELECT * FROM unnest(%s::bigint[], %s::text[]::tsvector[])"
            " ON CONFLICT (run_id) DO UPDATE SET words = excluded.words",
            (list(documents), [_write_words(document) for document in documents.values()]),
        )


def look_for_runs(query: SearchQuery, *, lowest: int, highest: int, limit: int, is_upwards: bool) -> Hits:
    """Runs that match, from ``lowest`` to ``highest``: the first ``limit`` of them in the direction of looking."""
    # Words of ours: what was typed is a parameter.
    bound, order = ("min", "ASC") if is_upwards else ("max", "DESC")
    (first,) = _list_numbers(
        f"SELECT {bound}(run_id) FROM runs_searchdocument WHERE run_id BETWEEN %s AND %s",  # noqa: S608
        (lowest, highest),
    )
    if first is None:
        return Hits([])
    near_to = min(first + NEAR, highest) if is_upwards else max(first - NEAR, lowest)
    exact = _write_query(query)
    # “IS TRUE” keeps the index out: it would be asked for all runs there are.
    found = _list_numbers(
        "SELECT run_id FROM runs_searchdocument WHERE run_id BETWEEN %s AND %s AND (words @@ %s::tsquery) IS TRUE"  # noqa: S608
        f" ORDER BY run_id {order} LIMIT %s",
        (*sorted((first, near_to)), exact, limit),
    )
    looked_to = None
    if len(found) < limit:
        far = (near_to + 1, highest) if is_upwards else (lowest, near_to - 1)
        loose = _write_query(query, has_phrases=False)
        most = limit - len(found) if loose == exact else MOST_ASKED
        candidates = _list_numbers(
            "SELECT run_id FROM runs_list_by_words(%s::tsquery, %s, %s) AS run_id"  # noqa: S608
            f" ORDER BY run_id {order} LIMIT %s",
            (loose, *far, most),
        )
        if loose == exact:
            found += candidates
        else:
            found += _ask_for_phrases(candidates, exact, limit - len(found))
            if len(found) < limit and len(candidates) == MOST_ASKED:
                looked_to = candidates[-1]
    return Hits(found[::-1] if is_upwards else found, looked_to)


def _ask_for_phrases(candidates: list[int], query: str, limit: int) -> list[int]:
    """The first ``limit`` of these runs that match ``query``, in their order."""
    found: list[int] = []
    for begin in range(0, len(candidates), BATCH):
        batch = candidates[begin : begin + BATCH]
        matching = set(
            _list_numbers(
                "SELECT run_id FROM runs_searchdocument WHERE run_id = ANY(%s) AND (words @@ %s::tsquery) IS TRUE",
                (batch, query),
            )
        )
        found += [run_id for run_id in batch if run_id in matching]
        if len(found) >= limit:
            return found[:limit]
    return found


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
