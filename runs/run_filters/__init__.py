"""What a list of runs is filtered by, and finding the runs that match, newest first, at any depth.

Pages, exports and bulk actions ask here, so that they mean the same runs.
"""

from runs.run_filters.filters import RunFilters
from runs.run_filters.finding import FoundRuns, Position, find_newest_run, find_runs
from runs.run_filters.reading import FilterProblem, find_filters, find_unknown_names, read_filters

__all__ = [
    "FilterProblem",
    "FoundRuns",
    "Position",
    "RunFilters",
    "find_filters",
    "find_newest_run",
    "find_runs",
    "find_unknown_names",
    "read_filters",
]
