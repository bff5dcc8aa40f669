"""What lists of history are narrowed by: one form a list, bound to the query string.

No choice is read from a big table. Codes and audits are typed; what the newest rows hold is suggested.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from functools import cached_property
from typing import Any, ClassVar

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from flows.engine.history import Severity
from flows.models import Flow, FlowVersion
from runs.models import EndReason, Issue, RunStatus
from runs.models.history import OUTCOME_CHOICES

RECENT = 500
"""Rows from which suggestions are taken, the newest."""

EARLIEST, LATEST = date(2000, 1, 1), date(2999, 12, 31)

_UNDER_WAY = "running"


def _make_choice(label: str, choices: Iterable[tuple[str, str]] = (), *, otherwise: str = "All") -> forms.ChoiceField:
    unknown = f"There is no {label.lower()} “%(value).40s”, so this narrows nothing."
    return forms.ChoiceField(
        label=label,
        choices=[("", otherwise), *choices],
        required=False,
        error_messages={"invalid_choice": unknown},
    )


def _make_text(label: str) -> forms.CharField:
    return forms.CharField(label=label, max_length=200, required=False)


class _DayInput(forms.DateInput):
    """A browser's own date field, which complains about values that are no dates."""

    input_type = "date"

    def format_value(self, value: Any) -> str | None:
        """The date; nothing for what is none."""
        try:
            return str(value if isinstance(value, date) else date.fromisoformat(value))
        except (TypeError, ValueError):
            return None


def _make_date(label: str) -> forms.DateField:
    no_date = f"Write a date between {EARLIEST} and {LATEST}, such as 2026-11-21."
    limits = [MinValueValidator(EARLIEST, no_date), MaxValueValidator(LATEST, no_date)]
    return forms.DateField(
        label=label,
        required=False,
        input_formats=["%Y-%m-%d"],
        widget=_DayInput(attrs={"min": EARLIEST, "max": LATEST}),
        error_messages={"invalid": no_date},
        validators=limits,
    )


def _make_severity() -> forms.ChoiceField:
    top, *between, lowest = reversed(Severity)
    choices = [
        (top.value, f"{top.value.capitalize()} only"),
        *((severity.value, f"{severity.value.capitalize()} and above") for severity in between),
        (lowest.value, "Any issue"),
    ]
    return _make_choice("Severity", choices)


def _begin_of(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


class HistoryFilters(forms.Form):
    """Filters that all lists of history have. What makes no sense is told beside its field and narrows nothing."""

    run_path: ClassVar[str] = ""
    """The way from a row to its run, with the last ``__``."""
    date_path: ClassVar[str] = ""
    """The way to the moment that dates are compared with."""
    order_of_all: ClassVar[tuple[str, ...]] = ("-pk",)
    run_order: ClassVar[tuple[str, ...]] = ("-pk",)
    """The newest run first, and within it the last row first: how rows of one flow are found without sorting all."""

    flow = _make_choice("Flow")
    version = _make_choice("Version")
    since = _make_date("From")
    until = _make_date("To")

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="filter-%s", label_suffix="", use_required_attribute=False)
        self.suggestions: dict[str, list[str]] = {}
        """What may be typed, by the id of its ``datalist``."""
        flows = Flow.objects.order_by("title", "pk").values_list("name", "title", "pk")
        self._flow_keys = {name: key for name, _, key in flows}
        self._set_choices("flow", [(name, title) for name, title, _ in flows], otherwise="All flows")
        chosen = self._flow_keys.get(self.data.get("flow", ""))
        self._version_keys: dict[str, int] = {}
        if chosen is not None:
            versions = FlowVersion.objects.filter(flow=chosen).values_list("number", "pk")
            self._version_keys = {str(number): key for number, key in versions}
            choices = [(number, f"Version {number}") for number in self._version_keys]
            self._set_choices("version", choices, otherwise="All versions")
        else:
            self.fields["version"].widget.attrs["disabled"] = True
            self._set_choices("version", [], otherwise="Choose a flow")
            self.fields["version"].error_messages["invalid_choice"] = (
                "Versions are numbered within their flow: choose a flow first."
            )

    def _set_choices(self, name: str, choices: list[tuple[str, str]], *, otherwise: str) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", otherwise), *choices]

    def _suggest(self, name: str, values: Iterable[str]) -> None:
        key = f"suggested-{name}"
        self.suggestions[key] = sorted(set(values) - {""})
        self.fields[name].widget.attrs["list"] = key

    @cached_property
    def chosen(self) -> dict[str, Any]:
        """The values that narrow the list, by field."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    @property
    def order(self) -> tuple[str, ...]:
        """How the list is sorted: always the newest first, in the way that finds its rows fastest."""
        return self.run_order if "flow" in self.chosen else self.order_of_all

    def build_condition(self) -> Q:
        """What rows must meet."""
        condition, chosen = Q(), self.chosen
        if flow := chosen.get("flow"):
            condition &= Q(**{f"{self.run_path}flow": self._flow_keys[flow]})
        if version := chosen.get("version"):
            condition &= Q(**{f"{self.run_path}version": self._version_keys[version]})
        if since := chosen.get("since"):
            condition &= Q(**{f"{self.date_path}__gte": _begin_of(since)})
        if until := chosen.get("until"):
            condition &= Q(**{f"{self.date_path}__lt": _begin_of(until + timedelta(days=1))})
        return condition


class RunFilters(HistoryFilters):
    """Runs: by what came of them, and by the issues that they count."""

    date_path = "created_at"
    run_order = order_of_all = ("-created_at", "-pk")
    field_order = ("status", "severity", "flow", "version", "reason", "since", "until")

    status = _make_choice("Status", RunStatus.choices)
    severity = _make_severity()
    reason = _make_choice("End reason", EndReason.choices)

    def build_condition(self) -> Q:
        """What runs must meet."""
        condition, chosen = super().build_condition(), self.chosen
        if status := chosen.get("status"):
            condition &= Q(status=status)
        if reason := chosen.get("reason"):
            condition &= Q(end_reason=reason)
        if severity := chosen.get("severity"):
            least, grave = Severity(severity), Q()
            for other in Severity:
                if other >= least:
                    grave |= Q(**{f"issues_{other.value}__gt": 0})
            condition &= grave
        return condition


class _IssueFilters(HistoryFilters):
    """Attempts and issues: by what audits found."""

    attempt_path: ClassVar[str] = ""

    field_order = ("severity", "audit", "code", "outcome", "flow", "version", "since", "until")

    severity = _make_severity()
    audit = _make_text("Audit")
    code = _make_text("Code")
    outcome = _make_choice("Outcome", [*OUTCOME_CHOICES, (_UNDER_WAY, "Under way")])

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        recent = list(Issue.objects.order_by("-pk").values_list("audit", "code")[:RECENT])
        self._suggest("audit", (audit for audit, _ in recent))
        self._suggest("code", (code for _, code in recent))

    def build_condition(self) -> Q:
        """What rows must meet, save for what is asked of issues."""
        condition = super().build_condition()
        if outcome := self.chosen.get("outcome"):
            condition &= Q(**{f"{self.attempt_path}outcome": "" if outcome == _UNDER_WAY else outcome})
        return condition

    def build_issue_condition(self) -> Q:
        """What issues must meet, as seen from an issue; empty if nothing is asked of them."""
        condition, chosen = Q(), self.chosen
        if severity := chosen.get("severity"):
            grave = [other.value for other in Severity if other >= Severity(severity)]
            condition &= Q(severity__in=grave)
        for name in ("audit", "code"):
            if text := chosen.get(name):
                condition &= Q(**{name: text})
        return condition


class AttemptFilters(_IssueFilters):
    """Attempts with an issue that has the severity, the audit and the code that are asked for."""

    run_path = "step__run__"
    date_path = "started_at"
    run_order = ("-step__run_id", "-step__index", "-number")

    def build_condition(self) -> Q:
        """What attempts must meet."""
        condition, wanted = super().build_condition(), self.build_issue_condition()
        return condition & Q(Exists(Issue.objects.filter(wanted, attempt=OuterRef("pk")))) if wanted else condition


class IssueFilters(_IssueFilters):
    """Issues."""

    run_path = "attempt__step__run__"
    attempt_path = "attempt__"
    date_path = "attempt__started_at"
    run_order = ("-attempt__step__run_id", "-attempt__step__index", "-attempt__number", "position")

    def build_condition(self) -> Q:
        """What issues must meet."""
        return super().build_condition() & self.build_issue_condition()
