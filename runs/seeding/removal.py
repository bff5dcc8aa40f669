"""Find sample history and take it away again: its flows with all that belongs to them, and nothing else."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from flows.models import Flow
from runs.locks import STATISTICS, hold
from runs.models import DailyRuns, Run
from runs.retention.purging import delete_runs

PREFIX = "seeded-"
"""Begins the names of sample flows and of the users who started their runs."""
NOTE = "Sample version "
"""Begins the notes of the versions of sample flows."""
USERS = tuple(PREFIX + name for name in ("ada", "grace", "linus"))
BATCH_SIZE = 100
"""Runs that are deleted together."""


class SampleError(Exception):
    """Sample history can't be stored or removed now. The message says why, and what to do."""


def fetch_sample_flows() -> QuerySet[Flow]:
    """Flows of sample history: a flow of a user's may have such a name, but no such first version."""
    return Flow.objects.filter(name__startswith=PREFIX, versions__number=1, versions__note__startswith=NOTE)


def remove_samples() -> None:
    """Delete sample flows with all of their versions, runs and statistics. Raises ``SampleError``; then nothing is."""
    with transaction.atomic():
        flows = list(fetch_sample_flows().select_for_update())
        runs = Run.objects.filter(flow__in=flows).order_by()
        if runs.filter(ended_at=None).exists():
            raise SampleError("Runs of sample flows have not ended. Wait until they have, or cancel them first.")
        if not hold(STATISTICS):
            raise SampleError("Statistics are being counted. Try again in a few seconds.")
        while run_ids := list(runs.values_list("pk", flat=True)[:BATCH_SIZE]):
            delete_runs(run_ids)
        DailyRuns.objects.filter(flow__in=flows).delete()
        for flow in flows:
            flow.delete()
        User.objects.filter(username__in=USERS, is_active=False).delete()
