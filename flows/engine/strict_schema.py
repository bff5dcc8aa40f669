"""The strict subset of JSON Schema that function tools of the OpenAI API take: checking it, and getting there.

In strict mode the API compiles a schema to a grammar and refuses, with HTTP 400, what its compiler doesn't know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flows.engine.errors import Problem
from flows.engine.json_values import Path, follow_ref, format_pointer
from flows.engine.schema_violations import build_validator, list_types
from flows.engine.schemas import DRAFT, TYPES, check_schema, list_children, refuse_document

# More than 5,000 properties, or 120,000 characters of names, have no room in ``MAX_SCHEMA_BYTES``.
MAX_NESTING = 10
MAX_ENUM_VALUES = 1_000
LARGE_ENUM, MAX_LARGE_ENUM_CHARACTERS = 250, 15_000

# No set: what a document has there may be a list, which none can be asked for.
FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")

_NUMERIC = ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KEYWORDS_OF_TYPE: dict[str, frozenset[str]] = {
    "pattern": frozenset({"string"}),
    "format": frozenset({"string"}),
    **dict.fromkeys(_NUMERIC, frozenset({"number", "integer"})),
    **dict.fromkeys(("items", "minItems", "maxItems"), frozenset({"array"})),
    **dict.fromkeys(("properties", "required", "additionalProperties"), frozenset({"object"})),
}
"""The keywords that go with some types only."""

SUPPORTED = frozenset({"type", "description", "title", "enum", "const", "anyOf", "$ref", "$defs", *_KEYWORDS_OF_TYPE})

_HINTS = {
    "allOf": "merge its parts into one schema",
    "oneOf": "write “anyOf”",
    "default": "say in the description what to return when nothing is known",
    "minLength": "use “pattern”, or an audit",
    "maxLength": "use “pattern”, or an audit",
    "uniqueItems": "use an audit",
    "patternProperties": "use a list of objects with a key and a value",
    "prefixItems": "use an object with a property for each position",
    "definitions": "write “$defs”",
    "nullable": 'write a type of ["string", "null"]',
}
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")

Found = Iterator[tuple[Path, str]]


# ---------------------------------------------------------------------------------------------------------------
# Checking


def check_strict(schema: Any) -> list[Problem]:
    """Everything that keeps a schema from being the parameters of a strict function tool; nothing if it can be that.

    Each problem's path is a JSON pointer into the schema, and its message says what would be right.
    """
    refusal = refuse_document(schema)
    if refusal is not None:
        return [Problem("", refusal)]
    try:
        found = [*_check_root(schema), *_check_limits(schema)]
    except RecursionError:
        return [Problem("", "The references of the schema refer to each other too many times.")]
    for path, node in _walk(schema):
        found += _check_node(node, path)
    problems = [Problem(format_pointer(path), message) for path, message in found]
    places = {problem.path for problem in problems}
    # What is not a JSON Schema at all is reported once, in our words where we have some.
    return problems + [problem for problem in check_schema(schema) if problem.path not in places]


def _walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """A schema and those inside it, in the keywords that strict mode knows."""
    yield path, node
    for key, child in list_children(node) if isinstance(node, dict) else ():
        if key[0] in SUPPORTED and key[0] != "additionalProperties":
            yield from _walk(child, (*path, *key))


def _check_root(schema: dict[str, Any]) -> Found:
    if "anyOf" in schema:
        yield ("anyOf",), "The root can't be a choice; wrap it in an object with one property."
    elif schema.get("type") != "object":
        yield _place_at((), schema, "type"), "The root must have the type “object”."
    if "$ref" in schema:
        yield ("$ref",), "The root can't be a reference; write out what it refers to."


def _check_node(node: Any, path: Path) -> Found:
    if not isinstance(node, dict):
        yield path, 'A schema must be an object such as {"type": "string"}.'
        return
    for keyword in node:
        if keyword not in SUPPORTED and (path or keyword != "$schema"):
            hint = _HINTS.get(keyword, "leave it out, or check it with an audit")
            yield (*path, keyword), f"Strict mode does not support “{keyword}”; {hint}."
    if "$ref" in node:
        ref = node["$ref"]
        if isinstance(ref, str) and ref.startswith("#") and ref != "#" and not ref.startswith("#/$defs/"):
            yield (*path, "$ref"), "Strict mode follows references to “#” and “#/$defs/…” only."
        if path and (others := sorted(set(node) & SUPPORTED - {"$ref"})):
            yield path, f"“$ref” can't have siblings; move “{others[0]}” to what it refers to."
    elif "type" in node and not _are_types(list_types(node)) and "anyOf" not in node:
        yield (*path, "type"), f"The type must be one of {', '.join(TYPES)}."
    elif "type" in node and "anyOf" not in node:
        yield from _check_typed(node, path)
    elif "anyOf" not in node:
        yield path, "A type is missing; strict mode does not allow “anything”."


def _are_types(names: list[Any]) -> bool:
    return bool(names) and all(name in TYPES for name in names)


def _check_typed(node: dict[str, Any], path: Path) -> Found:
    types = list_types(node)
    for keyword in node:
        wanted = _KEYWORDS_OF_TYPE.get(keyword)
        if wanted and not wanted.intersection(types):
            yield (*path, keyword), f"“{keyword}” goes with the type {' or '.join(sorted(wanted))} only."
    if "format" in node and node["format"] not in FORMATS:
        yield (*path, "format"), f"Strict mode supports the formats {', '.join(FORMATS)} only."
    if _looks_around(node.get("pattern")):
        yield (*path, "pattern"), "Strict mode does not allow look-ahead or look-behind in a pattern."
    values = _list_enum(node)
    is_of_type = build_validator({"type": sorted(set(types))}).is_valid
    for keyword, listed in (("enum", values), ("const", [node["const"]] if "const" in node else [])):
        if refused := [value for value in listed if not is_of_type(value)]:
            named = " or ".join(f"“{name}”" for name in types)
            yield (*path, keyword), f"The value {json.dumps(refused[0])[:60]} is not of the type {named}."
    if "enum" in node and not values:
        yield (*path, "enum"), "List at least one value."
    characters = sum(len(value) for value in values if isinstance(value, str))
    if len(values) > LARGE_ENUM and characters > MAX_LARGE_ENUM_CHARACTERS:
        allowed = f"beyond {LARGE_ENUM} values, {MAX_LARGE_ENUM_CHARACTERS:,} are allowed"
        yield (*path, "enum"), f"The {len(values):,} values have {characters:,} characters; {allowed}."
    if "array" in types and "items" not in node:
        yield path, "A list must say in “items” what its elements are."
    if "object" in types:
        yield from _check_object(node, path)


def _check_object(node: dict[str, Any], path: Path) -> Found:
    properties, required = node.get("properties"), node.get("required")
    closing = _place_at(path, node, "additionalProperties")
    if not isinstance(properties, dict):
        yield closing, "An object must list its “properties”; strict mode does not allow free keys."
        return
    if node.get("additionalProperties") is not False:
        yield closing, "Every object must have “additionalProperties”: false."
    names = required if isinstance(required, list) else []
    if missing := [f"“{name}”" for name in properties if name not in names]:
        listed = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        message = f"Every property must be in “required”; {listed} is missing. What may be left out is null."
        yield _place_at(path, node, "required"), message
    for index, name in enumerate(names):
        if not isinstance(name, str) or name not in properties:
            yield (*path, "required", index), f"“{name}” is required but is not a property."


def _place_at(path: Path, node: dict[str, Any], keyword: str) -> Path:
    return (*path, keyword) if keyword in node else path


def _looks_around(pattern: Any) -> bool:
    return isinstance(pattern, str) and any(part in pattern for part in _LOOKAROUND)


def _list_enum(node: dict[str, Any]) -> list[Any]:
    return node["enum"] if isinstance(node.get("enum"), list) else []


def _check_limits(schema: dict[str, Any]) -> Found:
    options = sum(len(_list_enum(node)) for _, node in _walk(schema) if isinstance(node, dict))
    if options > MAX_ENUM_VALUES:
        yield (), f"The schema has {options:,} enum values; {MAX_ENUM_VALUES:,} are allowed."
    too_deep = _find_too_deep(schema, schema, (), 0, frozenset(), {})
    if too_deep is not None:
        yield too_deep, f"Objects are nested deeper than {MAX_NESTING} levels here."


def _find_too_deep(
    node: Any, root: dict[str, Any], path: Path, level: int, refs: frozenset[str], followed: dict[str, int]
) -> Path | None:
    """Where objects are first nested more than ``MAX_NESTING`` levels deep; recursion counts once.

    ``followed`` holds the level from which on a reference was followed already.
    """
    if not isinstance(node, dict):
        return None
    ref = node.get("$ref")
    if isinstance(ref, str):
        if ref in refs or followed.get(ref, -1) >= level:
            return None
        followed[ref] = level
        return _find_too_deep(follow_ref(root, ref), root, path, level, refs | {ref}, followed)
    level += isinstance(node.get("properties"), dict)
    if level > MAX_NESTING:
        return path
    for key, child in list_children(node):
        if key[0] in ("properties", "items", "anyOf"):
            found = _find_too_deep(child, root, (*path, *key), level, refs, followed)
            if found is not None:
                return found
    return None


# ---------------------------------------------------------------------------------------------------------------
# Making strict

# Without these the schema would mean something else: they stay, and the check reports them.
_KEPT = SUPPORTED | {"allOf", "prefixItems"}

_TYPE_NAMES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def make_strict(schema: Any, *, optional_becomes_null: bool = True) -> Any:
    """A copy of ``schema`` as near to the strict subset as it can be brought; ``check_strict`` says what is left.

    Objects list their properties, all of them required, and take no others; what could be left out may be null, unless
    ``optional_becomes_null`` is false. ``oneOf`` becomes ``anyOf``, a single ``allOf`` is merged, a ``$ref`` with
    keywords beside it is written out, and keywords that only restrict are dropped. What can't be read as a
    schema is returned as it is.
    """
    if refuse_document(schema) is not None:
        return schema
    root = _rename_definitions(schema)
    if isinstance(root.get("definitions"), dict):
        definitions, present = root.pop("definitions"), root.get("$defs", {})
        root["$defs"] = {**definitions, **present} if isinstance(present, dict) else definitions
    node = root
    ref = root.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/$defs/") and isinstance(target := follow_ref(root, ref), dict):
        node = {**target, **{key: value for key, value in root.items() if key != "$ref"}}
    made: dict[str, Any] = _make(node, root, frozenset(), optional_becomes_null, iter(range(_MAX_NODES)))
    return {"$schema": DRAFT, **made} if node.get("$schema") == DRAFT else made


def _rename_definitions(value: Any) -> Any:
    """A copy whose references lead to ``$defs``: ``definitions`` is of older drafts."""
    if isinstance(value, list):
        return [_rename_definitions(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: _rename_definitions(item) for key, item in value.items()}
    if isinstance(renamed.get("$ref"), str):
        renamed["$ref"] = renamed["$ref"].replace("#/definitions/", "#/$defs/", 1)
    return renamed


_MAX_NODES = 20_000
"""Schemas within one; once there are more, references are no longer written out. Each could double what is there."""


def _make(node: Any, root: dict[str, Any], inlined: frozenset[str], is_nullable: bool, left: Iterator[int]) -> Any:
    """A strict copy of ``node``; ``is_nullable`` says whether what may be left out becomes null."""
    if not isinstance(node, dict):
        return node
    is_full = next(left, None) is None
    while _is_single(node.get("allOf")):
        (part,) = node["allOf"]
        node = {**part, **{key: value for key, value in node.items() if key != "allOf"}}
    if isinstance(node.get("$ref"), str):
        target = None if is_full else _write_out(node, root, inlined)
        return (
            {"$ref": node["$ref"]}
            if target is None
            else _make(target, root, inlined | {node["$ref"]}, is_nullable, left)
        )
    if "oneOf" in node and "anyOf" not in node:
        node = {"anyOf" if key == "oneOf" else key: value for key, value in node.items()}
    made = {key: value for key, value in node.items() if key in _KEPT}
    for keyword in ("properties", "$defs"):
        if isinstance(made.get(keyword), dict):
            parts = made[keyword].items()
            made[keyword] = {name: _make(part, root, inlined, is_nullable, left) for name, part in parts}
    if isinstance(made.get("anyOf"), list):
        made["anyOf"] = [_make(part, root, inlined, is_nullable, left) for part in made["anyOf"]]
        return made
    if "items" in made:
        made["items"] = _make(made["items"], root, inlined, is_nullable, left)
    _fit_type(made, is_nullable=node.get("nullable") is True)
    if isinstance(made.get("properties"), dict) and "type" in made:
        required = node["required"] if isinstance(node.get("required"), list) else []
        for name, part in made["properties"].items():
            if is_nullable and name not in required:
                made["properties"][name] = allow_null(part)
        made |= {"required": list(made["properties"]), "additionalProperties": False}
    return made


def _write_out(node: dict[str, Any], root: dict[str, Any], inlined: frozenset[str]) -> dict[str, Any] | None:
    """What a reference refers to, with the keywords beside it; None if it can stay a reference."""
    siblings = {key: value for key, value in node.items() if key in SUPPORTED and key != "$ref"}
    target = follow_ref(root, node["$ref"])
    # What refers to itself is written out once; the words beside the inner references are dropped.
    if not siblings or not isinstance(target, dict) or node["$ref"] in inlined:
        return None
    return {**{key: value for key, value in target.items() if key != "$defs"}, **siblings}


def _is_single(parts: Any) -> bool:
    return isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict)


def _fit_type(made: dict[str, Any], *, is_nullable: bool) -> None:
    """Add a type where the rest of a schema implies one, and drop the keywords that its types don't take."""
    if "type" not in made and (implied := _find_implied_types(made)):
        made["type"] = implied if len(implied) > 1 else implied[0]
    types = list_types(made)
    if "type" not in made or not all(name in TYPES for name in types):
        return
    if is_nullable:
        made.update(allow_null(made))
    for keyword, wanted in _KEYWORDS_OF_TYPE.items():
        if not wanted.intersection(types):
            made.pop(keyword, None)
    if made.get("format") not in FORMATS:
        made.pop("format", None)
    if _looks_around(made.get("pattern")):
        made.pop("pattern")


def _find_implied_types(node: dict[str, Any]) -> list[str]:
    if "properties" in node:
        return ["object"]
    if "items" in node:
        return ["array"]
    values = [node["const"]] if "const" in node and "enum" not in node else _list_enum(node)
    names = {_TYPE_NAMES.get(type(value), "") for value in values}
    return [] if "" in names else sorted(names)


def allow_null(node: Any) -> Any:
    """The schema, of values that may be null too."""
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("anyOf"), list):
        takes_null = any(isinstance(branch, dict) and "null" in list_types(branch) for branch in node["anyOf"])
        return node if takes_null else {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
    if "$ref" in node:
        return {"anyOf": [node, {"type": "null"}]}
    if "type" not in node:
        return node
    types = list_types(node)
    nullable = {**node, "type": node["type"] if "null" in types else [*types, "null"]}
    if "const" in nullable and nullable["const"] is not None:
        nullable["enum"] = [nullable.pop("const"), None]
    elif isinstance(nullable.get("enum"), list) and None not in nullable["enum"]:
        nullable["enum"] = [*nullable["enum"], None]
    return nullable


def find_optional(schema: Any) -> list[str]:
    """The names of properties of a schema that may be left out, each once."""
    names: dict[str, None] = {}
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        if not isinstance(node, dict):
            continue
        properties, required = node.get("properties"), node.get("required")
        if isinstance(properties, dict):
            kept = required if isinstance(required, list) else []
            names.update(dict.fromkeys(name for name in properties if name not in kept))
        stack += node.values()
    return list(names)
