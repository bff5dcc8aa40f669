"""Statistics made anew from the runs that are stored, beside workers that go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import transaction

from flows.models import Flow
from runs.locks import STATISTICS, renew
from runs.models import PurgedDay, Run
from runs.models.statistics import DailyCounts
from runs.statistics.counting import add_runs
from runs.statistics.daily_rows import (
    DailyRows,
    Key,
    Values,
    create_rows,
    delete_rows,
    load_stored,
    read_values,
    update_rows,
)
from runs.statistics.ended_runs import read_ended_runs

BATCH = 500
"""Runs read at a time."""
LEASE = timedelta(minutes=1)
"""After so long without a batch a rebuilding counts as broken off."""


class LeaseLostError(Exception):
    """A rebuilding gave no sign of life for too long: statistics may have been added to since."""

    def __init__(self) -> None:
        super().__init__("Statistics were added to while they were rebuilt, after a break of over a minute.")


@dataclass(slots=True)
class Rebuilt:
    """What became of the rows of a flow."""

    runs: int = 0
    """Runs that were counted."""
    added: int = 0
    corrected: int = 0
    removed: int = 0
    kept: int = 0
    """Rows that were right."""
    lacking: int = 0
    """Days that lack runs since retention deleted them: their rows stay as they are."""

    @property
    def changed(self) -> int:
        return self.added + self.corrected + self.removed


def rebuild_flow(
    flow: Flow, *, token: int, since: date | None = None, report: Callable[[int], None] = lambda _done: None
) -> Rebuilt:
    """Count all counted runs of ``flow`` again, and put right what is stored, in one transaction at the end.

    ``token`` is that of a lease of ``locks.STATISTICS``: runs that end meanwhile are counted afterwards.
    With ``since``, days before it are left as they are, and always those whose runs retention has deleted. ``report``
    is told after each batch how many runs were counted so far. Raises ``LeaseLostError``; then nothing has changed.
    """
    rebuilt = Rebuilt()
    rows = DailyRows()
    for run_ids in _batch_counted(flow, since):
        _renew(token)
        runs = read_ended_runs(run_ids)
        add_runs(rows, runs)
        rebuilt.runs += len(runs)
        report(rebuilt.runs)
    with transaction.atomic():
        _renew(token)
        lacking = set(PurgedDay.objects.filter(flow=flow).values_list("day", flat=True))
        if since is not None:
            lacking = {day for day in lacking if day >= since}
        rebuilt.lacking = len(lacking)
        for model, counted in rows:
            stored = model._default_manager.filter(flow_id=flow.pk).exclude(day__in=lacking)
            counted = {key: row for key, row in counted.items() if row.day not in lacking}
            if since is not None:
                stored = stored.filter(day__gte=since)
            _put_right(model, load_stored(stored), counted, rebuilt)
    return rebuilt


def _renew(token: int) -> None:
    if not renew(STATISTICS, LEASE, token):
        raise LeaseLostError


def _batch_counted(flow: Flow, since: date | None) -> Iterator[list[int]]:
    """The numbers of the counted runs of a flow, in order. During the lease they don't become more."""
    counted = Run.objects.filter(flow=flow, is_counted=True).order_by("pk")
    if since is not None:
        counted = counted.filter(ended_at__gte=datetime(since.year, since.month, since.day, tzinfo=UTC))
    last = 0
    while run_ids := list(counted.filter(pk__gt=last).values_list("pk", flat=True)[:BATCH]):
        yield run_ids
        last = run_ids[-1]


def _put_right(
    model: type[DailyCounts],
    stored: Mapping[Key, tuple[int, Values]],
    counted: Mapping[Key, DailyCounts],
    rebuilt: Rebuilt,
) -> None:
    added = [row for key, row in counted.items() if key not in stored]
    removed = [pk for key, (pk, _) in stored.items() if key not in counted]
    right = {key: read_values(row) for key, row in counted.items() if key in stored}
    corrected = [(stored[key][0], values) for key, values in right.items() if values != stored[key][1]]
    create_rows(model, added)
    update_rows(model, corrected)
    delete_rows(model, removed)
    rebuilt.added += len(added)
    rebuilt.corrected += len(corrected)
    rebuilt.removed += len(removed)
    rebuilt.kept += len(right) - len(corrected)
