"""Query parameters: the filters of lists of runs."""

from __future__ import annotations

from django.http import QueryDict

from flows.engine.errors import Problem
from flows.engine.history import Severity
from runs.filters import PARAMETERS, RunFilters

SEVERITIES = tuple(severity.value for severity in Severity)
LONGEST_TEXT = 200
"""Characters of a code or an audit’s name, as issues hold them."""


def find_filters(query: QueryDict) -> tuple[RunFilters, list[Problem]]:
    """The filters that a query asks for, and what is wrong with its parameters, each by name.

    Costs a query for each of flow, version and user that is named. Pages show a list all the same where a filter is
    not valid, and say so; here it is an error.
    """
    empty = [name for name in PARAMETERS if name in query and not "".join(query.getlist(name)).strip()]
    filters = RunFilters(query)
    wrong = [Problem(problem.parameter, problem.message) for problem in filters.problems]
    return filters, [*map(_describe_empty, empty), *wrong]


def _describe_empty(name: str) -> Problem:
    return Problem(name, f"“{name}” is empty; give it a value or leave it out.")
