"""What a list of runs is filtered by, and finding the runs that match, newest first, at any depth.

Pages, exports and bulk actions ask here, so that they mean the same runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from flows.models import Flow
from runs.models import Run, RunStatus


@dataclass(frozen=True, slots=True)
class RunFilters:
    """What runs are asked for; an empty value asks for nothing."""

    flow: str = ""
    status: str = ""

    def to_query(self) -> str:
        """The filters as a query string, without those that are empty."""
        wanted = {"flow": self.flow, "status": self.status}
        return urlencode({name: value for name, value in wanted.items() if value})


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Numbers of runs that match, the newest first, and how to go on."""

    ids: tuple[int, ...]
    looked_to: int | None
    """The lowest run number that was looked at where looking stopped early; None if ``ids`` is all or a whole page."""


def read_filters(query: Mapping[str, str]) -> tuple[RunFilters, tuple[str, ...]]:
    """The filters that a query string asks for. A value that makes no sense gives a sentence and is left out."""
    flow, status = query.get("flow", ""), query.get("status", "")
    problems = []
    if flow and not Flow.objects.filter(name=flow).exists():
        problems.append(f"There is no flow “{flow[:40]}”; runs of all flows are shown.")
        flow = ""
    if status and status not in RunStatus.values:
        problems.append(
            f"“{status[:40]}” is not a status; it can be {', '.join(RunStatus.values)}. All runs are shown."
        )
        status = ""
    return RunFilters(flow=flow, status=status), tuple(problems)


def find_runs(
    filters: RunFilters, *, before: int | None = None, after: int | None = None, limit: int = 50
) -> FoundRuns:
    """Up to ``limit`` runs that match: the newest below ``before``, or the oldest above ``after``."""
    runs = Run.objects.all()
    if filters.flow:
        runs = runs.filter(flow__name=filters.flow)
    if filters.status:
        runs = runs.filter(status=filters.status)
    if after is not None:
        ids = list(runs.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:limit])[::-1]
    else:
        if before is not None:
            runs = runs.filter(pk__lt=before)
        ids = list(runs.order_by("-pk").values_list("pk", flat=True)[:limit])
    return FoundRuns(tuple(ids), None)
