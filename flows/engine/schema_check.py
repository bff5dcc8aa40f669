"""What any JSON Schema of a flow must be: valid by draft 2020-12, within limits, and free of remote references."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from flows.engine.errors import Problem
from flows.engine.json_value import MAX_DEPTH, clean_value, describe_type, dump_json, format_pointer, resolve_pointer
from flows.engine.spec import MAX_SCHEMA_BYTES

DRAFT = "https://json-schema.org/draft/2020-12/schema"

# Offline, so that no schema of an editor makes the server fetch what it names.
_META = jsonschema_rs.Draft202012Validator({"$ref": DRAFT}, offline=True, validate_formats=True)

_SCHEMA_MAPS = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_KEYWORDS = frozenset(
    {"additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)

_MOST_PROBLEMS = 50
_MAX_EXPANSION = 5_000
_MAX_REF_CHAIN = 50


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


def check_schema(schema: Any) -> list[Problem]:
    """What keeps a value from being a JSON Schema that can be used here; an empty list if nothing does."""
    refusal = refuse_document(schema)
    if refusal is not None:
        return [Problem("", refusal)]
    problems = [*_check_draft(schema), *islice(_check_keywords(schema), _MOST_PROBLEMS), *_check_refs(schema)]
    return problems or _check_compilation(schema)


def check_input_schema(schema: Any) -> list[Problem]:
    """What keeps a schema from describing the input of a run, which is always a JSON object."""
    problems = check_schema(schema)
    if isinstance(schema, dict):
        types = schema.get("type")
        if types != "object" and not (isinstance(types, list) and "object" in types):
            problems.append(
                Problem(
                    "/type" if "type" in schema else "",
                    "The input of a run is a JSON object: the type must be “object”.",
                )
            )
    return problems


def follow_ref(root: dict[str, Any], ref: str) -> Any:
    """What a reference within ``root`` (``#``, ``#/$defs/name``) stands for; None if it is nothing of the kind."""
    if not ref.startswith("#"):
        return None
    try:
        return resolve_pointer(root, unquote(ref[1:]))
    except (LookupError, ValueError):
        return None


def is_ref_loop(root: dict[str, Any], ref: str) -> bool:
    """Whether a reference leads from reference to reference without end."""
    for _ in range(_MAX_REF_CHAIN):
        target = follow_ref(root, ref)
        if not isinstance(target, dict) or not isinstance(target.get("$ref"), str):
            return False
        ref = target["$ref"]
    return True


def is_small_expanded(root: Any) -> bool:
    """Whether a schema stays small when its references are written out, up to where they repeat themselves.

    Only then does ``jsonschema_rs`` take time in proportion to the value: it follows most references anew each time.
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


def _check_draft(schema: dict[str, Any]) -> Iterator[Problem]:
    draft = schema.get("$schema", DRAFT)
    if draft not in (DRAFT, DRAFT + "#"):
        yield Problem("/$schema", f"Schemas are read by draft 2020-12; leave “$schema” out or write “{DRAFT}”.")


def _check_keywords(schema: dict[str, Any]) -> Iterator[Problem]:
    if _META.is_valid(schema):
        return
    # Node by node, with empty schemas inside: an error of the library repeats all that is below it, level by level.
    for node, path in _walk(schema):
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


def _walk(schema: Any) -> Iterator[tuple[dict[str, Any], tuple[str | int, ...]]]:
    """A schema and all schemas inside it that are objects, with their paths."""
    left: list[tuple[Any, tuple[str | int, ...]]] = [(schema, ())]
    while left:
        node, path = left.pop()
        if not isinstance(node, dict):
            continue
        yield node, path
        for keyword, value in reversed(node.items()):
            if keyword in _SCHEMA_KEYWORDS:
                left.append((value, (*path, keyword)))
            elif keyword in _SCHEMA_MAPS and isinstance(value, dict):
                left += [(part, (*path, keyword, name)) for name, part in reversed(value.items())]
            elif keyword in _SCHEMA_LISTS and isinstance(value, list):
                left += [(part, (*path, keyword, index)) for index, part in reversed(list(enumerate(value)))]


def _describe(error: jsonschema_rs.ValidationError) -> str:
    keyword = next((part for part in reversed(error.instance_path) if isinstance(part, str)), "the schema")
    got = describe_type(error.instance)
    if keyword == "type":
        return "“type” must be object, array, string, number, integer, boolean, null, or a list of some of them."
    match error.kind.name:
        case "type":
            return (
                f"“{keyword}” must be {' or '.join(_ARTICLES.get(name, name) for name in error.kind.value)}, not {got}."
            )
        case "format":
            return f"“{keyword}” is no valid {error.kind.value}."
    return f"“{keyword}” is not what JSON Schema expects: {_shorten(error.message)}."


_ARTICLES = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
}


def _shorten(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _check_refs(schema: dict[str, Any]) -> Iterator[Problem]:
    is_small = is_small_expanded(schema)
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(schema, ())]
    while stack:
        node, path = stack.pop()
        if isinstance(node, list):
            stack.extend((child, (*path, index)) for index, child in enumerate(node))
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("$ref"), str):
            message = _describe_ref(schema, node["$ref"])
            if message:
                yield Problem(format_pointer((*path, "$ref")), message)
        if isinstance(node.get("$dynamicRef"), str):
            yield Problem(format_pointer((*path, "$dynamicRef")), "Write “$ref” instead of “$dynamicRef”.")
        if path and isinstance(node.get("$id"), str):
            yield Problem(format_pointer((*path, "$id")), "Only the root can have an “$id”; leave it out.")
        for keyword in ("unevaluatedItems", "unevaluatedProperties"):
            if keyword in node and not is_small:
                message = f"The definitions refer to each other too often for “{keyword}”."
                yield Problem(format_pointer((*path, keyword)), message)
        # What stands in these is data, not a schema.
        stack.extend(
            (child, (*path, key)) for key, child in node.items() if key not in ("enum", "const", "default", "examples")
        )


def _describe_ref(schema: dict[str, Any], ref: str) -> str:
    shown = f"“{_shorten(ref, 60)}”"
    if not ref.startswith("#"):
        return f"{shown} is not within this schema, and nothing else is fetched; copy what it refers to into “$defs”."
    if ref[1:2] not in ("", "/"):
        return f"{shown} is a name; refer to a place, such as “#/$defs/name”."
    if follow_ref(schema, ref) is None:
        return f"There is no {shown} in this schema."
    if is_ref_loop(schema, ref):
        return f"{shown} leads back to itself and says nothing."
    return ""


def _check_compilation(schema: dict[str, Any]) -> list[Problem]:
    try:
        jsonschema_rs.Draft202012Validator(schema, offline=True)
    except jsonschema_rs.ValidationError as error:
        path = format_pointer(error.instance_path)
        what = "is no regular expression" if path.endswith("pattern") else "can't be used"
        return [Problem(path, f"This {what}: {_shorten(error.message)}.")]
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        return [Problem("", f"The schema can't be used: {_shorten(str(error))}.")]
    return []
