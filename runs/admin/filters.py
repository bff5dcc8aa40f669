"""Filters of the lists of history: those of ``runs.filters``, as choices to click, and as texts and days to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest

from flows.engine.history import Severity
from flows.models import Flow, FlowVersion
from runs.filters import IssueFilter, RunFilter, RunFilters, one_of
from runs.history.texts import show_invisible
from runs.models import Issue
from runs.models.history import OUTCOME_CHOICES

RECENT = 500
"""The newest issues, whose codes and audits are suggested."""
_top, *_between, _lowest = reversed(Severity)
_SEVERITIES = [
    (_top.value, f"{_top.value.capitalize()} only"),
    *((severity.value, f"{severity.value.capitalize()} and above") for severity in _between),
    (_lowest.value, "Any issue"),
]

# ---------------------------------------------------------------------------------------------------------------------
# What rows are filtered by


class HistoryFilters(RunFilters):
    """Filters of runs. In the admin ``q`` is the search box of the list."""

    q = None  # type: ignore[assignment]


class AttemptFilters(HistoryFilters):
    """Filters of attempts, by what is true of their runs, of themselves, and of one and the same issue."""

    # What is true of runs alone.
    status = reason = model = label = cost = tokens = accepted = by = None  # type: ignore[assignment]
    outcome = RunFilter(
        forms.ChoiceField,
        "outcome",
        label="Outcome",
        **one_of("an outcome", [*OUTCOME_CHOICES, ("running", "Under way")]),
    )
    attempt = ""
    """The path from a row to its attempt, with the last ``__``."""
    columns: Mapping[str, str] = {
        "flow": "step__run__flow",
        "version": "step__run__version",
        "from": "started_at",
        "to": "started_at",
        "outcome": "outcome",
    }

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        for name, column in self.columns.items():
            self.filters[name].field_name = f"{self.attempt}{column}"

    def build_condition(self, *without: str) -> Q:
        """What is true of the rows that match."""
        condition, about_issue = Q(), Q()
        for name, value in self.values.items():
            one = self.filters[name]
            if isinstance(one, IssueFilter):
                about_issue &= one.build_issue_condition(value)
            else:
                # An attempt that is under way has no outcome yet.
                condition &= one.build_condition("" if value == "running" else value)
        return condition & self.build_issue_condition(about_issue) if about_issue else condition

    def build_issue_condition(self, about: Q) -> Q:
        """That the row has an issue of which ``about`` is true."""
        return Q(Exists(Issue.objects.filter(about, attempt=OuterRef("pk"))))


class IssueRowFilters(AttemptFilters):
    """Filters of issues."""

    attempt = "attempt__"

    def build_issue_condition(self, about: Q) -> Q:
        """That the row is such an issue."""
        return about


# ---------------------------------------------------------------------------------------------------------------------
# How they are chosen


class ChoiceFilter(admin.SimpleListFilter):
    """One filter of a list, which applies them all together."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """The choices."""
        match self.parameter_name:
            case "flow":
                return list(Flow.objects.order_by("title", "pk").values_list("name", "title"))
            case "version":
                # Once a flow is chosen.
                name = request.GET.get("flow", "").replace("\x00", "")
                numbers = FlowVersion.objects.filter(flow__name=name).values_list("number", flat=True) if name else []
                return [(str(number), f"Version {number}") for number in numbers]
            case "severity":
                return _SEVERITIES
        return list(model_admin.filters.base_filters[self.parameter_name].field.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """All rows: see ``HistoryList``."""
        return queryset


class WrittenFilter(ChoiceFilter):
    """A value that is written: a field of its own, which keeps the other filters."""

    template = "admin/runs/input_filter.html"
    others: Sequence[tuple[str, str]] = ()
    """The other parameters of the address, which its form sends along."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """None to click."""
        return ()

    def has_output(self) -> bool:
        """Always."""
        return True

    @property
    def input_type(self) -> str:
        """The type of the field."""
        return "date" if self.parameter_name in ("from", "to") else "text"

    @cached_property
    def suggestions(self) -> list[str]:
        """The codes or audits of recent issues."""
        if self.input_type == "date":
            return []
        recent = Issue.objects.order_by("-pk").values_list(str(self.parameter_name), flat=True)[:RECENT]
        return sorted({text for text in recent if text and text == show_invisible(text)})

    def choices(self, changelist: Any) -> Iterator[Any]:
        """None to click; the template reads ``others``."""
        params = changelist.get_filters_params()
        self.others = [(name, one) for name, all in params.items() if name != self.parameter_name for one in all]
        if changelist.query:
            self.others.append((SEARCH_VAR, changelist.query))
        yield from ()


def show_filters(*names: str) -> tuple[type[ChoiceFilter], ...]:
    """The filters of a list by their names in addresses, which are those of ``runs.filters``."""
    found: list[type[ChoiceFilter]] = []
    for name in names:
        kind = WrittenFilter if name in ("from", "to", "audit", "code") else ChoiceFilter
        title = "end reason" if name == "reason" else name
        found.append(type(kind.__name__, (kind,), {"title": title, "parameter_name": name}))
    return tuple(found)
