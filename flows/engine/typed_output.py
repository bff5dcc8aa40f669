"""Registered output types: the strict schema of a pydantic model, and building one from an output."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails

from flows.engine.errors import Problem, SpecError
from flows.engine.issues import Issue, Severity
from flows.engine.json_value import dump_json, format_pointer
from flows.engine.schema_mending import mend
from flows.engine.schema_violations import name_place, show_value
from flows.engine.strict_schema import check_strict

TYPE_MISMATCH = "type_mismatch"
"""The code of issues about an output that the step's registered type can't be built from."""

MORE_TYPE_MISMATCHES = "more_type_mismatches"
"""The code of the issue that says how many there are beyond those that are told one by one."""

_MOST_ISSUES = 50
_MAX_TRIES = 4_000_000
"""pydantic tries each branch of a union that has no discriminator, again at each level of nesting: about a second."""


def schema_of_type(model: type[BaseModel]) -> dict[str, Any]:
    """The strict schema that a model is told to fill when it must produce ``model``.

    A field with a default is required all the same, and null only where the field allows it. Raises ``SpecError``
    for a type that strict mode can't express, such as one with a ``dict[str, int]``.
    """
    try:
        schema = model.model_json_schema(mode="validation")
    except PydanticUserError as error:
        raise SpecError([Problem("", f"The type has no JSON Schema: {error.message}")]) from error
    mended: dict[str, Any] = mend(schema, optional_becomes_null=False)
    problems = check_strict(mended)
    if problems:
        raise SpecError(problems)
    return mended


def build_type(model: type[BaseModel], value: Any) -> tuple[BaseModel | None, tuple[Issue, ...]]:
    """An instance of ``model`` made from a JSON value, or the critical issues that say why there is none."""
    if _count_branches(model) ** _measure_depth(value) > _MAX_TRIES:
        sentence = (
            f"The output is nested too deeply for the unions of the type “{model.__name__}”. Nest it less; a "
            "discriminator in the type, Field(discriminator=…), lifts this limit."
        )
        return None, (_make_issue(sentence, []),)
    try:
        # By way of JSON, so that a model with strict types still takes dates, enums and tuples in their JSON form.
        return model.model_validate_json(dump_json(value)), ()
    except ValidationError as error:
        details = error.errors(include_url=False)
        issues = [_make_issue(_describe(detail, value), _place(detail, value)) for detail in details[:_MOST_ISSUES]]
        if len(details) > _MOST_ISSUES:
            sentence = f"{len(details) - _MOST_ISSUES:,} more places don't fit the type."
            issues.append(_make_issue(sentence, [], code=MORE_TYPE_MISMATCHES))
        return None, tuple(issues)
    except Exception as error:  # noqa: BLE001  # a validator of a plug-in may raise anything; it is the attempt's issue
        sentence = f"The type “{model.__name__}” can't be built: {type(error).__name__}: {error}"
        return None, (_make_issue(sentence, []),)


@lru_cache(maxsize=512)
def _count_branches(model: type[BaseModel]) -> int:
    """The most models among which a union of the type has no discriminator to choose by; 1 if there are none."""
    counts = [1]
    left: list[Any] = [model.model_json_schema(mode="validation")]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            counts.append(sum('"$ref"' in dump_json(branch) for branch in node.get("anyOf", ())))
            left += node.values()
        elif isinstance(node, list):
            left += node
    return max(counts)


def _measure_depth(value: Any) -> int:
    """How many objects stand inside each other in a JSON value."""
    depth, level = 0, [value]
    while level:
        depth += any(isinstance(item, dict) for item in level)
        parts = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [entry for part in parts for entry in part]
    return depth


def _make_issue(description: str, place: list[str | int], *, code: str = TYPE_MISMATCH) -> Issue:
    return Issue(code=code, severity=Severity.CRITICAL, description=description, path=format_pointer(place))


def _place(detail: ErrorDetails, value: Any) -> list[str | int]:
    """Where in ``value`` the error is: ``loc`` without what stands for branches of unions and validators."""
    place: list[str | int] = []
    for part in detail["loc"]:
        in_list = isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value = value[part]
            place.append(part)
    return place


def _describe(detail: ErrorDetails, value: Any) -> str:
    place = _place(detail, value)
    if detail["type"] == "missing":
        return f"{name_place([*place, detail['loc'][-1]])} is missing."
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message[:300].rstrip(".")
    if not place:
        return f"The output doesn't fit: {message}."
    for part in place:
        value = value[part]
    return f"{name_place(place)}: {message}; got {show_value(value)}."
