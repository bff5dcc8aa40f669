"""Filters of runs: those of ``runs.filters`` as parameters in the reference, and as an object in bodies."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from django.http import QueryDict
from pydantic import BeforeValidator, Field, WithJsonSchema

from flows.engine.errors import Problem
from flows.engine.history import Severity
from runs.api.base import describe_query, parse_query
from runs.api.problems import InvalidBody, InvalidQuery
from runs.documents.base import WHOLE, Body, Query
from runs.filters import PARAMETERS, RunFilters
from runs.models import EndReason, RunStatus

_Query = TypeVar("_Query", bound=Query)

_Text = Annotated[str, Field(min_length=1, max_length=200)]
_Moment = Annotated[
    str, WithJsonSchema({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]})
]
_Status = Annotated[str, WithJsonSchema({"type": "string", "enum": RunStatus.values})]
_Reason = Annotated[str, WithJsonSchema({"type": "string", "enum": EndReason.values})]
_Severity = Annotated[str, WithJsonSchema({"type": "string", "enum": [severity.value for severity in Severity]})]
_AS_LIST = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
_LABEL = {"type": "string", "minLength": 1, "maxLength": 200}
_Labels = Annotated[
    list[str],
    Field(min_length=1),
    _AS_LIST,
    WithJsonSchema({"anyOf": [_LABEL, {"type": "array", "items": _LABEL, "minItems": 1}]}),
]


class FilterFields(Body):
    """Filters of runs. Only the fields that are sent count: none of the others has a default of its own."""

    q: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        default_factory=str,
        description='Words that inputs, outputs and issues of ended runs hold: `tea leaves` both, `"tea leaves"` one '
        "after the other, `order*` words that begin so, `-draft` without that word. Or the number of a run.",
    )
    flow: _Text = Field(default_factory=str, description="Only runs of the flow of this name.")
    version: Annotated[int, Field(ge=1, le=999_999_999), WHOLE] = Field(
        default_factory=int, description="Only runs of this version; only together with `flow`."
    )
    status: Annotated[list[_Status], Field(min_length=1), _AS_LIST] = Field(
        default_factory=list, description="Only runs that have one of these statuses."
    )
    reason: _Reason = Field(default_factory=str, description="Only runs that ended for this reason.")
    severity: _Severity = Field(
        default_factory=str,
        description="Only runs with an issue of at least this severity. With `audit` or `code`, all of them hold for "
        "one and the same issue.",
    )
    audit: _Text = Field(default_factory=str, description="Only runs with an issue of the audit of this name.")
    code: _Text = Field(default_factory=str, description="Only runs with an issue of this code.")
    model: _Text = Field(default_factory=str, description="Only runs in which this model answered.")
    label: _Labels = Field(
        default_factory=list,
        description="Only runs with this label; repeat the parameter for runs that have all of several labels.",
    )
    since: _Moment = Field(
        default_factory=str,
        alias="from",
        description="Only runs that were created on this day, in UTC, or at this time, or later.",
    )
    until: _Moment = Field(
        default_factory=str,
        alias="to",
        description="Only runs that were created on this day, in UTC, or at this time, or earlier.",
    )
    cost: Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,8})?$")] = Field(
        default_factory=str, description="Only runs that cost more USD than this."
    )
    tokens: Annotated[int, Field(ge=0, le=999_999_999_999_999), WHOLE] = Field(
        default_factory=int, description="Only runs that used more tokens than this."
    )
    by: _Text = Field(default_factory=str, description="Only runs that the user of this name started.")


FILTERS = list(describe_query(FilterFields))
"""The filters as parameters of the OpenAPI document."""

_OBJECT = {
    "type": "object",
    "properties": {one.name: {**one.type, "description": one.description} for one in FILTERS},  # type: ignore[dict-item]
    "additionalProperties": False,
}
Filters = Annotated[FilterFields, WithJsonSchema(_OBJECT)]
ShownFilters = Annotated[dict[str, Any], WithJsonSchema(_OBJECT)]
"""Filters that were stored: what they name may be gone."""


def parse_filters(given: QueryDict, others: type[_Query]) -> tuple[RunFilters, _Query]:
    """The filters that an address asks for, and its other parameters. Raises ``InvalidQuery`` with all that is wrong.

    Pages show a list all the same where a filter is not valid, and say so; here it is an error. Costs a query for each
    of flow, version and user that is named.
    """
    filters, problems = _parse(given)
    try:
        query = parse_query(others, given)
    except InvalidQuery as error:
        raise InvalidQuery([*problems, *error.errors]) from None
    if problems:
        raise InvalidQuery(problems)
    return filters, query


def parse_filter_fields(fields: FilterFields) -> RunFilters:
    """The filters in ``/filters`` of a body. Raises ``InvalidBody`` with what is wrong, each by its pointer."""
    query = QueryDict(mutable=True)
    for name, value in fields.model_dump(exclude_unset=True, by_alias=True).items():
        query.setlist(name, [str(one) for one in (value if isinstance(value, list) else [value])])
    filters, problems = _parse(query)
    if problems:
        raise InvalidBody([Problem(f"/filters/{problem.path}", problem.message) for problem in problems])
    return filters


def _parse(query: QueryDict) -> tuple[RunFilters, list[Problem]]:
    empty = [name for name in PARAMETERS if name in query and not "".join(query.getlist(name)).strip()]
    filters = RunFilters(query)
    problems = [Problem(name, f"“{name}” is empty; give it a value or leave it out.") for name in empty]
    return filters, problems + [Problem(one.parameter, one.message) for one in filters.problems]


def show_filters(query: str) -> dict[str, Any]:
    """Filters that are stored as the query string of a list, as an object. Nothing is looked up."""
    shown: dict[str, Any] = {}
    for name, texts in QueryDict(query).lists():
        text = str(texts[-1])
        shown[name] = text
        if name == "status":
            shown[name] = text.split(",")
        elif name in ("version", "tokens") and text.isdigit():
            shown[name] = int(text)
        elif name == "label" and len(texts) > 1:
            shown[name] = texts
    return shown
