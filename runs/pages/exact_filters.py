"""Filters that must be right to the letter: where it won't do to leave one out and show all runs in place of some."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from runs.filters import RunFilters


def read_exact_filters(query: Mapping[str, str], *, others: Collection[str] = ()) -> tuple[RunFilters, tuple[str, ...]]:
    """The filters of a query string, and sentences about the values and names in it that make no sense.

    ``others`` are names that may stand beside the filters.
    """
    filters = RunFilters(query)
    return filters, (*(problem.message for problem in filters.problems), *filters.find_unknown_names(others))
