"""The filters that are set, in words, each with the way to take it away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.forms import ChoiceField

from runs.filters import RunFilters
from runs.formatting import format_budget, format_count
from runs.history.json_lines import show_invisible
from runs.models import RunStatus
from runs.pages.badges import SEVERITIES


@dataclass(frozen=True, slots=True)
class FilterChip:
    """One filter: what it is about, what it asks for, and the address of the list without it."""

    name: str
    text: str
    url: str


def list_chips(
    filters: RunFilters, titles: Mapping[str, str], build_url: Callable[[str], str]
) -> tuple[FilterChip, ...]:
    """A chip for every filter that is set. One status alone has none: the row of statuses shows it.

    ``titles`` are those of flows by their names; ``build_url`` gives the address of the list without a filter.
    """
    return tuple(
        FilterChip(str(filters.filters[name].label), show_invisible(text), build_url(name))
        for name, value in filters.values.items()
        if (text := _format(name, value, titles, filters.filters[name].field))
    )


def _format(name: str, value: Any, titles: Mapping[str, str], field: Any) -> str:
    match name:
        case "q":
            return f"“{value}”"
        case "flow":
            return titles.get(value.name, value.name)
        case "version":
            return f"v{value.number}"
        case "status":
            return " or ".join(str(RunStatus(status).label) for status in value) if len(value) > 1 else ""
        case "severity":
            return f"{SEVERITIES[value].word} or above"
        case "label":
            return " and ".join(value)
        case "from" | "to":
            return _format_moment(value.text)
        case "cost":
            return f"over {format_budget(value)}"
        case "tokens":
            return f"over {format_count(value)}"
    if type(field) is ChoiceField:
        return str(dict(field.choices)[value])  # type: ignore[arg-type]  # pairs of value and word
    return str(value)


def _format_moment(text: str) -> str:
    day = date.fromisoformat(text[:10])
    return f"{day.day} {day:%b %Y}{text[10:].replace('T', ' ')}"
