"""Which facets a run gets: what the list of runs is filtered by."""

from __future__ import annotations

from collections.abc import Iterable

from flows.engine.history import Attempt
from flows.engine.issues import Severity
from runs.models import FacetKind, RunFacet

Facet = tuple[FacetKind, str]

LONGEST_VALUE = 200
"""Characters that are kept of a value."""


def list_facets(attempt: Attempt) -> set[Facet]:
    """The facets that a run has because of an attempt that ended."""
    facets: set[Facet] = set()
    for issue in attempt.issues:
        facets.add((FacetKind.CODE, issue.code[:LONGEST_VALUE]))
        if issue.audit:
            facets.add((FacetKind.AUDIT, issue.audit[:LONGEST_VALUE]))
        facets.update((FacetKind.SEVERITY, other.value) for other in Severity if issue.severity.at_least(other))
    if attempt.model:
        facets.add((FacetKind.MODEL, attempt.model[:LONGEST_VALUE]))
    return facets


def add_facets(facets: Iterable[tuple[int, Facet]]) -> None:
    """Store facets of runs, by run number; those that are stored already stay as they are."""
    rows = [RunFacet(run_id=run_id, kind=kind, value=value) for run_id, (kind, value) in facets]
    if rows:
        RunFacet.objects.bulk_create(rows, ignore_conflicts=True)
