"""Where a value breaks a schema, in the words of ``jsonschema_rs``.

The library would explain every branch of a union, each with the unions inside it: exponentially many. Here a schema is
walked along the value: only into what breaks it, and of a union only into the branch that was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, unquote

import jsonschema_rs

from flows.engine.errors import Problem
from flows.engine.json_values import (
    Path,
    describe_type,
    dump_json,
    follow_ref,
    format_pointer,
    parse_pointer,
    resolve_pointer,
    shorten,
)

_ROOT = "urn:schema"
_SUBJECT = "the value"
_WALKED = {"$ref", "$defs", "definitions", "allOf", "anyOf", "oneOf", "properties", "items", "required"}

Fits = Callable[[Path, Any], bool]
"""Whether a value fits the schema at a place within the whole one."""


def build_validator(schema: dict[str, Any], **options: Any) -> jsonschema_rs.Validator:
    """The library's validator; offline, so that no schema of an editor makes the server fetch what it names."""
    return jsonschema_rs.Draft202012Validator(schema, offline=True, validate_formats=True, **options)


def find_violations(root: dict[str, Any], value: Any) -> Iterator[Problem]:
    """Find what is wrong with ``value``, place by place; at least one problem if it doesn't fit.

    A missing property is reported at the object that should have it, an unexpected one at itself.
    """
    registry = jsonschema_rs.Registry([(_ROOT, root)])
    validators: dict[Path, jsonschema_rs.Validator] = {}

    def fits(place: Path, value: Any) -> bool:
        if place not in validators:
            ref = {"$ref": f"{_ROOT}#{quote(format_pointer(place))}"}
            validators[place] = build_validator(ref, registry=registry)
        return validators[place].is_valid(value)

    yield from _walk(root, (), value, (), fits)


def _walk(root: dict[str, Any], place: Path, value: Any, path: Path, fits: Fits) -> Iterator[Problem]:
    """What is wrong with the value at ``path``, by the schema at ``place``."""
    if fits(place, value):
        return
    schema = resolve_pointer(root, format_pointer(place))
    if schema is False:
        yield Problem(format_pointer(path), f"{format_place(path)} is not expected. Remove it.")
        return
    is_explained = False
    for problem in _list_own(root, schema, value, path):
        is_explained = True
        yield problem
    for rule, item, key in _list_inner(root, schema, value):
        inner = parse_pointer(unquote(str(rule[1])[1:])) if rule[0] == "$ref" else (*place, *rule)
        for problem in _walk(root, inner, item, (*path, *key), fits):
            is_explained = True
            yield problem
    if not is_explained:
        rules = ", ".join(f"“{keyword}”" for keyword in schema)
        yield Problem(format_pointer(path), f"{format_place(path)} violates one of the rules {rules} of the schema.")


def _list_own(root: dict[str, Any], schema: dict[str, Any], value: Any, path: Path) -> Iterator[Problem]:
    """What is wrong by the rules that hold no schemas, or none with a choice or a reference in it."""
    for name in schema.get("required", ()) if isinstance(value, dict) else ():
        if name not in value:
            yield Problem(format_pointer(path), f"{format_place([*path, name])} is missing.")
    plain = {keyword: rule for keyword, rule in schema.items() if keyword not in _WALKED and _is_plain(rule)}
    if "additionalProperties" in plain and "patternProperties" not in plain:
        del plain["additionalProperties"]
    elif "additionalProperties" in plain:
        plain["properties"] = dict.fromkeys(schema.get("properties", ()), True)
    types = [list_types(resolve_refs(branch, root)) for branch in schema.get("anyOf", ())]
    if "type" not in plain and types and all(types):
        plain["type"] = sorted({name for names in types for name in names})
    for error in build_validator(plain, mask=_SUBJECT).iter_errors(value):
        there = (*path, *error.instance_path)
        got = f"; got {format_value(error.instance)}" if _SUBJECT in error.message else ""
        yield Problem(format_pointer(there), f"{format_place(there)}: {shorten(error.message, 300)}{got}.")


def _is_plain(rule: Any) -> bool:
    if isinstance(rule, dict) and not rule.keys().isdisjoint(("$ref", "anyOf", "oneOf")):
        return False
    parts = rule.values() if isinstance(rule, dict) else rule if isinstance(rule, list) else ()
    return all(map(_is_plain, parts))


def _list_inner(root: dict[str, Any], schema: dict[str, Any], value: Any) -> Iterator[tuple[Path, Any, Path]]:
    """The schemas inside one that a value or a part of it has to fit, each with the part and its key."""
    if "$ref" in schema:
        yield ("$ref", schema["$ref"]), value, ()
    for index in range(len(schema.get("allOf", ()))):
        yield ("allOf", index), value, ()
    for keyword in ("anyOf", "oneOf"):
        meant = find_meant([resolve_refs(branch, root) for branch in schema.get(keyword, ())], value)
        if meant is not None:
            yield (keyword, meant), value, ()
    properties, has_patterns = schema.get("properties", {}), "patternProperties" in schema
    for name, item in value.items() if isinstance(value, dict) else ():
        if name in properties:
            yield ("properties", name), item, (name,)
        elif "additionalProperties" in schema and not has_patterns:
            yield ("additionalProperties",), item, (name,)
    first = len(schema.get("prefixItems", ()))
    for index in range(first, len(value)) if isinstance(value, list) and "items" in schema else ():
        yield ("items",), value[index], (index,)


# ---------------------------------------------------------------------------------------------------------------
# Unions and references

_MARKS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
    lambda branch: _select(branch, "type"),
    lambda branch: {**_select(branch, "const", "enum"), "properties": _select_parts(branch, "const", "enum")},
    lambda branch: {**_select(branch, "required"), "properties": _select_parts(branch), "additionalProperties": False},
    lambda branch: {"properties": _select_parts(branch, "type")},
)
"""What distinguishes the branches of a union: the type, constants, the names of properties, and their types."""


def find_meant(branches: Sequence[dict[str, Any]], value: Any) -> int | None:
    """Which branch of a union a value was meant for; None if none or several. References are resolved at the top."""
    left: Sequence[int] = range(len(branches))
    for mark in _MARKS:
        fitting = [index for index in left if build_validator(mark(branches[index])).is_valid(value)]
        left = fitting if fitting or mark is _MARKS[0] else left
        if len(left) < 2:
            break
    return left[0] if len(left) == 1 else None


def _select(schema: Any, *keywords: str) -> dict[str, Any]:
    return {keyword: schema[keyword] for keyword in keywords if keyword in schema} if isinstance(schema, dict) else {}


def _select_parts(branch: dict[str, Any], *keywords: str) -> dict[str, Any]:
    return {name: _select(part, *keywords) for name, part in branch.get("properties", {}).items()}


def resolve_refs(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """A schema with its reference followed, also where it leads to others; an empty one for what is not an object."""
    for _ in range(10):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        schema = follow_ref(root, schema["$ref"])
    return schema if isinstance(schema, dict) else {}


def list_types(schema: dict[str, Any]) -> list[Any]:
    """The types that a schema names, none if it names none."""
    declared = schema.get("type", [])
    return declared if isinstance(declared, list) else [declared]


# ---------------------------------------------------------------------------------------------------------------
# Sentences


def format_place(path: Sequence[str | int]) -> str:
    """How a place is called in a sentence: ``colors[2].hex`` in backquotes, or “The value” for the whole."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"`{text}`" if text else "The value"


def format_value(value: Any) -> str:
    """A value for use in a sentence: “text”, 12, or what it is where it is too large to be shown."""
    if isinstance(value, str):
        return f"“{shorten(value)}”"
    if isinstance(value, dict | list) and len(value) > 5:
        return f"{describe_type(value)} of {len(value):,}"
    text = dump_json(value)
    return text if len(text) <= 60 else describe_type(value)
