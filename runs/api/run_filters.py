"""Filters of runs: those of ``runs.filters`` as parameters in the reference, and as an object in bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from django import forms
from django.http import QueryDict
from pydantic import BeforeValidator, Field, WithJsonSchema, create_model

from flows.engine.errors import Problem
from runs.api.base import parse_query
from runs.api.problems import InvalidBody, InvalidQuery
from runs.documents.base import WHOLE, Body, Query
from runs.facets import MAX_VALUE_LENGTH
from runs.filter_fields import CostField, MomentField, NumberField, TextsField
from runs.filters import PARAMETERS, RunFilters

_Query = TypeVar("_Query", bound=Query)

_AS_LIST = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
_AMOUNT = Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,8})?$")]
_MOMENT = {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}


def _annotate(field: Any) -> Any:
    """The type of what a form field of ``RunFilters`` takes, as JSON has it."""
    match field:
        case NumberField():
            least, most = field.min_value, field.max_value
            return Annotated[int, Field(ge=least, le=most), WHOLE]  # type: ignore[arg-type]  # they are numbers
        case CostField():
            return _AMOUNT
        case MomentField():
            return Annotated[str, WithJsonSchema(_MOMENT)]
        case TextsField():
            text: Any = {"type": "string", "minLength": 1, "maxLength": MAX_VALUE_LENGTH}
            either = WithJsonSchema({"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]})
            return Annotated[list[str], Field(min_length=1), _AS_LIST, either]
        case forms.ModelChoiceField():
            return Annotated[str, Field(min_length=1, max_length=MAX_VALUE_LENGTH)]
        case forms.ChoiceField():
            values = [value for value, _ in field.choices]  # type: ignore[misc, union-attr]  # pairs of value and word
            one = Annotated[str, WithJsonSchema({"type": "string", "enum": values})]
            is_list = isinstance(field, forms.MultipleChoiceField)
            return Annotated[list[one], Field(min_length=1), _AS_LIST] if is_list else one
    return Annotated[str, Field(min_length=1, max_length=field.max_length)]


def _declare(name: str, field: forms.Field) -> Any:
    # Only the fields that are sent count: none of the others has a default of its own.
    factory = list if isinstance(field, (TextsField, forms.MultipleChoiceField)) else str
    return _annotate(field), Field(default_factory=factory, description=str(field.help_text))


if TYPE_CHECKING:

    class FilterFields(Body):
        """Filters of runs in a body."""
else:
    FilterFields = create_model(
        "FilterFields",
        __base__=Body,
        __doc__="Filters of runs. Only the fields that are sent count: none of the others has a default of its own.",
        **{name: _declare(name, one.field) for name, one in RunFilters.base_filters.items()},
    )


_FIELDS = FilterFields.model_json_schema()["properties"]
for _field in _FIELDS.values():
    del _field["title"]
_OBJECT = {"type": "object", "properties": _FIELDS, "additionalProperties": False}
Filters = Annotated[FilterFields, WithJsonSchema(_OBJECT)]


def parse_filters(given: QueryDict, others: type[_Query]) -> tuple[RunFilters, _Query]:
    """The filters that an address asks for, and its other parameters. Raises ``InvalidQuery`` with all that is wrong.

    Pages show a list even where a filter is not valid, and say so; here it is an error. Costs a query for each
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
    for name, value in fields.model_dump(exclude_unset=True).items():
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
        elif name in ("version", "tokens", "accepted") and text.isdigit():
            shown[name] = int(text)
        elif name == "label" and len(texts) > 1:
            shown[name] = texts
    return shown


ShownFilters = Annotated[dict[str, Any], BeforeValidator(show_filters), WithJsonSchema(_OBJECT)]
"""Filters that were stored: what they name may be gone."""
