"""Filters of the lists of history: choices to click, and texts and days to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, reduce
from operator import or_
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from flows.engine.history import Severity
from flows.models import Flow, FlowVersion
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


class ChoiceFilter(admin.SimpleListFilter):
    """The rows whose ``column`` has the chosen value."""

    column = ""
    options: Iterable[tuple[str, str]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """The choices."""
        return self.options

    def value(self) -> str | None:
        """What is chosen. Raises ``IncorrectLookupParameters`` for what no column holds."""
        value = super().value() or None
        if value and "\x00" in value:
            raise IncorrectLookupParameters
        return value

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that match."""
        value = self.value()
        return queryset if value is None else queryset.filter(self.build_condition(value, request.GET))

    def build_condition(self, value: str, chosen: Mapping[str, str]) -> Q:
        """What is true of the rows that match; ``chosen`` are all parameters of the address."""
        return Q(**{self.column: value})


class FlowFilter(ChoiceFilter):
    """By flow."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """All flows."""
        return list(Flow.objects.order_by("title", "pk").values_list("name", "title"))


class VersionFilter(ChoiceFilter):
    """By version, once a flow is chosen."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """The versions of the flow."""
        name = request.GET.get("flow", "").replace("\x00", "")
        numbers = FlowVersion.objects.filter(flow__name=name).values_list("number", flat=True) if name else []
        return [(str(number), f"Version {number}") for number in numbers]

    def build_condition(self, value: str, chosen: Mapping[str, str]) -> Q:
        """Raises ``IncorrectLookupParameters`` for a version that the flow does not have."""
        if value not in dict(self.lookup_choices):
            raise IncorrectLookupParameters
        return super().build_condition(value, chosen)


class OutcomeFilter(ChoiceFilter):
    """By the outcome of an attempt; one that is under way has none."""

    options = (*OUTCOME_CHOICES, ("running", "Under way"))

    def build_condition(self, value: str, chosen: Mapping[str, str]) -> Q:
        """The outcome, which is empty while the attempt is under way."""
        return Q(**{self.column: "" if value == "running" else value})


class RunSeverityFilter(ChoiceFilter):
    """Runs by their issues of at least a severity, which they count."""

    title, parameter_name, options = "severity", "severity", _SEVERITIES

    def build_condition(self, value: str, chosen: Mapping[str, str]) -> Q:
        """That one of the counts is not 0."""
        conditions = (Q(**{f"issues_{severity}__gt": 0}) for severity in _list_severe(value))
        return reduce(or_, conditions, Q(pk__in=[]))


class _InputFilter(ChoiceFilter):
    """A value that is written: a field of its own, which keeps the other filters."""

    template = "admin/runs/input_filter.html"
    input_type = "text"
    others: Sequence[tuple[str, str]] = ()
    """The other parameters of the address, which its form sends along."""

    def has_output(self) -> bool:
        """Always."""
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        """None to click; the template reads ``others``."""
        params = changelist.get_filters_params()
        self.others = [(name, one) for name, all in params.items() if name != self.parameter_name for one in all]
        if changelist.query:
            self.others.append((SEARCH_VAR, changelist.query))
        yield from ()


class DayFilter(_InputFilter):
    """By a day in the viewer's time zone, from or until which rows count; the last one is included."""

    input_type = "date"

    def build_condition(self, value: str, chosen: Mapping[str, str]) -> Q:
        """Raises ``IncorrectLookupParameters`` for what is no day."""
        is_last = self.parameter_name == "until"
        try:
            day = date.fromisoformat(value) + timedelta(days=is_last)
            begin = timezone.make_aware(datetime.combine(day, time.min)).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise IncorrectLookupParameters from error
        return Q(**{f"{self.column}__{'lt' if is_last else 'gte'}": begin})


class _IssueFilter(ChoiceFilter):
    """By issues: in a list of attempts, one and the same issue has the severity, audit and code of the address."""

    is_of_attempts = False

    def build_condition(self, value: str, chosen: Mapping[str, str]) -> Q:
        """What all three filters say together; each of them says the whole."""
        condition = Q()
        if severity := chosen.get("severity"):
            condition &= Q(severity__in=_list_severe(severity))
        for name in ("audit", "code"):
            if text := chosen.get(name):
                condition &= Q(**{name: text})
        if not self.is_of_attempts:
            return condition
        return Q(Exists(Issue.objects.filter(condition, attempt=OuterRef("pk"))))


class IssueSeverityFilter(_IssueFilter):
    """Issues of at least a severity."""

    title, parameter_name, options = "severity", "severity", _SEVERITIES


class IssueTextFilter(_InputFilter, _IssueFilter):
    """Issues with a code or an audit, written whole; those of recent issues are suggested."""

    @cached_property
    def suggestions(self) -> list[str]:
        """What recent issues have."""
        recent = Issue.objects.order_by("-pk").values_list(str(self.parameter_name), flat=True)[:RECENT]
        return sorted({text for text in recent if text and text == show_invisible(text)})


def _list_severe(value: str) -> list[str]:
    """The severities from this one up; none for what is no severity."""
    return [one.value for one in Severity if one >= Severity(value)] if value in list(Severity) else []


def filter_by(kind: type[ChoiceFilter], title: str, name: str = "", **attributes: Any) -> type[ChoiceFilter]:
    """A filter for a list: ``name`` is that of its parameter, and ``title`` if it is not given."""
    return type(kind.__name__, (kind,), {"title": title, "parameter_name": name or title, **attributes})


def list_common(run: str, time: str) -> list[type[ChoiceFilter]]:
    """The filters of all lists. ``run`` is the path to the run with the last ``__``, ``time`` the path to the time."""
    return [
        filter_by(FlowFilter, "flow", column=f"{run}flow__name"),
        filter_by(VersionFilter, "version", column=f"{run}version__number"),
        filter_by(DayFilter, "from", "since", column=time),
        filter_by(DayFilter, "to", "until", column=time),
    ]
