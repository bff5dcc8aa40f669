"""What runs are filtered by: one filter set for pages, API, exports and bulk actions.

A filter is one attribute of ``RunFilters``: pages, the API and its reference show it by its field, label and help text.
``fetch_matching_runs`` reads the index of one filter, which has ``build_streams``, in the order of creation, and checks
each run against the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from datetime import timedelta
from decimal import Decimal
from functools import cache, cached_property
from typing import Any, NamedTuple

import django_filters
from django import forms
from django.contrib.auth import get_user_model
from django.db.models import Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.lookups import IsNull
from django.http import QueryDict
from django.utils.http import urlencode

from flows.engine.history import Severity
from flows.models import Flow, FlowVersion
from runs.filter_fields import (
    CostField,
    Moment,
    MomentField,
    NameField,
    NumberField,
    SearchField,
    StatusesField,
    TextField,
    TextsField,
    shorten,
)
from runs.models import EndReason, FacetKind, Issue, Run, RunFacet, RunStatus
from runs.paging import Stream

PAGING = ("before", "after")
"""Names in addresses that may be beside filters: the number of the run that a page ends above or begins below."""
_MAX_NAMED = 3


class FilterProblem(NamedTuple):
    """What is not valid about one filter, by its name in addresses."""

    parameter: str
    message: str


class RunFilter(django_filters.Filter):  # type: ignore[misc]  # the package has no types
    """What a column of runs is like: ``field`` reads the value, ``lookup`` compares it."""

    def __init__(self, field: type[forms.Field], column: str, lookup: str = "exact", **options: Any) -> None:
        super().__init__(column, lookup, **options)
        self.field_class = field

    def __deepcopy__(self, memo: dict[int, Any]) -> RunFilter:
        """A plain copy: a set of filters copies them with all fields and choices, a tenth of the time of a list."""
        return copy(self)

    def build_condition(self, value: Any) -> Q:
        """What is true of a run that matches."""
        return Q(**{f"{self.field_name}__{self.lookup_expr}": value})

    def filter(self, qs: QuerySet[Any], value: Any) -> QuerySet[Any]:
        """The rows of ``qs`` that match."""
        return qs.filter(self.build_condition(value))


class IndexedFilter(RunFilter):
    """A column that an index of runs begins with: one of several values, or the key of a row."""

    def build_streams(self, value: Any) -> list[Stream]:
        """The runs that match, as that index has them: for each value, since together they have no order."""
        values = value if isinstance(value, list) else [value.pk]
        return [Stream.of(Run.objects.all(), str(self.field_name), one) for one in values]


class FacetFilter(RunFilter):
    """A value of a kind of facet, or several, all of which a run has."""

    def __init__(self, field: type[forms.Field], kind: FacetKind, **options: Any) -> None:
        super().__init__(field, kind.value, **options)

    def build_condition(self, value: Any) -> Q:
        """That the run has the values, each looked up by the whole key of a facet."""
        condition = Q()
        for one in value if isinstance(value, list) else [value]:
            facets = RunFacet.objects.filter(kind=self.field_name, value=one, created_at=OuterRef("created_at"))
            condition &= has_row(facets.filter(run=OuterRef("pk")))
        return condition

    def build_streams(self, value: Any) -> list[Stream]:
        """The runs that have the first value, as the index of facets has them."""
        first = value[0] if isinstance(value, list) else value
        return [Stream.of(RunFacet.objects.filter(value=first), "kind", self.field_name, key="run_id")]


class IssueFilter(FacetFilter):
    """What an issue of the run is like. Several of them hold for one and the same issue."""

    def build_issue_condition(self, value: str) -> Q:
        """What is true of the issue."""
        if self.field_name == FacetKind.SEVERITY:
            return Q(severity__in=[one.value for one in Severity if one >= Severity(value)])
        return Q(**{str(self.field_name): value})


class MomentFilter(RunFilter):
    """A bound of the time of creation, which is included."""

    def build_condition(self, value: Moment) -> Q:
        """What is true of the time of creation."""
        return super().build_condition(value.after if self.lookup_expr == "gt" else value.until)


class FilterForm(forms.Form):
    """Also checks what filters say together."""

    def clean(self) -> dict[str, Any]:
        """The values by name, without those that contradict each other."""
        values: dict[str, Any] = self.cleaned_data
        flow, number = values.get("flow"), values.get("version")
        if number is not None and flow is None:
            values.pop("version")
            # A flow that there is not is the problem already.
            if "flow" not in self.errors:
                self.add_error("version", "Versions are counted within a flow: choose the flow too.")
        elif number is not None and flow is not None:
            values["version"] = FlowVersion.objects.only("number").filter(flow=flow, number=number).first()
            if values["version"] is None:
                self.add_error("version", f"The flow “{shorten(flow.name)}” has no version {number}.")
        first, last = values.get("from"), values.get("to")
        if first and last and first.after + timedelta(microseconds=1) >= last.until:
            values.pop("from")
            self.add_error("to", f"No time is after {first.text} and before {last.text}: the first one comes first.")
        return values


def one_of(what: str, choices: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Options of a field that takes one of ``choices``; ``what`` names it in the sentence about another value."""
    names = ", ".join(value for value, _ in choices)
    message = f"“%(value).40s” is not {what}; it can be {names}."
    return {"choices": choices, "error_messages": {"invalid_choice": message}}


def _named(what: str, rows: QuerySet[Any], name: str) -> dict[str, Any]:
    message = f"No {what} is called “%(value).40s”."
    return {"queryset": rows.only(name), "to_field_name": name, "error_messages": {"invalid_choice": message}}


def _number(sentence: str, least: int, most: int, **options: Any) -> dict[str, Any]:
    messages = dict.fromkeys(("invalid", "max_decimal_places", "max_digits"), sentence)
    return {"min_value": least, "max_value": most, "error_messages": messages, **options}


def has_row(rows: QuerySet[Any]) -> Q:
    """That there is such a row. With EXISTS, PostgreSQL would rather read all such rows than look each one up."""
    return Q(IsNull(Subquery(rows.order_by().values("pk")[:1]), False))


class RunFilters(django_filters.FilterSet):  # type: ignore[misc]  # see above
    """The filters of a query string. What is not valid is left out, and listed in ``problems``.

    Costs a query for each of flow, version and user that is named. Days are those of the active time zone.
    """

    q = RunFilter(
        SearchField,
        "",
        label="Search",
        max_length=500,
        help_text='Words that inputs, outputs and issues of ended runs hold: `tea leaves` both, `"tea leaves"` one '
        "after the other, `order*` words that begin so, `-draft` without that word. Or the number of a run.",
    )
    flow = IndexedFilter(
        NameField,
        "flow_id",
        label="Flow",
        help_text="Only runs of the flow of this name.",
        **_named("flow", Flow.objects.all(), "name"),
    )
    version = IndexedFilter(
        NumberField,
        "version_id",
        label="Version",
        help_text="Only runs of this version; only together with `flow`.",
        **_number("A version is a whole number such as 3.", 1, 10**9 - 1),
    )
    status = IndexedFilter(
        StatusesField,
        "status",
        "in",
        label="Status",
        help_text="Only runs that have one of these statuses.",
        **one_of("a status", RunStatus.choices),
    )
    reason = RunFilter(
        forms.ChoiceField,
        "end_reason",
        label="End reason",
        help_text="Only runs that ended for this reason.",
        **one_of("a reason", EndReason.choices),
    )
    severity = IssueFilter(
        forms.ChoiceField,
        FacetKind.SEVERITY,
        label="Severity",
        help_text="Only runs with an issue of at least this severity. With `audit` or `code`, all of them hold for one "
        "and the same issue.",
        **one_of("a severity", [(severity.value, severity.value.capitalize()) for severity in Severity]),
    )
    audit = IssueFilter(
        TextField, FacetKind.AUDIT, label="Audit", help_text="Only runs with an issue of the audit of this name."
    )
    code = IssueFilter(TextField, FacetKind.CODE, label="Issue code", help_text="Only runs with an issue of this code.")
    model = FacetFilter(TextField, FacetKind.MODEL, label="Model", help_text="Only runs in which this model answered.")
    label = FacetFilter(
        TextsField,
        FacetKind.LABEL,
        label="Label",
        help_text="Only runs with this label; repeat the parameter for runs that have all of several labels.",
    )
    since = MomentFilter(
        MomentField,
        "created_at",
        "gt",
        label="Created from",
        help_text="Only runs that were created on this day, in UTC, or at this time, or later.",
    )
    until = MomentFilter(
        MomentField,
        "created_at",
        "lt",
        label="Created to",
        help_text="Only runs that were created on this day, in UTC, or at this time, or earlier.",
    )
    cost = RunFilter(
        CostField,
        "cost",
        "gt",
        label="Cost",
        help_text="Only runs that cost more USD than this.",
        **_number("A cost is a sum in USD such as 0.05.", 0, 1_000_000_000, decimal_places=8),
    )
    tokens = RunFilter(
        NumberField,
        "total_tokens",
        "gt",
        label="Tokens",
        help_text="Only runs that used more tokens than this.",
        **_number("Tokens are a whole number such as 20000.", 0, 10**15 - 1),
    )
    accepted = RunFilter(
        NumberField,
        "accepted_count",
        "gte",
        label="Accepted outputs",
        help_text="Only runs in which at least this many steps accepted an output that did not pass.",
        **_number("Accepted outputs are a whole number such as 1.", 1, 1_000),
    )
    by = IndexedFilter(
        NameField,
        "started_by_id",
        label="Started by",
        help_text="Only runs that the user of this name started.",
        **_named("user", get_user_model().objects.all(), "username"),
    )

    class Meta:
        form = FilterForm

    @classmethod
    def get_filters(cls) -> dict[str, Any]:
        """The filters by their names in addresses, one of which is a keyword of Python."""
        names = {"since": "from", "until": "to"}
        return {names.get(name, name): one for name, one in super().get_filters().items()}

    def __init__(self, data: Mapping[str, Any] | str = "") -> None:
        super().__init__(QueryDict(data) if isinstance(data, str) else data, Run.objects.none())

    def get_form_class(self) -> type[forms.Form]:
        """The form, made once: to make its class takes as long as to read a query."""
        return _make_form_class(type(self))  # type: ignore[arg-type]  # a class has a hash

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values that are set, by name."""
        self.form.is_valid()
        return {name: value for name, value in self.form.cleaned_data.items() if value not in (None, "", [])}

    @property
    def problems(self) -> list[FilterProblem]:
        """One sentence for each filter that is not valid."""
        return [FilterProblem(name, str(messages[0])) for name, messages in self.form.errors.items()]

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses that are asked for; none means all."""
        return tuple(self.values.get("status", ()))

    @property
    def texts(self) -> dict[str, Any]:
        """The values that are set, as an address has them: texts, and a list of labels."""
        return {name: _format(name, value) for name, value in self.values.items()}

    def to_query(self, *without: str, **changes: str) -> str:
        """The filters as a query string, without some of them and with ``changes``. A version goes with its flow."""
        gone = {*without, *(["version"] if "flow" in without else [])}
        texts = {**self.texts, **changes}
        return urlencode({name: text for name, text in texts.items() if text and name not in gone}, doseq=True)

    def build_condition(self, *without: str) -> Q:
        """What is true of runs that match all filters but those that are left out; empty if there are no others."""
        condition = Q()
        for name, value in self.values.items():
            if name not in without:
                condition &= self.filters[name].build_condition(value)
        issues = [name for name in self.values if isinstance(self.filters[name], IssueFilter)]
        if len(issues) > 1:
            conditions = [self.filters[name].build_issue_condition(self.values[name]) for name in issues]
            condition &= has_row(Issue.objects.filter(*conditions, attempt__step__run=OuterRef("pk")))
        return condition

    def choose_index(self) -> str:
        """The filter whose index runs are read from, the one that fewest match as a rule; empty if there is none."""
        order = ["label", "code", "audit", "version", "flow", "by", "status", "severity", "model"]
        if self.statuses and {RunStatus.QUEUED, RunStatus.RUNNING}.issuperset(self.statuses):
            order.insert(0, "status")
        elif RunStatus.SUCCEEDED in self.statuses:
            # Most runs have.
            order.remove("status")
            order.append("status")
        return next((name for name in order if name in self.values), "")

    def build_streams(self) -> list[Stream]:
        """The runs that match the filter of that index, or all runs."""
        index = self.choose_index()
        return self.filters[index].build_streams(self.values[index]) if index else [Stream(Run.objects.all())]

    def find_unknown_names(self, others: Collection[str] = ()) -> Iterator[str]:
        """A sentence if there are names that are not filters. ``others`` are allowed beside the filters."""
        names = [f"“{shorten(name)}”" for name in self.data if name not in self.filters and name not in others]
        if names:
            yield f"Unknown filter {' or '.join(names[:_MAX_NAMED])}; the filters are {', '.join(self.filters)}."


@cache
def _make_form_class(filters: type[RunFilters]) -> type[forms.Form]:
    fields: dict[str, Any] = {name: one.field for name, one in filters.base_filters.items()}
    return type(f"{filters.__name__}Form", (FilterForm,), fields)


PARAMETERS = tuple(RunFilters.base_filters)
"""The names of the filters in addresses."""


def _format(name: str, value: Any) -> Any:
    match value:
        case list():
            return value if name == "label" else ",".join(value)
        case Moment():
            return value.text
        case Model():
            return str(value.number if isinstance(value, FlowVersion) else getattr(value, "name", None) or value)
        case Decimal():
            return f"{value.normalize():f}"
    return str(value)
