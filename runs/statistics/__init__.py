"""Statistics of ended runs, by flow, version and day."""

from __future__ import annotations

from collections.abc import Collection


def count_runs(run_ids: Collection[int]) -> None:
    """Count runs that have ended; within the transaction that marks them as tallied."""
