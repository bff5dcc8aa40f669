"""Filters that must be right to the letter: where it won't do to leave one out and show all runs in place of some."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from runs.run_filters import RunFilters, find_unknown_names, read_filters

_CONSEQUENCE = re.compile(r"[;.] [^;.]*(are shown|is left out)[^;.]*\.$")
"""What the list does about a filter that makes no sense, at the end of the sentence that says so."""


def read_exact_filters(query: Mapping[str, str], *, others: Collection[str] = ()) -> tuple[RunFilters, tuple[str, ...]]:
    """The filters of a query string, and sentences about the values and names in it that make no sense.

    ``others`` are names that may stand beside the filters.
    """
    filters, problems = read_filters(query)
    told = (_CONSEQUENCE.sub(".", problem) for problem in problems)
    return filters, (*told, *find_unknown_names(query, others=others))
