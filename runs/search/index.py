"""The index of the words of ended runs: FTS5 on SQLite, a GIN index on PostgreSQL.

FTS5 stores no words beside its index: it is given those of the stored run again to forget it. GIN knows no neighbours:
phrases are found in the words of a run, which PostgreSQL stores in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.db import connection
from django.db.models import Case, F, TextField, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Substr

from runs.models import Attempt, Issue, Run
from runs.search.words import SearchQuery, Term, split_words

GAP = "·"
"""Separates texts, where no phrase goes across; no word has this character."""
MAX_SIZE = 100_000
"""Characters of the words of a run that are indexed, with what is between them: about 15,000 words."""
MAX_INDEXED_LENGTH = 200_000
"""Characters that are read of one input, output or issue text. In JSON those beyond ASCII are written as six."""

_CHUNK = 50
"""Rows that are fetched at a time: outputs may be large."""

# The text may be cut anywhere, also within an escape.
_STRING = r'"(?P<string>[^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*)(?:"(?P<key>\s*:)?|\\?(?:u[0-9a-fA-F]{0,3})?$)'
_SCALAR = re.compile(rf"{_STRING}|(?P<number>-?\d[\d.eE+-]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StoredText:
    """The input of a run, or one issue, output or error of an attempt, as the strings and numbers in it.

    ``strings`` can be iterated once: no text is parsed further than wanted.
    """

    run_id: int
    strings: Iterable[str]
    kind: str = "Input"
    step: int = 0
    attempt: int = 1


class _Document:
    """The words of one run, text by text. Texts that are there already add nothing."""

    def __init__(self) -> None:
        self.words = [GAP]
        self._size = 0
        self._seen: set[tuple[str, ...]] = set()

    def add(self, strings: Iterable[str], *, share: float) -> None:
        """Add texts until this share of the document is full."""
        max_size = share * MAX_SIZE
        for string in strings:
            if self._size >= max_size:
                return
            words = tuple(split_words(string))
            if not words or words in self._seen:
                continue
            self._seen.add(words)
            for word in words:
                if self._size >= max_size:
                    break
                self.words.append(word)
                self._size += len(word) + 1
            self.words.append(GAP)


def index_runs(run_ids: Collection[int]) -> None:
    """Index runs that have ended, except those that are indexed. The caller's transaction holds their rows."""
    missing = set(run_ids) - fetch_indexed(run_ids)
    sql = "INSERT INTO runs_searchindex (rowid, words) VALUES (%s, %s)"
    if connection.vendor == "postgresql":
        sql = "INSERT INTO runs_searchdocument (run_id, words) VALUES (%s, %s)"
    with connection.cursor() as cursor:
        cursor.executemany(sql, _build_documents(missing))


def forget_runs(run_ids: Collection[int]) -> None:
    """Take runs out of the index, before their texts are removed. Idempotent."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DELETE FROM runs_searchdocument WHERE run_id = ANY(%s)", (list(run_ids),))
        else:
            cursor.executemany(
                "INSERT INTO runs_searchindex (runs_searchindex, rowid, words) VALUES ('delete', %s, %s)",
                _build_documents(fetch_indexed(run_ids)),
            )


def empty_index() -> None:
    """Take all runs out of the index."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DELETE FROM runs_searchdocument")
        else:
            cursor.execute("INSERT INTO runs_searchindex (runs_searchindex) VALUES ('delete-all')")


def fetch_indexed(run_ids: Collection[int]) -> set[int]:
    """Those of ``run_ids`` that are indexed."""
    if connection.vendor == "postgresql":
        return set(_fetch_ids("SELECT run_id FROM runs_searchdocument WHERE run_id = ANY(%s)", list(run_ids)))
    numbers = ",".join(map(str, run_ids))
    return set(_fetch_ids(f"SELECT rowid FROM runs_searchindex WHERE rowid IN ({numbers})"))  # noqa: S608  # numbers


def fetch_matching_ids(query: SearchQuery, *, limit: int) -> tuple[list[int], bool] | None:
    """All runs that match, in no order; None if they are more than ``limit``.

    With them False if some may not hold the words next to each other, as a phrase asks for.
    """
    if connection.vendor == "postgresql":
        sql = "SELECT run_id FROM runs_fetch_by_words(%s::tsquery, %s) AS run_id"
        ids = _fetch_ids(sql, _build_tsquery(query), limit + 1)
        is_exact = all(len(term.words) == 1 for term in (*query.wanted, *query.unwanted))
    else:
        sql = "SELECT rowid FROM runs_searchindex WHERE runs_searchindex MATCH %s LIMIT %s"
        ids = _fetch_ids(sql, _build_match(query), limit + 1)
        is_exact = True
    return None if len(ids) > limit else (ids, is_exact)


def fetch_matching_among(query: SearchQuery, run_ids: Collection[int]) -> set[int]:
    """Those of ``run_ids`` whose runs match."""
    if not run_ids:
        return set()
    if connection.vendor == "postgresql":
        checks = ["strpos(words, %s) > 0"] * len(query.wanted) + ["strpos(words, %s) = 0"] * len(query.unwanted)
        sql = f"SELECT run_id FROM runs_searchdocument WHERE run_id = ANY(%s) AND {' AND '.join(checks)}"  # noqa: S608
        texts = [f" {' '.join(term.words)}{'' if term.is_prefix else ' '}" for term in query.wanted + query.unwanted]
        return set(_fetch_ids(sql, list(run_ids), *texts))
    # FTS5 would look up all words again for each number; it walks along a range of numbers at once.
    sql = "SELECT rowid FROM runs_searchindex WHERE runs_searchindex MATCH %s AND rowid BETWEEN %s AND %s"
    return set(_fetch_ids(sql, _build_match(query), min(run_ids), max(run_ids))).intersection(run_ids)


def fetch_inputs(run_ids: Collection[int], *, max_length: int = MAX_INDEXED_LENGTH) -> Iterator[StoredText]:
    """The inputs of runs."""
    rows = Run.objects.filter(pk__in=run_ids).values_list("pk", _cut("input", max_length))
    for run_id, text in rows.iterator(_CHUNK):
        yield StoredText(run_id, find_strings(text))


def fetch_issues(run_ids: Collection[int], *, max_length: int = MAX_INDEXED_LENGTH) -> Iterator[StoredText]:
    """The issues of runs, those of the last attempt first."""
    issues = Issue.objects.filter(attempt__step__run_id__in=run_ids).order_by("-attempt_id", "position")
    columns = [_cut(name, max_length) for name in ("description", "audit", "code", "suggestions")]
    rows = issues.values_list("attempt__step__run_id", "attempt__step__index", "attempt__number", *columns)
    for run_id, step, number, *texts, suggestions in rows.iterator(_CHUNK):
        yield StoredText(run_id, chain(texts, find_strings(suggestions)), "issue", step, number)


def fetch_outputs(
    run_ids: Collection[int], *, max_length: int = MAX_INDEXED_LENGTH, limit: int | None = None
) -> Iterator[StoredText]:
    """The usable outputs of attempts that ended, or else what came back, and their errors; the newest first."""
    output = Case(When(output__isnull=True, then=_cut("raw_output", max_length)), default=_cut("output", max_length))
    error = Coalesce(KeyTextTransform("message", "error"), Value(""), output_field=TextField())
    attempts = Attempt.objects.filter(step__run_id__in=run_ids).exclude(outcome="").order_by("-pk")
    rows = attempts.values_list("step__run_id", "step__index", "number", output, Substr(error, 1, max_length))
    for run_id, step, number, text, message in rows[:limit].iterator(_CHUNK):
        yield StoredText(run_id, find_strings(text), "output", step, number)
        if message:
            yield StoredText(run_id, (message,), "error", step, number)


def find_strings(text: str | None) -> Iterator[str]:
    """The strings and numbers in a JSON text that may be cut anywhere, without the names of fields."""
    for match in _SCALAR.finditer(text or ""):
        if match["number"] is not None:
            yield match["number"]
        elif match["key"] is None:
            string = match["string"]
            yield str(json.loads(f'"{string}"', strict=False)) if "\\" in string else string


def _cut(field: str, max_length: int) -> Substr:
    """The beginning of a column, as the text that it is stored as."""
    return Substr(Cast(F(field), TextField()), 1, max_length)


def _build_documents(run_ids: Collection[int]) -> list[tuple[int, str]]:
    """The numbers and the words of runs, with gaps around texts: issues, then inputs, then outputs.

    Each of the three has a third, and what those before it left of theirs: a long input hides no issue.
    """
    documents = {run_id: _Document() for run_id in run_ids}
    for part, fetch in enumerate((fetch_issues, fetch_inputs, fetch_outputs), start=1):
        for text in fetch(run_ids):
            documents[text.run_id].add(text.strings, share=part / 3)
    return [(run_id, " ".join(document.words)) for run_id, document in documents.items()]


def _build_tsquery(query: SearchQuery) -> str:
    """A ``tsquery`` without phrases, which the index does not know: it matches at least what the query matches."""

    def build(term: Term) -> str:
        words = " & ".join(f"'{word}'" for word in term.words)
        return f"({words}:*)" if term.is_prefix else f"({words})"

    unwanted = [f"!{build(term)}" for term in query.unwanted if len(term.words) == 1]
    return " & ".join([*map(build, query.wanted), *unwanted])


def _build_match(query: SearchQuery) -> str:
    """The query in the language of FTS5."""

    def build(term: Term) -> str:
        return f'"{" ".join(term.words)}"' + ("*" if term.is_prefix else "")

    wanted = " AND ".join(map(build, query.wanted))
    return f"({wanted}) NOT ({' OR '.join(map(build, query.unwanted))})" if query.unwanted else wanted


def _fetch_ids(sql: str, *parameters: Any) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return [run_id for (run_id,) in cursor.fetchall()]
