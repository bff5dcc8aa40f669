"""What is made of a run once it has ended: statistics and search, batch by batch, beside the work itself.

A run is counted in the transaction that marks it, so that it counts once, however it ended and whoever comes to it.
"""

from __future__ import annotations

from django.db import transaction

from runs.models import Run
from runs.search import index_runs
from runs.statistics import count_runs

BATCH = 200
"""Runs tallied in one transaction."""


def tally_ended_runs(*, limit: int = BATCH) -> int:
    """Tally up to ``limit`` runs that have ended, the oldest first; gives their number."""
    with transaction.atomic():
        found = Run.objects.untallied().order_by("pk").select_for_update(skip_locked=True)[:limit]
        run_ids = [run.pk for run in found.only("pk")]
        if run_ids:
            count_runs(run_ids)
            index_runs(run_ids)
            Run.objects.filter(pk__in=run_ids).update(is_tallied=True)
    return len(run_ids)
