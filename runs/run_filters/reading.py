"""Filters from a query string: what makes no sense becomes a sentence and is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib.auth import get_user_model
from django.utils.datastructures import MultiValueDict

from flows.engine.history import Severity
from flows.models import Flow, FlowVersion
from runs.facets import MAX_VALUE_LENGTH
from runs.models import RunStatus
from runs.prepared_select import LARGEST_NUMBER
from runs.run_filters.filters import PARAMETERS, RunFilters
from runs.search import read_query

_LARGEST_COST = 1_000_000_000
_LONGEST_VERSION = 9
_YEARS = range(1970, 2200)
_SHOWN = 40
_MOST_NAMED = 3
_RUN_NUMBER = re.compile(r"#?([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class FilterProblem:
    """What is wrong with one filter: ``fact`` is a sentence, ``consequence`` what a list does all the same."""

    parameter: str
    """Its name in addresses."""
    fact: str
    consequence: str

    def __str__(self) -> str:
        """Both as what a page says."""
        is_joined = self.consequence[0].islower()
        return f"{self.fact[:-1]}; {self.consequence}" if is_joined else f"{self.fact} {self.consequence}"


class _NonsenseError(ValueError):
    """A value that makes no sense: what is wrong with it, and what follows."""

    def __init__(self, fact: str, consequence: str) -> None:
        super().__init__(fact)
        self.fact = fact
        self.consequence = consequence


def read_filters(query: Mapping[str, str]) -> tuple[RunFilters, tuple[str, ...]]:
    """The filters that a query string asks for. A value that makes no sense gives a sentence and is left out.

    Costs a query for each of flow, version and user that is named.
    """
    filters, problems = find_filters(query)
    return filters, tuple(map(str, problems))


def find_filters(query: Mapping[str, str]) -> tuple[RunFilters, tuple[FilterProblem, ...]]:
    """Like ``read_filters``, for whoever wants to know which filter is wrong, or leaves none out."""
    values: dict[str, Any] = {}
    problems = []
    for parameter, name in PARAMETERS.items():
        text = _get_text(query, parameter)
        if text:
            try:
                values[name] = _READERS[parameter](_check_text(parameter, text))
            except _NonsenseError as error:
                problems.append(FilterProblem(parameter, error.fact, error.consequence))
    wrong = {problem.parameter for problem in problems}
    problems += [problem for check in (_check_version, _check_days) if (problem := check(values, wrong))]
    return RunFilters(**values), tuple(problems)


def find_unknown_names(query: Mapping[str, str], *, others: Collection[str] = ()) -> tuple[str, ...]:
    """A sentence if a query string has names that are no filters, else nothing.

    ``others`` are names that may stand beside the filters.
    """
    names = [f"“{shorten(name)}”" for name in query if name not in PARAMETERS and name not in others]
    if not names:
        return ()
    return (f"There is no filter {' or '.join(names[:_MOST_NAMED])}; the filters are {', '.join(PARAMETERS)}.",)


def read_run_number(text: str) -> int | None:
    """The number of a run that somebody typed, with or without “#”; None if it is something else."""
    match = _RUN_NUMBER.fullmatch(text)
    return int(match[1]) if match and int(match[1]) <= LARGEST_NUMBER else None


def shorten(text: str) -> str:
    """Text of an address as a sentence shows it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _get_text(query: Mapping[str, str], parameter: str) -> str:
    if parameter == "status" and isinstance(query, MultiValueDict):
        # A form with a box for each status repeats the name.
        return ",".join(text for text in query.getlist(parameter) if text)
    return query.get(parameter, "").strip()


def _check_text(parameter: str, text: str) -> str:
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise _NonsenseError("A filter held characters that no text of a run has.", "it is left out.")
    # A search says itself how long it may be.
    if parameter != "q" and len(text) > MAX_VALUE_LENGTH:
        sentence = f"“{shorten(text)}” is longer than {MAX_VALUE_LENGTH} characters."
        raise _NonsenseError(sentence, "the filter is left out.")
    return text


def _read_search(text: str) -> str:
    if read_run_number(text) is None:
        try:
            read_query(text)
        except ValueError as error:
            raise _NonsenseError(str(error), "Nothing was searched for.") from error
    return text


def _read_flow(text: str) -> str:
    if not Flow.objects.filter(name=text).exists():
        raise _NonsenseError(f"There is no flow “{shorten(text)}”.", "runs of all flows are shown.")
    return text


def _read_version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_VERSION and int(text)):
        raise _NonsenseError(
            f"“{shorten(text)}” is not the number of a version, such as 3.", "runs of all versions are shown."
        )
    return int(text)


def _read_status(text: str) -> str:
    wanted = set(text.split(","))
    unknown = sorted(wanted.difference(RunStatus.values))
    if unknown:
        raise _NonsenseError(
            f"“{shorten(unknown[0])}” is not a status; it can be {', '.join(RunStatus.values)}.", "All runs are shown."
        )
    return "" if len(wanted) == len(RunStatus) else ",".join(status for status in RunStatus.values if status in wanted)


def _read_severity(text: str) -> str:
    names = [severity.value for severity in Severity]
    if text not in names:
        raise _NonsenseError(
            f"“{shorten(text)}” is not a severity; it can be {', '.join(names)}.",
            "Runs are shown whatever their issues.",
        )
    return text


def _read_day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if len(text) != len("2026-11-21") or day.year not in _YEARS:
        raise _NonsenseError(f"“{shorten(text)}” is not a day such as 2026-11-21.", "runs of all days are shown.")
    return day


def _read_cost(text: str) -> Decimal:
    try:
        cost = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        cost = Decimal(-1)
    if not cost.is_finite() or not 0 <= cost <= _LARGEST_COST or cost != round(cost, 8):
        raise _NonsenseError(
            f"“{shorten(text)}” is not a sum in US dollars such as 0.05.", "runs are shown whatever they cost."
        )
    return cost


def _read_tokens(text: str) -> int:
    digits = re.sub(r"[\s,_]", "", text)
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15:
        raise _NonsenseError(
            f"“{shorten(text)}” is not a number of tokens such as 20000.", "runs are shown whatever they used."
        )
    return int(digits)


def _read_user(text: str) -> str:
    if not get_user_model().objects.filter(username=text).exists():
        raise _NonsenseError(f"There is no user “{shorten(text)}”.", "runs of everybody are shown.")
    return text


def _check_version(values: dict[str, Any], wrong: Collection[str]) -> FilterProblem | None:
    """What is wrong with a version that looks like one. ``wrong`` are the filters that make no sense by themselves."""
    version = values.get("version")
    if version is None:
        return None
    if not (flow := values.get("flow")):
        del values["version"]
        if "flow" in wrong:
            # Which flow it was for is told already, as the mistake.
            return None
        fact = "Versions are counted within a flow: choose the flow too."
        return FilterProblem("version", fact, "Runs of all versions are shown.")
    if not FlowVersion.objects.filter(flow__name=flow, number=version).exists():
        del values["version"]
        fact = f"The flow “{shorten(flow)}” has no version {version}."
        return FilterProblem("version", fact, "runs of all its versions are shown.")
    return None


def _check_days(values: dict[str, Any], wrong: Collection[str]) -> FilterProblem | None:
    since, until = values.get("since"), values.get("until")
    if since is None or until is None or since <= until:
        return None
    del values["since"], values["until"]
    fact = f"No day is after {since} and before {until}: the first day comes first."
    return FilterProblem("to", fact, "Runs of all days are shown.")


_READERS: Mapping[str, Callable[[str], Any]] = {
    "q": _read_search,
    "flow": _read_flow,
    "version": _read_version,
    "status": _read_status,
    "severity": _read_severity,
    "audit": str,
    "code": str,
    "model": str,
    "label": str,
    "from": _read_day,
    "to": _read_day,
    "cost": _read_cost,
    "tokens": _read_tokens,
    "by": _read_user,
}
