"""Filters of the list of runs as a JSON object: what a list takes in its address, in a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from flows.engine.json_values import describe_type
from runs.api.run_query import find_filters
from runs.api.runs_parameters import FILTERS
from runs.filters import PARAMETERS, RunFilters

_NUMBERS = ("version", "tokens")
_LISTS = ("status", "label")


def _describe_filters() -> dict[str, Any]:
    """The parameters of the list, as fields of an object."""
    shapes: dict[str, Any] = {}
    for parameter in FILTERS:
        shape: Any = parameter.type
        shapes[parameter.name] = {**shape, "description": parameter.description}
    return {"type": "object", "properties": shapes, "additionalProperties": False}


FILTERS_SHAPE = _describe_filters()
"""The schema of filters as an object."""


def parse_filters(given: Mapping[str, Any]) -> tuple[RunFilters, dict[str, list[str]]]:
    """Filters by their names in addresses, and what is wrong with each."""
    wrong: dict[str, list[str]] = {}
    query = QueryDict(mutable=True)
    for name, value in given.items():
        if name not in PARAMETERS:
            wrong[name] = [f"There is no filter of this name; known are {', '.join(PARAMETERS)}."]
        elif sentence := _find_problem(name, value):
            wrong[name] = [sentence]
        else:
            query.setlist(name, value if isinstance(value, list) else [_read(value)])
    filters, problems = find_filters(query)
    return filters, {**{problem.path: [problem.message] for problem in problems}, **wrong}


def _find_problem(name: str, value: Any) -> str:
    if name in _NUMBERS:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return (
            ""
            if is_number and (isinstance(value, int) or value.is_integer())
            else f"This must be a whole number, got {describe_type(value)}."
        )
    if name in _LISTS and isinstance(value, list):
        is_texts = bool(value) and all(isinstance(item, str) for item in value)
        return "" if is_texts else "This must be a list of texts, at least one."
    if not isinstance(value, str):
        return f"This must be {'a list of texts' if name in _LISTS else 'text'}, got {describe_type(value)}."
    return ""


def _read(value: Any) -> str:
    return value if isinstance(value, str) else str(int(value))


def write_filters(query: str) -> dict[str, Any]:
    """Filters that are kept as the query string of a list, as an object. Nothing is looked up: a flow may be gone."""
    values = QueryDict(query)
    return {name: _write(name, str(value)) for name, value in values.items()} | (
        {"label": values.getlist("label")} if len(values.getlist("label")) > 1 else {}
    )


def _write(name: str, text: str) -> Any:
    if name == "status":
        return text.split(",")
    return int(text) if name in _NUMBERS and text.isdigit() else text
