"""Entries for runs that were started."""

from __future__ import annotations

from collections.abc import Sequence

from runs.models import Run
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


def tell_of_runs(runs: Sequence[Run]) -> None:
    """Leave one entry for runs of one flow that were started together. Their flow and version must be loaded."""
    first, last = runs[0], runs[-1]
    details = {"flow": first.flow.name, "version": first.version.number}
    if first is last:
        leave_trail(action=TrailAction.RUN_STARTED, about=first, details=details)
        return
    details |= {"runs": len(runs), "first": first.pk, "last": last.pk}
    leave_trail(action=TrailAction.RUNS_STARTED, about=first.flow, details=details)
