"""JSON Schemas: checking them, and holding values against them.

A schema is valid by draft 2020-12, within limits, and refers to nothing outside itself. Numbers of a value become the
type that its schema names, because expressions don't mix the two.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
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
from flows.engine.schema_violations import find_violations, fits_schema, list_types, resolve_refs
from flows.engine.spec import MAX_SCHEMA_BYTES

SCHEMA_MISMATCH = "schema_mismatch"
"""The code of issues about an output that its schema doesn't allow."""

MORE_SCHEMA_MISMATCHES = "more_schema_mismatches"
"""The code of the issue that says that there are more than those that are listed one by one."""

MAX_VIOLATIONS = 50
"""Violations that are listed one by one; one more issue says that there are more."""

DRAFT = "https://json-schema.org/draft/2020-12/schema"

# Offline, so that no schema of an editor makes the server fetch what it names.
_META = jsonschema_rs.Draft202012Validator({"$ref": DRAFT}, offline=True, validate_formats=True)

_SCHEMA_MAPS = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
_SCHEMA_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SCHEMA_KEYWORDS = {
    *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
}

_MAX_PROBLEMS = 50
_MAX_EXPANSION = 5_000
_MAX_REF_CHAIN = 50
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
            # Not JSON at all: half of a surrogate pair, a key that is no text, an object of Python.
            return [Problem("", "The value holds something that JSON doesn't know.")]
        except RecursionError:
            return [Problem("", "The value or its schema is nested too deeply to be checked.")]
        if len(problems) > MAX_VIOLATIONS:
            return [*problems[:MAX_VIOLATIONS], Problem("", "More places break the schema.")]
        return problems or [Problem("", "The value doesn't fit the schema.")]


def compile_schema(schema: dict[str, Any]) -> CompiledSchema:
    """The compiled form of a schema, cached for all equal ones. Raises ``SpecError`` if it is no schema."""
    # As bytes: to Python 1, 1.0 and true are equal. This format takes a third of the time of JSON.
    return _compile(marshal.dumps(schema, 2))


@lru_cache(maxsize=512)
def _compile(data: bytes) -> CompiledSchema:
    schema = marshal.loads(data)  # noqa: S302  # written above
    if problems := check_schema(schema):
        raise SpecError(problems)
    is_valid: Callable[[Any], bool] = partial(fits_schema, schema)
    if is_small_expanded(schema):
        is_valid = jsonschema_rs.Draft202012Validator(schema, offline=True, validate_formats=True).is_valid
    return CompiledSchema(schema, is_valid, has_numbers=b"number" in data or b"integer" in data)


# ---------------------------------------------------------------------------------------------------------------
# Numbers


def _coerce(value: Any, node: Any, root: dict[str, Any]) -> Any:
    """``value``, a container or a number, with the numbers that the schema ``node`` names.

    The same object comes back if none has to change.
    """
    if not isinstance(node, dict):
        return value
    if "$ref" in node:
        node = resolve_refs(node, root)
    branches = node.get("anyOf") or node.get("oneOf")
    if isinstance(value, dict | list):
        if isinstance(branches, list):
            # A branch that is a choice again leads nowhere: it has no properties and no items.
            meant = (branch for branch in branches if _is_meant(branch, value, root))
            return next((after for branch in meant if (after := _coerce(value, branch, root)) is not value), value)
        return _coerce_object(value, node, root) if isinstance(value, dict) else _coerce_list(value, node, root)
    types = node.get("type", ())
    if isinstance(branches, list):
        types = [name for branch in branches for name in list_types(resolve_refs(branch, root))]
    # Where both are allowed, the value says what it is. An int that a float can't hold exactly stays what it is.
    if type(value) is float:
        return int(value) if "integer" in types and "number" not in types and value.is_integer() else value
    is_float = "number" in types and "integer" not in types and abs(value) <= _MAX_EXACT_INTEGER
    return float(value) if is_float else value


def _coerce_object(value: dict[str, Any], node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    properties = node.get("properties")
    for name, part in properties.items() if isinstance(properties, dict) else ():
        item = value.get(name)
        if type(item) in _CHANGING and (after := _coerce(item, part, root)) is not item:
            changed[name] = after
    # Updating a copy keeps the order of the keys.
    return {**value, **changed} if changed else value


def _coerce_list(value: list[Any], node: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    items = node.get("items")
    after = [_coerce(item, items, root) if type(item) in _CHANGING else item for item in value]
    return value if all(map(is_, after, value)) else after


def _is_meant(branch: Any, value: Any, root: dict[str, Any]) -> bool:
    """Whether a value is meant by a branch: the same keys, and the constants that tell branches apart."""
    branch = resolve_refs(branch, root)
    if isinstance(value, list):
        return "items" in branch
    properties = branch.get("properties")
    if not isinstance(properties, dict) or not value.keys() <= properties.keys():
        return False
    for name, part in properties.items():
        if isinstance(part, dict) and name in value:
            allowed = [part["const"]] if "const" in part else part.get("enum")
            if isinstance(allowed, list) and value[name] not in allowed:
                return False
    return all(name in value for name in branch.get("required", ()))


# ---------------------------------------------------------------------------------------------------------------
# Checking schemas


def check_schema(schema: Any) -> list[Problem]:
    """What keeps a value from being a JSON Schema that can be used here; an empty list if nothing does."""
    refusal = refuse_document(schema)
    if refusal is not None:
        return [Problem("", refusal)]
    problems = [*islice(_check_keywords(schema), _MAX_PROBLEMS), *_check_refs(schema)]
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
    """Why a value can't even be looked into as a schema: no object, too deep, too large; None if it can."""
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
    left: list[tuple[Path, Any]] = [(path, schema)]
    while left:
        path, node = left.pop()
        if isinstance(node, dict):
            yield path, node
            left += [((*path, *key), child) for key, child in list_children(node)][::-1]


def is_small_expanded(root: Any) -> bool:
    """Whether a schema stays small when its references are written out, up to where they repeat themselves.

    Only then does ``jsonschema_rs`` take time in proportion to the value: it follows most references again each time.
    """
    count = 0
    left: list[tuple[Any, frozenset[str]]] = [(root, frozenset())]
    while left and count < _MAX_EXPANSION:
        node, refs = left.pop()
        count += bool(refs)
        if isinstance(node, dict):
            ref = node.get("$ref")
            if isinstance(ref, str) and ref not in refs:
                left.append((follow_ref(root, ref), refs | {ref}))
        parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        left += [(part, refs) for part in parts if isinstance(part, dict | list)]
    return not left


def _check_keywords(schema: dict[str, Any]) -> Iterator[Problem]:
    if _META.is_valid(schema):
        return
    # Node by node, with empty schemas inside: an error of the library repeats all that is below it, level by level.
    for path, node in walk_schema(schema):
        hollow = {keyword: _hollow(keyword, value) for keyword, value in node.items()}
        problems: dict[str, Problem] = {}
        for error in _META.iter_errors(hollow):
            place = format_pointer((*path, *error.instance_path))
            # A wrong value breaks several rules of the meta-schema at once; the first one says enough.
            problems.setdefault(place, Problem(place, _describe(error)))
        yield from problems.values()


def _hollow(keyword: str, value: Any) -> Any:
    """What a keyword holds, with empty schemas in it."""
    if keyword in _SCHEMA_KEYWORDS and isinstance(value, dict):
        return {}
    if keyword in _SCHEMA_MAPS and isinstance(value, dict):
        return {name: {} if isinstance(part, dict) else part for name, part in value.items()}
    if keyword in _SCHEMA_LISTS and isinstance(value, list):
        return [{} if isinstance(part, dict) else part for part in value]
    return value


def _describe(error: jsonschema_rs.ValidationError) -> str:
    keyword = next((part for part in reversed(error.instance_path) if isinstance(part, str)), "the schema")
    if keyword == "type":
        return "“type” must be object, array, string, number, integer, boolean, null, or a list of some of them."
    return f"“{keyword}” is not what JSON Schema expects: {shorten(error.message, 160)}."


def _check_refs(schema: dict[str, Any]) -> Iterator[Problem]:
    is_small = is_small_expanded(schema)
    for path, node in walk_schema(schema):
        found: dict[str, str] = {}
        if isinstance(node.get("$ref"), str):
            found["$ref"] = _describe_ref(schema, node["$ref"])
        if isinstance(node.get("$dynamicRef"), str):
            found["$dynamicRef"] = "Write “$ref” instead of “$dynamicRef”."
        if path and isinstance(node.get("$id"), str):
            found["$id"] = "Only the root can have an “$id”; leave it out."
        for keyword in ("unevaluatedItems", "unevaluatedProperties"):
            if keyword in node and not is_small:
                found[keyword] = f"The definitions refer to each other too often for “{keyword}”."
        yield from (Problem(format_pointer((*path, keyword)), message) for keyword, message in found.items() if message)


def _describe_ref(schema: dict[str, Any], ref: str) -> str:
    shown = f"“{shorten(ref)}”"
    if not ref.startswith("#"):
        return f"{shown} is not within this schema, and nothing else is fetched; copy what it refers to into “$defs”."
    if ref[1:2] not in ("", "/"):
        return f"{shown} is a name; refer to a place, such as “#/$defs/name”."
    if follow_ref(schema, ref) is None:
        return f"There is no {shown} in this schema."
    target: Any = {"$ref": ref}
    for _ in range(_MAX_REF_CHAIN):
        target = follow_ref(schema, target["$ref"])
        if not isinstance(target, dict) or not isinstance(target.get("$ref"), str):
            return ""
    return f"{shown} leads back to itself and says nothing."


def _check_compilation(schema: dict[str, Any]) -> list[Problem]:
    try:
        jsonschema_rs.Draft202012Validator(schema, offline=True)
    except jsonschema_rs.ValidationError as error:
        path = format_pointer(error.instance_path)
        what = "is no regular expression" if path.endswith("pattern") else "can't be used"
        return [Problem(path, f"This {what}: {shorten(error.message, 160)}.")]
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        return [Problem("", f"The schema can't be used: {shorten(str(error), 160)}.")]
    return []
