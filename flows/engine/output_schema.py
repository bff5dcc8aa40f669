"""Values against schemas: outputs and inputs are validated, and numbers become the type that the schema names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import jsonschema_rs

from flows.engine.errors import InputError, Problem, SpecError
from flows.engine.issues import Issue, Severity
from flows.engine.json_value import dump_json, parse_object
from flows.engine.number_coercion import Coercer, build_coercer
from flows.engine.schema_check import check_input_schema, check_schema, is_small_expanded
from flows.engine.schema_mending import make_strict
from flows.engine.schema_violations import find_violations, fits_schema
from flows.engine.strict_schema import check_strict
from flows.engine.typed_output import build_type, schema_of_type

__all__ = [
    "MORE_SCHEMA_MISMATCHES",
    "SCHEMA_MISMATCH",
    "build_type",
    "check_input_schema",
    "check_strict",
    "coerce_numbers",
    "make_strict",
    "schema_of_type",
    "validate_input",
    "validate_output",
]

SCHEMA_MISMATCH = "schema_mismatch"
"""The code of issues about an output that its schema doesn't allow."""

MORE_SCHEMA_MISMATCHES = "more_schema_mismatches"
"""The code of the issue that says that there are more than those that are listed one by one."""

MOST_VIOLATIONS = 50
"""Violations that are listed one by one; one more issue says that there are more."""

_CACHED = 512


@dataclass(frozen=True, slots=True)
class _CompiledSchema:
    schema: dict[str, Any]
    is_valid: Callable[[Any], bool]
    coerce: Coercer | None


_by_identity: dict[int, tuple[dict[str, Any], _CompiledSchema]] = {}


def _compile(schema: dict[str, Any]) -> _CompiledSchema:
    # The schema of a step is the same object in every attempt: its identity is the cheapest key. The entry keeps it
    # alive, so that no other object can take its place. Equal schemas of other runs meet in the second cache.
    known = _by_identity.get(id(schema))
    if known is not None:
        return known[1]
    compiled = _compile_text(dump_json(schema))
    while len(_by_identity) >= _CACHED:
        _by_identity.pop(next(iter(_by_identity)), None)
    _by_identity[id(schema)] = (schema, compiled)
    return compiled


@lru_cache(maxsize=_CACHED)
def _compile_text(text: str) -> _CompiledSchema:
    schema = parse_object(text)
    if problems := check_schema(schema):
        raise SpecError(problems)
    is_valid: Callable[[Any], bool] = partial(fits_schema, schema)
    if is_small_expanded(schema):
        is_valid = jsonschema_rs.Draft202012Validator(schema, offline=True, validate_formats=True).is_valid
    try:
        return _CompiledSchema(schema, is_valid, build_coercer(schema))
    except RecursionError:
        raise SpecError([Problem("", "The references of the schema lead to each other too many times.")]) from None


def validate_output(value: Any, schema: dict[str, Any]) -> tuple[Issue, ...]:
    """One critical issue for each place where a value breaks its schema; nothing for a value that fits.

    Beyond ``MOST_VIOLATIONS`` of them one more issue says that there are more.

    ``schema`` is compiled once and must not be changed afterwards. Raises ``SpecError`` if it is no schema.
    """
    problems = _list_problems(value, _compile(schema))
    codes = [SCHEMA_MISMATCH] * MOST_VIOLATIONS + [MORE_SCHEMA_MISMATCHES]
    return tuple(
        Issue(code=code, severity=Severity.CRITICAL, description=problem.message, path=problem.path)
        for code, problem in zip(codes, problems, strict=False)
    )


def validate_input(value: Any, schema: dict[str, Any]) -> None:
    """Raise ``InputError`` that lists where a run's input breaks the flow's input schema."""
    problems = _list_problems(value, _compile(schema))
    if problems:
        raise InputError(problems)


def coerce_numbers(value: Any, schema: dict[str, Any]) -> Any:
    """``value`` with the numbers that ``schema`` names: a ``number`` becomes a float, an ``integer`` an int where it is
    whole. Expressions don't mix the two. The same object comes back when nothing has to change.
    """
    coerce = _compile(schema).coerce
    return value if coerce is None else coerce(value)


def _list_problems(value: Any, compiled: _CompiledSchema) -> list[Problem]:
    try:
        if compiled.is_valid(value):
            return []
        problems = list(islice(find_violations(compiled.schema, value), MOST_VIOLATIONS + 1))
    except ValueError:
        # Not JSON at all: half of a surrogate pair, a key that is no text, an object of Python.
        return [Problem("", "The value holds something that JSON doesn't know.")]
    except RecursionError:
        return [Problem("", "The value or its schema is nested too deeply to be checked.")]
    if len(problems) > MOST_VIOLATIONS:
        return [*problems[:MOST_VIOLATIONS], Problem("", "More places break the schema.")]
    return problems or [Problem("", "The value doesn't fit the schema.")]
