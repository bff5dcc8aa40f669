"""Query parameters: the filters of lists of runs, and the kinds of parameters of other lists."""

from __future__ import annotations

from collections.abc import Collection

from django.http import QueryDict

from flows.engine.errors import Problem
from flows.engine.history import Severity
from runs.api.paging import NUMBERS, shorten
from runs.filters import PARAMETERS, RunFilters

SEVERITIES = tuple(severity.value for severity in Severity)
LONGEST_TEXT = 200
"""Characters of a code or an audit’s name, as issues hold them."""


def find_filters(query: QueryDict) -> tuple[RunFilters, list[Problem]]:
    """The filters that a query asks for, and what is wrong with its parameters, each by name.

    Costs a query for each of flow, version and user that is named. Pages show a list all the same where a filter makes
    no sense, and say so; here it is an error.
    """
    empty = [name for name in PARAMETERS if name in query and not "".join(query.getlist(name)).strip()]
    filters = RunFilters(query)
    wrong = [Problem(problem.parameter, problem.message) for problem in filters.problems]
    return filters, [*map(_describe_empty, empty), *wrong]


def find_choice(query: QueryDict, name: str, choices: Collection[str], default: str, problems: list[Problem]) -> str:
    """The value of a parameter that can have these. Another one is added to ``problems``."""
    text = query.get(name, default)
    if text in choices:
        return text
    problems.append(Problem(name, f"“{shorten(text)}” is no value of “{name}”; it can be {', '.join(choices)}."))
    return default


def find_choices(query: QueryDict, name: str, choices: Collection[str], problems: list[Problem]) -> list[str]:
    """The values of a parameter, with commas between them or given repeatedly; none if it isn’t given."""
    wanted = [text for part in query.getlist(name) for text in part.split(",")]
    for text in wanted:
        if text not in choices:
            sentence = f"“{shorten(text)}” is no value of “{name}”; it can be {', '.join(choices)}."
            problems.append(Problem(name, sentence))
            break
    return wanted


def find_text(query: QueryDict, name: str, problems: list[Problem]) -> str:
    """The text of a parameter, empty if it isn’t given, or is none that a database can be asked for."""
    text = query.get(name, "")
    if name in query and not text:
        problems.append(_describe_empty(name))
    elif "\x00" in text or len(text) > LONGEST_TEXT:
        problems.append(Problem(name, f"“{name}” takes a text of up to {LONGEST_TEXT} characters that can be stored."))
        return ""
    return text


def find_row(query: QueryDict, name: str, problems: list[Problem]) -> int | None:
    """The number of a row that a parameter has; None if it isn’t given. One that no row can have is none’s."""
    if name not in query:
        return None
    try:
        return NUMBERS.read(query.get(name, ""))
    except ValueError as error:
        problems.append(Problem(name, str(error)))
        return None


def _describe_empty(name: str) -> Problem:
    return Problem(name, f"“{name}” is empty; give it a value or leave it out.")
