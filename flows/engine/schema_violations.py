"""Violations of a schema as sentences that both people and the model that tries again understand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jsonschema_rs

from flows.engine.errors import Problem
from flows.engine.json_value import describe_type, dump_json, format_pointer

_SHOWN = 60
_MOST_NAMES = 10

_TYPE_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
}

_LIMITS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} elements",
    "maxItems": "must have at most {} elements",
    "minProperties": "must have at least {} properties",
    "maxProperties": "must have at most {} properties",
    "pattern": "must match the pattern {}",
    "format": "must be a valid {}",
}


def find_violations(errors: Iterable[jsonschema_rs.ValidationError], value: Any) -> Iterator[Problem]:
    """What is wrong with ``value``, place by place.

    A missing property is told at the object that should have it, an unexpected one at itself.
    """
    for error in errors:
        yield from _describe(error, value)


def name_place(path: Sequence[str | int]) -> str:
    """How a place is called in a sentence: ``colors[2].hex`` in backquotes, or “The value” for the whole."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"`{text}`" if text else "The value"


def show_value(value: Any) -> str:
    """A value for use in a sentence: “text”, 12, or what it is where it is too large to be shown."""
    if isinstance(value, str):
        return f"“{value if len(value) <= _SHOWN else value[: _SHOWN - 1] + '…'}”"
    if isinstance(value, dict | list) and len(value) > 5:
        return f"{describe_type(value)} of {len(value):,}"
    text = dump_json(value)
    return text if len(text) <= _SHOWN else describe_type(value)


def _describe(error: jsonschema_rs.ValidationError, value: Any) -> Iterator[Problem]:
    path, kind = error.instance_path, error.kind.name
    # The place in the value itself: the copy that comes with the error is slow to build.
    found = _follow(value, path)
    place, pointer = name_place(path), format_pointer(path)
    match error.kind:
        case jsonschema_rs.ValidationErrorKind.Required(property=name):
            yield Problem(pointer, f"{name_place([*path, name])} is missing.")
        case jsonschema_rs.ValidationErrorKind.AdditionalProperties(unexpected=names):
            for name in names:
                yield Problem(
                    format_pointer([*path, name]), f"{name_place([*path, name])} is not expected; leave it out."
                )
        case jsonschema_rs.ValidationErrorKind.AnyOf(context=branches):
            yield from _describe_choice(branches, path, found, value)
        case jsonschema_rs.ValidationErrorKind.OneOfNotValid(context=branches):
            yield from _describe_choice(branches, path, found, value)
        case jsonschema_rs.ValidationErrorKind.Type(types=types):
            words = " or ".join(_TYPE_WORDS.get(name, name) for name in types)
            yield Problem(pointer, f"{place} must be {words}, got {_show_with_type(found)}.")
        case jsonschema_rs.ValidationErrorKind.Enum(options=options):
            listed = ", ".join(show_value(option) for option in options[:_MOST_NAMES])
            more = " …" if len(options) > _MOST_NAMES else ""
            yield Problem(pointer, f"{place} must be one of {listed}{more}, got {show_value(found)}.")
        case jsonschema_rs.ValidationErrorKind.Constant(expected_value=expected):
            yield Problem(pointer, f"{place} must be {show_value(expected)}, got {show_value(found)}.")
        case jsonschema_rs.ValidationErrorKind.UniqueItems():
            yield Problem(pointer, f"{place} must not hold the same element twice.")
        case jsonschema_rs.ValidationErrorKind.FalseSchema():
            yield Problem(pointer, f"{place} is not expected; leave it out.")
        case _ if kind in _LIMITS:
            limit = error.kind.value
            shown = f"“{limit}”" if kind == "pattern" else str(limit)
            got = f"{len(found):,}" if kind.endswith(("Items", "Length", "Properties")) else show_value(found)
            yield Problem(pointer, f"{place} {_LIMITS[kind].format(shown)}, got {got}.")
        case _:
            message = error.message if len(error.message) <= 200 else error.message[:199] + "…"
            yield Problem(pointer, f"{place} breaks the rule “{kind}” of the schema: {message}.")


def _describe_choice(
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]], path: Sequence[str | int], found: Any, value: Any
) -> Iterator[Problem]:
    """Of several schemas none fits: if only one has the right type, what keeps the value from fitting that one."""
    fitting = [
        branch
        for branch in branches
        if not any(error.kind.name in ("type", "const") and len(error.instance_path) == len(path) for error in branch)
    ]
    # Objects are told apart by a property that holds a constant.
    if len(fitting) > 1:
        told_apart = [branch for branch in fitting if not any(error.kind.name in ("const", "enum") for error in branch)]
        fitting = told_apart or fitting
    if len(fitting) == 1:
        yield from find_violations(fitting[0], value)
        return
    types = {name for branch in branches for error in branch if error.kind.name == "type" for name in error.kind.value}
    words = " or ".join(sorted(_TYPE_WORDS.get(name, name) for name in types))
    must = f"must be {words}" if words and not fitting else f"fits none of the {len(branches)} forms it may have"
    yield Problem(format_pointer(path), f"{name_place(path)} {must}, got {_show_with_type(found)}.")


def _show_with_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return describe_type(value) if value is None else show_value(value)
    shown, kind = show_value(value), describe_type(value)
    return (
        shown if shown.startswith(kind) else f"{kind}: {shown}" if not isinstance(value, str) else f"the text {shown}"
    )


def _follow(value: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value
