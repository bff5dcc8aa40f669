"""Registered output types: the strict schema of a pydantic model, and building one from an output."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails

from flows.engine.errors import Problem, SpecError
from flows.engine.history import Issue, Severity
from flows.engine.json_values import Path, dump_json, follow_ref, format_pointer, shorten
from flows.engine.schema_violations import format_place, format_value, resolve_refs
from flows.engine.schemas import walk_schema
from flows.engine.strict_schema import check_strict, make_strict

TYPE_MISMATCH = "type_mismatch"
"""The code of issues about an output that the step's registered type can't be built from."""

MORE_TYPE_MISMATCHES = "more_type_mismatches"
"""The code of the issue that says how many there are beyond those that are listed one by one."""

_MAX_ISSUES = 50


def schema_of_type(model: type[BaseModel]) -> dict[str, Any]:
    """The strict schema that a language model has to fill to produce ``model``.

    A field with a default is still required, and null only where the field allows it. Raises ``SpecError``
    for a type that strict mode can't express, such as one with a ``dict[str, int]``, and for a union of models that
    contain each other without a discriminator.
    """
    try:
        schema = model.model_json_schema(mode="validation")
    except PydanticUserError as error:
        raise SpecError([Problem("", f"The type has no JSON Schema: {error.message}")]) from error
    strict: dict[str, Any] = make_strict(schema, optional_becomes_null=False)
    problems = [*_find_recursive_unions(schema), *check_strict(strict)]
    if problems:
        raise SpecError(problems)
    return strict


def build_type(model: type[BaseModel], value: Any) -> tuple[BaseModel | None, tuple[Issue, ...]]:
    """An instance of ``model`` made from a JSON value, or the critical issues that say why there is none."""
    if problem := _find_recursive_union(model):
        return None, (_build_issue(f"The type “{model.__name__}”, {problem.path}: {problem.message}"),)
    try:
        # By way of JSON, so that a model with strict types still takes dates, enums and tuples in their JSON form.
        return model.model_validate_json(dump_json(value)), ()
    except ValidationError as error:
        details = error.errors(include_url=False)
        issues = [_build_issue(*_describe(detail, value)) for detail in details[:_MAX_ISSUES]]
        if len(details) > _MAX_ISSUES:
            sentence = f"{len(details) - _MAX_ISSUES:,} more places don't fit the type."
            issues.append(_build_issue(sentence, code=MORE_TYPE_MISMATCHES))
        return None, tuple(issues)
    except Exception as error:  # noqa: BLE001  # a validator of a plug-in may raise anything; it is the attempt's issue
        return None, (_build_issue(f"The type “{model.__name__}” can't be built: {type(error).__name__}: {error}"),)


@lru_cache(maxsize=512)
def _find_recursive_union(model: type[BaseModel]) -> Problem | None:
    try:
        return next(_find_recursive_unions(model.model_json_schema(mode="validation")), None)
    except PydanticUserError:  # a type without a JSON Schema can still be built
        return None


def _find_recursive_unions(schema: dict[str, Any]) -> Iterator[Problem]:
    """A problem for each union of models that contain each other and have no discriminator.

    pydantic tries each branch of such a union, again at each level of nesting: time and memory grow exponentially.
    """
    for name, body in schema.get("$defs", {}).items():
        for path, node in walk_schema(body, ("$defs", name)):
            branches = [branch for branch in node.get("anyOf", ()) if f"#/$defs/{name}" in _list_refs(branch, schema)]
            kinds = [resolve_refs(branch, schema).get("type") for branch in branches]
            # A list and an object exclude each other at once. A branch without a type may be either.
            if len(kinds) > 1 and (None in kinds or len(set(kinds)) < len(kinds)):
                message = (
                    "This union chooses between models that contain each other. Give it a discriminator, such as "
                    'Field(discriminator="kind").'
                )
                yield Problem(format_pointer(path), message)


def _list_refs(schema: Any, root: dict[str, Any]) -> set[str]:
    """Everything that a schema refers to, also by way of others."""
    reached: set[str] = set()
    left = [schema]
    while left:
        refs = {node["$ref"] for _, node in walk_schema(left.pop()) if "$ref" in node}
        left += [follow_ref(root, ref) for ref in refs - reached]
        reached |= refs
    return reached


def _build_issue(description: str, place: Path = (), *, code: str = TYPE_MISMATCH) -> Issue:
    return Issue(code=code, severity=Severity.CRITICAL, description=description, path=format_pointer(place))


def _describe(detail: ErrorDetails, value: Any) -> tuple[str, Path]:
    """What is wrong, and where in ``value``: ``loc`` without what stands for branches of unions and validators."""
    place: Path = ()
    for part in detail["loc"]:
        in_list = isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value = value[part]
            place = (*place, part)
    if detail["type"] == "missing":
        return f"{format_place([*place, detail['loc'][-1]])} is missing.", place
    got = f"; got {format_value(value)}" if place else ""
    return f"{format_place(place)}: {shorten(detail['msg'], 300).rstrip('.')}{got}.", place
