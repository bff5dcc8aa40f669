"""Facets of runs, what lists are filtered by: which ones a run gets, and which there are to choose from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from django.db import connection

from flows.engine.history import Attempt, Severity
from runs.models import FacetKind

Facet = tuple[FacetKind, str]

MAX_VALUE_LENGTH = 200
"""Characters that are kept of a value."""
MAX_CHOICES = 100
CHOOSABLE = (FacetKind.AUDIT, FacetKind.CODE, FacetKind.MODEL, FacetKind.LABEL)

_REACHED = {severity: tuple(other.value for other in Severity if other <= severity) for severity in Severity}
"""The thresholds that an issue of a severity reaches."""

# The time of the run's creation is copied within the database: to the digit, it is the one that lists compare.
_ADD_FACET = """
    INSERT INTO runs_runfacet (run_id, kind, value, created_at)
    SELECT id, %s, %s, created_at FROM runs_run WHERE id = %s
    ON CONFLICT DO NOTHING
"""


def list_facets(attempt: Attempt) -> set[Facet]:
    """The facets that a run has because of an attempt that ended."""
    facets: set[Facet] = set()
    for issue in attempt.issues:
        facets.add((FacetKind.CODE, issue.code[:MAX_VALUE_LENGTH]))
        if issue.audit:
            facets.add((FacetKind.AUDIT, issue.audit[:MAX_VALUE_LENGTH]))
        facets.update((FacetKind.SEVERITY, name) for name in _REACHED[issue.severity])
    if attempt.model:
        facets.add((FacetKind.MODEL, attempt.model[:MAX_VALUE_LENGTH]))
    return facets


def add_facets(facets: Iterable[tuple[int, Facet]]) -> None:
    """Store facets of runs, by run number; those that are stored already stay as they are."""
    rows = [(kind, value, run_id) for run_id, (kind, value) in facets]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_ADD_FACET, rows)


def list_known_values() -> Mapping[FacetKind, Sequence[str]]:
    """The first values of audits, codes, models and labels that runs have, in order: up to 100 of each."""
    found: dict[FacetKind, list[str]] = {}
    with connection.cursor() as cursor:
        for kind in CHOOSABLE:
            # A step of the recursion is one search of the unique index; DISTINCT would read every row of the kind.
            cursor.execute(_NEXT_VALUES, {"kind": kind.value, "limit": MAX_CHOICES})
            found[kind] = [value for (value,) in cursor.fetchall()]
    return found


_NEXT_VALUES = """
    WITH RECURSIVE known(value) AS (
        SELECT MIN(value) FROM runs_runfacet WHERE kind = %(kind)s
        UNION ALL
        SELECT (SELECT MIN(value) FROM runs_runfacet WHERE kind = %(kind)s AND value > known.value)
        FROM known WHERE known.value IS NOT NULL
    )
    SELECT value FROM known WHERE value IS NOT NULL LIMIT %(limit)s
"""
