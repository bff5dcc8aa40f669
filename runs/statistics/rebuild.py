"""Counting all stored runs of a flow again, beside workers that go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db import transaction
from django.db.models import QuerySet

from flows.models import Flow
from runs.locks import STATISTICS, renew
from runs.models import PurgedDay, Run
from runs.models.statistics import DailyCounts
from runs.statistics.counting import add_runs, load_ended_runs
from runs.statistics.daily_rows import BATCH_SIZE, VALUE_NAMES, DailyRows, Key, build_key, store_rows

RUN_BATCH_SIZE = 500
LEASE = timedelta(minutes=1)
"""Renewed after each batch of runs."""


class LeaseLostError(Exception):
    """The lease expired: runs may have been counted since. ``str(error)`` is a sentence."""


@dataclass(slots=True)
class Rebuilt:
    """How many runs of a flow were counted, and what that changed."""

    runs: int = 0
    rows: int = 0
    """All rows of the counted days."""
    changed: int = 0
    """Rows that were missing, wrong, or of runs that there are not."""
    lacking: int = 0
    """Days that lack runs since retention deleted them: their rows stay as they are."""


def rebuild_flow(
    flow: Flow, *, token: int, since: date | None = None, report: Callable[[int], None] = lambda _done: None
) -> Rebuilt:
    """Count all counted runs of ``flow`` again, and correct the stored rows in one transaction at the end.

    ``token`` is that of a lease of ``locks.STATISTICS``: runs that end meanwhile are counted afterwards. Days before
    ``since`` and those whose runs retention has deleted keep their rows. ``report`` gets the number of runs counted
    so far after each batch. Raises ``LeaseLostError``; then nothing has changed.
    """
    first = since or date.min
    rebuilt = Rebuilt()
    rows = DailyRows()
    for run_ids in _batch_counted(flow, first):
        _renew(token)
        runs = load_ended_runs(run_ids)
        add_runs(rows, runs)
        rebuilt.runs += len(runs)
        report(rebuilt.runs)
    with transaction.atomic():
        _renew(token)
        lacking = set(PurgedDay.objects.filter(flow=flow, day__gte=first).values_list("day", flat=True))
        rebuilt.lacking = len(lacking)
        for model, counted in rows.by_model.items():
            stored = model._default_manager.filter(flow=flow, day__gte=first).exclude(day__in=lacking).order_by()
            _correct(stored, {key: row for key, row in counted.items() if row.day not in lacking}, rebuilt)
    return rebuilt


def _renew(token: int) -> None:
    if not renew(STATISTICS, LEASE, token):
        raise LeaseLostError("Statistics were added to while they were rebuilt, after a break of over a minute.")


def _batch_counted(flow: Flow, first: date) -> Iterator[list[int]]:
    """The numbers of the counted runs of a flow, in order. During the lease no others are counted."""
    begin = datetime.combine(first, time.min, UTC)
    counted = Run.objects.filter(flow=flow, is_counted=True, ended_at__gte=begin).order_by("pk")
    last = 0
    while run_ids := list(counted.filter(pk__gt=last).values_list("pk", flat=True)[:RUN_BATCH_SIZE]):
        yield run_ids
        last = run_ids[-1]


def _correct(stored: QuerySet[DailyCounts], counted: dict[Key, DailyCounts], rebuilt: Rebuilt) -> None:
    """Replace stored rows that differ from the recount."""
    before = {build_key(row): row for row in stored}
    names = VALUE_NAMES[stored.model]
    wrong = [
        row
        for key, row in counted.items()
        if key not in before or any(getattr(row, name) != getattr(before[key], name) for name in names)
    ]
    surplus = [row.pk for key, row in before.items() if key not in counted]
    store_rows(stored.model, wrong)
    for begin in range(0, len(surplus), BATCH_SIZE):
        stored.filter(pk__in=surplus[begin : begin + BATCH_SIZE]).delete()
    rebuilt.rows += len(counted)
    rebuilt.changed += len(wrong) + len(surplus)
