"""Statistics of ended runs, by day and lately by hour: added to as runs are tallied, and rebuilt when asked for."""

from __future__ import annotations

from collections.abc import Collection

from django.utils import timezone

from runs.statistics.counting import add_runs
from runs.statistics.daily_rows import DailyRows, add_to_stored
from runs.statistics.ended_runs import EndedRun, read_ended_runs
from runs.statistics.hours import find_first_day
from runs.statistics.turns import tell_of_change


def count_runs(run_ids: Collection[int]) -> list[EndedRun]:
    """Count runs that have ended, within the transaction that marks them as tallied; gives what was read of them.

    It is the caller's turn (``runs.statistics.turns``).
    """
    now = timezone.now()
    runs = read_ended_runs(run_ids)
    rows = DailyRows()
    add_runs(rows, runs, hours_since=find_first_day(now))
    add_to_stored(rows)
    tell_of_change((run.day for run in runs), now=now)
    return runs
