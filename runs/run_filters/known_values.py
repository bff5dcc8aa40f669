"""Values that runs have, to choose filters from: each is looked up behind the one before it, not gathered from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import connection

from runs.models import FacetKind

MAX_VALUES = 100
CHOOSABLE = (FacetKind.AUDIT, FacetKind.CODE, FacetKind.MODEL, FacetKind.LABEL)


def list_known_values() -> Mapping[FacetKind, Sequence[str]]:
    """The first values of audits, codes, models and labels that runs have, in order: up to 100 of each."""
    return {kind: _list_values(kind) for kind in CHOOSABLE}


def _list_values(kind: FacetKind) -> list[str]:
    # A step of the recursion is one look into the unique index; DISTINCT would read every row of the kind.
    with connection.cursor() as cursor:
        cursor.execute(_NEXT_VALUES, {"kind": kind.value, "limit": MAX_VALUES})
        return [value for (value,) in cursor.fetchall()]


_NEXT_VALUES = """
    WITH RECURSIVE known(value) AS (
        SELECT MIN(value) FROM runs_runfacet WHERE kind = %(kind)s
        UNION ALL
        SELECT (SELECT MIN(value) FROM runs_runfacet WHERE kind = %(kind)s AND value > known.value)
        FROM known WHERE known.value IS NOT NULL
    )
    SELECT value FROM known WHERE value IS NOT NULL LIMIT %(limit)s
"""
