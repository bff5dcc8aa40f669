"""Filters that must be right to the letter: where it won't do to leave one out and show all runs in place of some."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from runs.run_filters import RunFilters, find_filters, find_unknown_names


def read_exact_filters(query: Mapping[str, str], *, others: Collection[str] = ()) -> tuple[RunFilters, tuple[str, ...]]:
    """The filters of a query string, and sentences about the values and names in it that make no sense.

    ``others`` are names that may stand beside the filters.
    """
    filters, problems = find_filters(query)
    told = (problem.fact for problem in problems)
    return filters, (*told, *find_unknown_names(query, others=others))
