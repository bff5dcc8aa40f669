"""The filters that are set, in words, each with the way to take it away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from runs.models import RunStatus
from runs.pages.badges import SEVERITIES
from runs.pages.figures import format_budget, format_count
from runs.pages.json_lines import show_invisible
from runs.run_filters import RunFilters


@dataclass(frozen=True, slots=True)
class FilterChip:
    """One filter: what it is about, what it asks for, and the address of the list without it."""

    name: str
    text: str
    url: str


def list_chips(
    filters: RunFilters, titles: Mapping[str, str], build_url: Callable[[RunFilters], str]
) -> tuple[FilterChip, ...]:
    """A chip for every filter that is set. One status alone has none: the row of statuses shows it.

    ``titles`` are those of flows by their names.
    """
    return tuple(
        FilterChip(name, show_invisible(text), build_url(filters.without(parameter)))
        for parameter, name, text in _describe(filters, titles)
    )


def _describe(filters: RunFilters, titles: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    statuses = [str(RunStatus(status).label) for status in filters.statuses]
    tokens, cost = filters.tokens, filters.cost
    described = (
        ("q", "Search", f"“{filters.search}”" if filters.search else ""),
        ("flow", "Flow", titles.get(filters.flow, filters.flow)),
        ("version", "Version", f"v{filters.version}" if filters.version is not None else ""),
        ("status", "Status", " or ".join(statuses) if len(statuses) > 1 else ""),
        ("severity", "Issues", f"{SEVERITIES[filters.severity].word} or above" if filters.severity else ""),
        ("audit", "Audit", filters.audit),
        ("code", "Issue code", filters.code),
        ("model", "Model", filters.model),
        ("label", "Label", filters.label),
        ("from", "Created from", _format_day(filters.since)),
        ("to", "Created to", _format_day(filters.until)),
        ("cost", "Cost", f"over {format_budget(cost)}" if cost is not None else ""),
        ("tokens", "Tokens", f"over {format_count(tokens)}" if tokens is not None else ""),
        ("by", "Started by", filters.started_by),
    )
    yield from (line for line in described if line[2])


def _format_day(day: date | None) -> str:
    return f"{day.day} {day:%b %Y}" if day else ""
