"""Statistics of ended runs, by day: added to as runs are counted, and rebuilt when asked for."""

from __future__ import annotations

from collections.abc import Collection

from runs.statistics.counting import add_runs
from runs.statistics.daily_rows import DailyRows, add_to_stored
from runs.statistics.ended_runs import read_ended_runs


def count_runs(run_ids: Collection[int]) -> None:
    """Count runs that have ended, within the transaction that marks them as counted and holds ``locks.STATISTICS``."""
    rows = DailyRows()
    add_runs(rows, read_ended_runs(run_ids))
    add_to_stored(rows)
