"""Statistics made anew from the runs that are stored, beside workers that go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.db import transaction
from django.utils import timezone

from flows.models import Flow
from runs.models import HourlyRuns, PurgedDay, Run
from runs.models.statistics import Counts
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
from runs.statistics.hours import find_first_day
from runs.statistics.turns import Pause

BATCH = 500
"""Runs read at a time."""


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
    flow: Flow, *, pause: Pause, since: date | None = None, report: Callable[[int], None] = lambda _done: None
) -> Rebuilt:
    """Count all tallied runs of ``flow`` again, and put right what is stored, in one transaction at the end.

    ``pause`` has begun. With ``since``, days before it are left as they are, and always those whose runs retention has
    deleted. ``report`` is told after each batch how many runs were counted so far. Raises ``PauseLostError``; then
    nothing has changed.
    """
    rebuilt = Rebuilt()
    rows = DailyRows()
    hours_since = find_first_day(timezone.now())
    for run_ids in _batch_tallied(flow, since):
        pause.prolong()
        runs = read_ended_runs(run_ids)
        add_runs(rows, runs, hours_since=hours_since)
        rebuilt.runs += len(runs)
        report(rebuilt.runs)
    with transaction.atomic():
        pause.prolong()
        lacking = set(PurgedDay.objects.filter(flow=flow).values_list("day", flat=True))
        if since is not None:
            lacking = {day for day in lacking if day >= since}
        rebuilt.lacking = len(lacking)
        for model, counted in rows:
            stored = model._default_manager.filter(flow_id=flow.pk).exclude(day__in=lacking)
            counted = {key: row for key, row in counted.items() if row.day not in lacking}
            first = max(since or hours_since, hours_since) if model is HourlyRuns else since
            if first is not None:
                stored = stored.filter(day__gte=first)
            _put_right(model, load_stored(stored), counted, rebuilt)
    return rebuilt


def _batch_tallied(flow: Flow, since: date | None) -> Iterator[list[int]]:
    """The numbers of the tallied runs of a flow, in order. During a pause they don't become more."""
    tallied = Run.objects.filter(flow=flow, is_tallied=True).order_by("pk")
    if since is not None:
        tallied = tallied.filter(ended_at__gte=datetime(since.year, since.month, since.day, tzinfo=UTC))
    last = 0
    while run_ids := list(tallied.filter(pk__gt=last).values_list("pk", flat=True)[:BATCH]):
        yield run_ids
        last = run_ids[-1]


def _put_right(
    model: type[Counts],
    stored: Mapping[Key, tuple[int, Values]],
    counted: Mapping[Key, Counts],
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
