"""Statistics of ended runs, by flow, version and day: added to as runs are tallied, and rebuilt when asked for."""

from __future__ import annotations

from collections.abc import Collection

from runs.statistics.counting import add_runs
from runs.statistics.daily_rows import DailyRows, add_to_stored
from runs.statistics.ended_runs import EndedRun, read_ended_runs


def count_runs(run_ids: Collection[int]) -> list[EndedRun]:
    """Count runs that have ended, within the transaction that marks them as tallied; gives what was read of them.

    It is the caller's turn (``runs.statistics.turns``).
    """
    runs = read_ended_runs(run_ids)
    rows = DailyRows()
    add_runs(rows, runs)
    add_to_stored(rows)
    return runs
