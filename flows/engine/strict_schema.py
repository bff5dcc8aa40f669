"""The strict subset of JSON Schema that function tools of the OpenAI API take: checking it, and getting there.

In strict mode the API compiles a schema to a grammar and refuses, with HTTP 400, what its compiler doesn't know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows.engine.errors import Problem
from flows.engine.json_value import format_pointer
from flows.engine.schema_check import check_schema, follow_ref, refuse_document

MAX_PROPERTIES = 5_000
MAX_NESTING = 10
MAX_ENUM_VALUES = 1_000
MAX_NAME_CHARACTERS = 120_000
LARGE_ENUM, MAX_LARGE_ENUM_CHARACTERS = 250, 15_000

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
# No set: what a document has there may be a list, which none can be asked for.
FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")

KEYWORDS_OF_TYPE: dict[str, frozenset[str]] = {
    "pattern": frozenset({"string"}),
    "format": frozenset({"string"}),
    **dict.fromkeys(
        ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), frozenset({"number", "integer"})
    ),
    **dict.fromkeys(("items", "minItems", "maxItems"), frozenset({"array"})),
    **dict.fromkeys(("properties", "required", "additionalProperties"), frozenset({"object"})),
}
"""The keywords that go with some types only."""

SUPPORTED = frozenset({"type", "description", "title", "enum", "const", "anyOf", "$ref", "$defs", *KEYWORDS_OF_TYPE})
_ONLY_AT_ROOT = frozenset({"$schema"})

_HINTS = {
    "allOf": "merge its parts into one schema",
    "oneOf": "write “anyOf”",
    "default": "say in the description what to give when nothing is known",
    "minLength": "use “pattern”, or an audit",
    "maxLength": "use “pattern”, or an audit",
    "uniqueItems": "use an audit",
    "patternProperties": "use a list of objects with a key and a value",
    "prefixItems": "use an object with a property for each position",
    "definitions": "write “$defs”",
    "nullable": 'write a type of ["string", "null"]',
}
LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")


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
        problems = [*_check_root(schema), *_check_tree(schema, ()), *_check_limits(schema)]
    except RecursionError:
        return [Problem("", "The references of the schema lead to each other too many times.")]
    places = {problem.path for problem in problems}
    # What is no JSON Schema at all is told once, in our words where we have some.
    return problems + [problem for problem in check_schema(schema) if problem.path not in places]


def _check_root(schema: dict[str, Any]) -> Iterator[Problem]:
    if "anyOf" in schema:
        yield Problem("/anyOf", "The root can't be a choice; wrap it in an object with one property.")
    elif schema.get("type") != "object":
        yield Problem("/type" if "type" in schema else "", "The root must have the type “object”.")


Path = tuple[str | int, ...]


def _check_tree(node: Any, path: Path) -> Iterator[Problem]:
    """Problems of a schema and of those inside it."""
    if not isinstance(node, dict):
        yield Problem(format_pointer(path), 'A schema must be an object such as {"type": "string"}.')
        return
    yield from _check_node(node, path)
    for key, child in _children(node):
        yield from _check_tree(child, (*path, *key))


def _children(node: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The schemas inside a schema, in the keywords that strict mode knows."""
    for keyword in ("properties", "$defs"):
        if isinstance(node.get(keyword), dict):
            for name, child in node[keyword].items():
                yield (keyword, name), child
    if "items" in node:
        yield ("items",), node["items"]
    if isinstance(node.get("anyOf"), list):
        for index, child in enumerate(node["anyOf"]):
            yield ("anyOf", index), child


def _check_node(node: dict[str, Any], path: Path) -> Iterator[Problem]:
    here = format_pointer(path)
    allowed = SUPPORTED | _ONLY_AT_ROOT if not path else SUPPORTED
    for keyword in node:
        if keyword not in allowed:
            hint = _HINTS.get(keyword, "leave it out, or check it with an audit")
            yield Problem(f"{here}{format_pointer([keyword])}", f"Strict mode doesn't know “{keyword}”; {hint}.")
    if "$ref" in node:
        yield from _check_ref(node, path)
        return
    if "anyOf" in node:
        return
    types = _types_of(node)
    if not types:
        if "type" in node:
            yield Problem(f"{here}/type", f"The type must be one of {', '.join(TYPES)}.")
        else:
            yield Problem(here, "A type is missing; strict mode can't take “anything”.")
        return
    for keyword in node:
        wanted = KEYWORDS_OF_TYPE.get(keyword)
        if wanted and not wanted & types:
            yield Problem(f"{here}/{keyword}", f"“{keyword}” goes with the type {' or '.join(sorted(wanted))} only.")
    yield from _check_text(node, here)
    yield from _check_enum(node, here)
    if "array" in types and "items" not in node:
        yield Problem(here, "A list must say in “items” what its elements are.")
    if "object" in types:
        yield from _check_object(node, here)


def _types_of(node: dict[str, Any]) -> set[str]:
    """The types of a schema, none if they are not right."""
    declared = node.get("type")
    types: list[Any] = declared if isinstance(declared, list) else [declared]
    return set(types) if all(isinstance(name, str) and name in TYPES for name in types) else set()


def _check_ref(node: dict[str, Any], path: Path) -> Iterator[Problem]:
    here, ref = format_pointer(path), node["$ref"]
    if isinstance(ref, str) and ref.startswith("#") and ref != "#" and not ref.startswith("#/$defs/"):
        yield Problem(f"{here}/$ref", "Strict mode follows references to “#” and “#/$defs/…” only.")
    if not path:
        yield Problem(f"{here}/$ref", "The root can't be a reference; write out what it refers to.")
    elif others := sorted(set(node) & SUPPORTED - {"$ref"}):
        yield Problem(here, f"Beside “$ref” nothing else can stand; move “{others[0]}” to what it refers to.")


def _check_text(node: dict[str, Any], here: str) -> Iterator[Problem]:
    if "format" in node and node["format"] not in FORMATS:
        yield Problem(f"{here}/format", f"Strict mode knows the formats {', '.join(FORMATS)} only.")
    pattern = node.get("pattern")
    if isinstance(pattern, str) and any(part in pattern for part in LOOKAROUND):
        yield Problem(f"{here}/pattern", "Strict mode takes no look-ahead and no look-behind in a pattern.")


def _check_enum(node: dict[str, Any], here: str) -> Iterator[Problem]:
    values = node.get("enum")
    if not isinstance(values, list):
        return
    if not values:
        yield Problem(f"{here}/enum", "List at least one value.")
    characters = sum(len(value) for value in values if isinstance(value, str))
    if len(values) > LARGE_ENUM and characters > MAX_LARGE_ENUM_CHARACTERS:
        yield Problem(
            f"{here}/enum",
            f"The {len(values):,} values have {characters:,} characters; "
            f"beyond {LARGE_ENUM} values, {MAX_LARGE_ENUM_CHARACTERS:,} are allowed.",
        )


def _check_object(node: dict[str, Any], here: str) -> Iterator[Problem]:
    properties = node.get("properties")
    if not isinstance(properties, dict):
        place = f"{here}/additionalProperties" if "additionalProperties" in node else here
        yield Problem(place, "An object must list its “properties”; strict mode takes no free keys.")
        return
    if node.get("additionalProperties") is not False:
        place = f"{here}/additionalProperties" if "additionalProperties" in node else here
        yield Problem(place, "Every object must have “additionalProperties”: false.")
    required = node.get("required")
    names = required if isinstance(required, list) else []
    missing = [name for name in properties if name not in names]
    if missing:
        listed = ", ".join(f"“{name}”" for name in missing[:5]) + (" …" if len(missing) > 5 else "")
        place = f"{here}/required" if "required" in node else here
        yield Problem(
            place, f"Every property must be in “required”; {listed} is missing. What may be left out is null."
        )
    for index, name in enumerate(names):
        if not isinstance(name, str) or name not in properties:
            yield Problem(f"{here}/required/{index}", f"“{name}” is required, but is no property.")


def _check_limits(schema: dict[str, Any]) -> Iterator[Problem]:
    properties = enum_values = characters = 0
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        for keyword in ("properties", "$defs"):
            if isinstance(node.get(keyword), dict):
                properties += len(node[keyword]) if keyword == "properties" else 0
                characters += sum(len(name) for name in node[keyword])
        values = node["enum"] if isinstance(node.get("enum"), list) else []
        enum_values += len(values)
        characters += sum(len(value) for value in [*values, node.get("const")] if isinstance(value, str))
        stack.extend(child for _, child in _children(node))
    if properties > MAX_PROPERTIES:
        yield Problem("", f"The schema has {properties:,} properties; {MAX_PROPERTIES:,} are allowed.")
    if enum_values > MAX_ENUM_VALUES:
        yield Problem("", f"The schema has {enum_values:,} enum values; {MAX_ENUM_VALUES:,} are allowed.")
    if characters > MAX_NAME_CHARACTERS:
        yield Problem(
            "", f"Names and enum values have {characters:,} characters; {MAX_NAME_CHARACTERS:,} are allowed in total."
        )
    too_deep = _find_too_deep(schema, schema, (), 0, frozenset(), {})
    if too_deep is not None:
        yield Problem(too_deep, f"Objects are nested deeper than {MAX_NESTING} levels here.")


def _find_too_deep(
    node: Any, root: dict[str, Any], path: Path, level: int, refs: frozenset[str], followed: dict[str, int]
) -> str | None:
    """Where objects first stand more than ``MAX_NESTING`` levels inside each other; recursion counts once.

    ``followed`` says from which level on a reference was followed already: between definitions that all refer to each
    other there are more ways than anybody could go.
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
        return format_pointer(path)
    for key, child in _children(node):
        if key[0] != "$defs":
            found = _find_too_deep(child, root, (*path, *key), level, refs, followed)
            if found is not None:
                return found
    return None
