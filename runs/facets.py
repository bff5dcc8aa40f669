"""Which facets a run gets: what the list of runs is filtered by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from flows.engine.issues import Severity
from runs.models import FacetKind, RunFacet
from runs.prepared_sql import PreparedInsert

Facet = tuple[FacetKind, str]

LONGEST_VALUE = 200
"""Characters that are kept of a value."""


class FoundIssue(Protocol):
    """What an issue is found by."""

    @property
    def code(self) -> str: ...
    @property
    def audit(self) -> str: ...
    @property
    def severity(self) -> str: ...


class FoundAttempt(Protocol):
    """What an attempt is found by: one that just ended, or one that was read again."""

    @property
    def model(self) -> str | None: ...
    @property
    def issues(self) -> Iterable[FoundIssue]: ...


def list_facets(attempt: FoundAttempt) -> set[Facet]:
    """The facets that a run has because of an attempt that ended."""
    facets: set[Facet] = set()
    for issue in attempt.issues:
        facets.add((FacetKind.CODE, issue.code[:LONGEST_VALUE]))
        if issue.audit:
            facets.add((FacetKind.AUDIT, issue.audit[:LONGEST_VALUE]))
        facets.update((FacetKind.SEVERITY, name) for name in _REACHED[issue.severity])
    if attempt.model:
        facets.add((FacetKind.MODEL, attempt.model[:LONGEST_VALUE]))
    return facets


_REACHED = {severity.value: tuple(other.value for other in Severity if other <= severity) for severity in Severity}
"""The thresholds that an issue of a severity reaches."""


_ADD_FACET = PreparedInsert(RunFacet, "run", "kind", "value", ignores_conflicts=True)


def add_facets(facets: Iterable[tuple[int, Facet]]) -> None:
    """Store facets of runs, by run number; those that are stored already stay as they are."""
    _ADD_FACET.execute({"run": run_id, "kind": kind, "value": value} for run_id, (kind, value) in facets)
