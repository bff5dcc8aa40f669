"""Between which run numbers work on many runs lies, for telling how far it is without counting anything."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Max, Min

from runs.models import Run
from runs.run_filters import RunFilters, find_runs


@dataclass(frozen=True, slots=True)
class RunRange:
    """Run numbers from ``oldest`` to ``newest``, both included. Nothing lies in between if ``newest`` is lower."""

    newest: int
    oldest: int


def find_newest_run() -> int:
    """The highest run number that there is, 0 if there are no runs."""
    return Run.objects.aggregate(newest=Max("pk"))["newest"] or 0


def find_range(filters: RunFilters, *, newest: int | None = None) -> RunRange:
    """The numbers between which the runs that match lie, up to ``newest`` if that is given.

    Where looking for the first or the last would take long, all run numbers from there on count.
    """
    newest = find_newest_run() if newest is None else newest
    first = find_runs(filters, before=newest + 1, limit=1)
    if first.ids:
        newest = first.ids[0]
    elif first.looked_to is None:
        return RunRange(newest=0, oldest=1)
    last = find_runs(filters, after=0, limit=1)
    if last.ids:
        return RunRange(newest=newest, oldest=last.ids[-1])
    return RunRange(newest=newest, oldest=Run.objects.aggregate(oldest=Min("pk"))["oldest"] or 1)
