"""JSON Schemas: checking them, and holding values against them.

A schema is valid by draft 2020-12, within limits, and refers to nothing outside itself. Numbers of a value become the
type that its schema names, because expressions don't mix the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import is_
from typing import Any

import jsonschema_rs

from flows.engine.errors import InputError, Problem, SpecError
from flows.engine.history import Issue, Severity
from flows.engine.json_values import (
    MAX_DEPTH,
    Path,
    clean_value,
    describe_type,
    dump_json,
    follow_ref,
    format_pointer,
    shorten,
)
from flows.engine.schema_violations import build_validator, find_meant, find_violations, list_types, resolve_refs
from flows.engine.spec import MAX_SCHEMA_BYTES

SCHEMA_MISMATCH = "schema_mismatch"
"""The code of issues about an output that its schema doesn't allow."""

MORE_SCHEMA_MISMATCHES = "more_schema_mismatches"
"""The code of the issue that says that there are more than those that are listed one by one."""

MAX_VIOLATIONS = 50
"""Violations that are listed one by one; one more issue says that there are more."""

MAX_EXPANSION = 10_000_000
"""How many schemas a schema may amount to once its references are written out: a value is held against all of them."""

DRAFT = "https://json-schema.org/draft/2020-12/schema"

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

_META = build_validator({"$ref": DRAFT}, mask="the value")
_SCHEMA_MAPS = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
_SCHEMA_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SCHEMA_KEYWORDS = {
    *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
}
_MAX_PROBLEMS = 50
_MAX_EXACT_INTEGER = 2**53
_CHANGING = frozenset({dict, float, int, list})
"""The types of values that numbers are coerced in."""


# ---------------------------------------------------------------------------------------------------------------
# Values


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema that values are held against."""

    schema: dict[str, Any]
    is_valid: Callable[[Any], bool]
    has_numbers: bool

    def coerce_numbers(self, value: Any) -> Any:
        """``value`` with the numbers that the schema names: a ``number`` becomes a float, an ``integer`` an int where
        it is whole. The same object comes back when nothing has to change.
        """
        return _coerce(value, self.schema, self.schema) if self.has_numbers and type(value) in _CHANGING else value

    def validate_output(self, value: Any) -> tuple[Issue, ...]:
        """One critical issue for each place where a value breaks the schema; nothing for a value that fits.

        Beyond ``MAX_VIOLATIONS`` of them one more issue says that there are more.
        """
        return tuple(
            Issue(
                code=SCHEMA_MISMATCH if index < MAX_VIOLATIONS else MORE_SCHEMA_MISMATCHES,
                severity=Severity.CRITICAL,
                description=problem.message,
                path=problem.path,
            )
            for index, problem in enumerate(self._list_problems(value))
        )

    def validate_input(self, value: Any) -> None:
        """Raise ``InputError`` that lists where a run's input breaks the flow's input schema."""
        if problems := self._list_problems(value):
            raise InputError(problems)

    def _list_problems(self, value: Any) -> list[Problem]:
        try:
            if self.is_valid(value):
                return []
            problems = list(islice(find_violations(self.schema, value), MAX_VIOLATIONS + 1))
        except ValueError:
            # Not JSON at all: half of a surrogate pair, a key that is not a text, an object of Python.
            return [Problem("", "The value contains something that JSON can't represent.")]
        except RecursionError:
            return [Problem("", "The value or its schema is nested too deeply to be checked.")]
        if len(problems) > MAX_VIOLATIONS:
            return [*problems[:MAX_VIOLATIONS], Problem("", "More values violate the schema.")]
        return list(dict.fromkeys(problems))


def compile_schema(schema: dict[str, Any]) -> CompiledSchema:
    """The compiled form of a schema, cached for all equal ones. Raises ``SpecError`` if it is not a schema."""
    return _compile(dump_json(schema))


@lru_cache(maxsize=512)
def _compile(text: str) -> CompiledSchema:
    schema = json.loads(text)
    if problems := check_schema(schema):
        raise SpecError(problems)
    return CompiledSchema(schema, build_validator(schema).is_valid, '"number"' in text or '"integer"' in text)


def parse_input(input: Any, schema: dict[str, Any] | None) -> dict[str, Any]:
    """The input of a run as it can be stored, with the numbers that ``schema`` names: expressions don't mix the two.

    Raises ``InputError`` with all that is wrong with it.
    """
    try:
        cleaned = clean_value(input)
    except ValueError as error:
        raise InputError([Problem("", str(error))]) from error
    if not isinstance(cleaned.value, dict):
        raise InputError([Problem("", f"The input must be a JSON object, got {describe_type(cleaned.value)}.")])
    if cleaned.problems:
        raise InputError(cleaned.problems)
    if schema is None:
        return cleaned.value
    compiled = compile_schema(schema)
    compiled.validate_input(cleaned.value)
    return compiled.coerce_numbers(cleaned.value)  # type: ignore[no-any-return]  # a map stays a map


def _coerce(value: Any, node: Any, root: dict[str, Any]) -> Any:
    """``value``, a container or a number, with the numbers that the schema ``node`` names.

    The same object comes back if none has to change.
    """
    node = resolve_refs(node, root)
    branches = [resolve_refs(branch, root) for branch in node.get("anyOf") or node.get("oneOf") or ()]
    if isinstance(value, dict | list):
        meant = find_meant(branches, value)
        if meant is not None:
            node = branches[meant]
        return _coerce_object(value, node, root) if isinstance(value, dict) else _coerce_list(value, node, root)
    types = [name for part in branches or [node] for name in list_types(part)]
    # Where both are allowed, the value says what it is. An int that a float can't hold exactly stays what it is.
    if type(value) is float:
        return int(value) if "integer" in types and "number" not in types and value.is_integer() else value
    is_float = "number" in types and "integer" not in types and abs(value) <= _MAX_EXACT_INTEGER
    return float(value) if is_float else value


def _coerce_object(value: dict[str, Any], node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    properties, others = node.get("properties", {}), node.get("additionalProperties")
    for name, item in value.items():
        part = properties.get(name, others)
        if type(item) in _CHANGING and part and (after := _coerce(item, part, root)) is not item:
            changed[name] = after
    # Updating a copy keeps the order of the keys.
    return {**value, **changed} if changed else value


def _coerce_list(value: list[Any], node: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    items = node.get("items")
    after = [_coerce(item, items, root) if type(item) in _CHANGING else item for item in value]
    return value if all(map(is_, after, value)) else after


# ---------------------------------------------------------------------------------------------------------------
# Checking schemas


def check_schema(schema: Any) -> list[Problem]:
    """What keeps a value from being a JSON Schema that can be used here; an empty list if nothing does."""
    refusal = refuse_document(schema)
    if refusal is not None:
        return [Problem("", refusal)]
    problems = [*islice(_check_meta(schema), _MAX_PROBLEMS), *_check_refs(schema)]
    if schema.get("$schema", DRAFT) not in (DRAFT, DRAFT + "#"):
        message = f"Schemas are read by draft 2020-12; leave “$schema” out or write “{DRAFT}”."
        problems.insert(0, Problem("/$schema", message))
    return problems or _check_compilation(schema)


def check_input_schema(schema: Any) -> list[Problem]:
    """What keeps a schema from describing the input of a run, which is always a JSON object."""
    problems = check_schema(schema)
    if isinstance(schema, dict) and "object" not in list_types(schema):
        message = "The input of a run is a JSON object: the type must be “object”."
        problems.append(Problem("/type" if "type" in schema else "", message))
    return problems


def refuse_document(schema: Any) -> str | None:
    """Why a value can't even be checked as a schema: no object, too deep, too large; None if it can."""
    if not isinstance(schema, dict):
        return f"A schema must be a JSON object, not {describe_type(schema)}."
    try:
        if clean_value(schema).value is not schema:
            return "The schema holds characters or values that JSON can't store."
    except ValueError:
        return f"The schema is nested deeper than {MAX_DEPTH} levels."
    size = len(dump_json(schema).encode())
    if size > MAX_SCHEMA_BYTES:
        return f"The schema has {size / 1024:.0f} KB; at most {MAX_SCHEMA_BYTES // 1024} KB are allowed."
    return None


def list_children(node: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The schemas directly inside a schema, with their paths."""
    for keyword, value in node.items():
        if keyword in _SCHEMA_KEYWORDS:
            yield (keyword,), value
        elif keyword in _SCHEMA_MAPS and isinstance(value, dict):
            yield from (((keyword, name), part) for name, part in value.items())
        elif keyword in _SCHEMA_LISTS and isinstance(value, list):
            yield from (((keyword, index), part) for index, part in enumerate(value))


def walk_schema(schema: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A schema and all schemas inside it that are objects, with their paths."""
    if isinstance(schema, dict):
        yield path, schema
        for key, child in list_children(schema):
            yield from walk_schema(child, (*path, *key))


def _check_meta(schema: dict[str, Any]) -> Iterator[Problem]:
    if _META.is_valid(schema):
        return
    # Node by node, with empty schemas inside: an error of the library repeats all that is below it, level by level.
    for path, node in walk_schema(schema):
        places = set()
        for error in _META.iter_errors({keyword: _hollow(keyword, value) for keyword, value in node.items()}):
            place = format_pointer((*path, *error.instance_path))
            keyword = next((part for part in reversed(error.instance_path) if isinstance(part, str)), "the schema")
            message = f"“{keyword}” is not what JSON Schema expects: {shorten(error.message, 160)}."
            if keyword == "type":
                message = f"“type” must be {', '.join(TYPES)}, or a list of some of them."
            # A wrong value breaks several rules of the meta-schema at once; the first one says enough.
            if place not in places:
                yield Problem(place, message)
            places.add(place)


def _hollow(keyword: str, value: Any) -> Any:
    """What a keyword holds, with empty schemas in it."""
    if keyword in _SCHEMA_KEYWORDS and isinstance(value, dict):
        return {}
    if keyword in _SCHEMA_MAPS and isinstance(value, dict):
        return {name: {} if isinstance(part, dict) else part for name, part in value.items()}
    if keyword in _SCHEMA_LISTS and isinstance(value, list):
        return [{} if isinstance(part, dict) else part for part in value]
    return value


def _check_refs(schema: dict[str, Any]) -> Iterator[Problem]:
    for path, node in walk_schema(schema):
        if isinstance(node.get("$ref"), str) and (message := _describe_ref(schema, node["$ref"])):
            yield Problem(format_pointer((*path, "$ref")), message)
        if isinstance(node.get("$dynamicRef"), str):
            yield Problem(format_pointer((*path, "$dynamicRef")), "Write “$ref” instead of “$dynamicRef”.")
        if path and isinstance(node.get("$id"), str):
            yield Problem(format_pointer((*path, "$id")), "Only the root can have an “$id”; leave it out.")


def _describe_ref(schema: dict[str, Any], ref: str) -> str:
    shown = f"“{shorten(ref)}”"
    if not ref.startswith("#"):
        return f"{shown} is not within this schema, and nothing else is fetched; copy what it refers to into “$defs”."
    if ref[1:2] not in ("", "/"):
        return f"{shown} is a name; refer to a location, such as “#/$defs/name”."
    if follow_ref(schema, ref) is None:
        return f"This schema has no {shown}."
    if isinstance(resolve_refs({"$ref": ref}, schema).get("$ref"), str):
        return f"{shown} leads only to other references."
    return ""


def _check_compilation(schema: dict[str, Any]) -> list[Problem]:
    try:
        if _count_expanded(schema, schema, {}) > MAX_EXPANSION:
            return [Problem("", "The definitions refer to each other too often.")]
        build_validator(schema)
    except RecursionError:
        return [Problem("", "The definitions refer to each other too deeply.")]
    except jsonschema_rs.ValidationError as error:
        path = format_pointer(error.instance_path)
        what = "is not a regular expression" if path.endswith("pattern") else "can't be used"
        return [Problem(path, f"This {what}: {shorten(error.message, 160)}.")]
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        return [Problem("", f"The schema can't be used: {shorten(str(error), 160)}.")]
    return []


def _count_expanded(node: Any, root: dict[str, Any], counts: dict[str, int]) -> int:
    """How many schemas a value may be held against; ``counts`` holds the numbers of references that were followed."""
    if not isinstance(node, dict):
        return 1
    total, largest = 1, 0
    for (keyword, *_), child in list_children(node):
        if keyword in ("properties", "prefixItems"):  # of these, one part of a value meets one only
            largest = max(largest, _count_expanded(child, root, counts))
        elif keyword not in ("$defs", "definitions"):
            total += _count_expanded(child, root, counts)
    if (ref := node.get("$ref")) is not None:
        if ref not in counts:
            counts[ref] = 1  # what leads back to itself counts once
            counts[ref] = _count_expanded(follow_ref(root, ref), root, counts)
        total += counts[ref]
    return total + largest
