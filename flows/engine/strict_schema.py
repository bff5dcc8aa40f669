"""The strict subset of JSON Schema that function tools of the OpenAI API take: checking it, and getting there.

In strict mode the API compiles a schema to a grammar and refuses, with HTTP 400, what its compiler doesn't know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows.engine.errors import Problem
from flows.engine.json_values import Path, follow_ref, format_pointer
from flows.engine.schema_violations import list_types
from flows.engine.schemas import DRAFT, check_schema, list_children, refuse_document

MAX_PROPERTIES = 5_000
MAX_NESTING = 10
MAX_ENUM_VALUES = 1_000
MAX_NAME_CHARACTERS = 120_000
LARGE_ENUM, MAX_LARGE_ENUM_CHARACTERS = 250, 15_000

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
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
    "default": "say in the description what to give when nothing is known",
    "minLength": "use “pattern”, or an audit",
    "maxLength": "use “pattern”, or an audit",
    "uniqueItems": "use an audit",
    "patternProperties": "use a list of objects with a key and a value",
    "prefixItems": "use an object with a property for each position",
    "definitions": "write “$defs”",
    "nullable": 'write a type of ["string", "null"]',
}
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")


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
        found = [*_check_root(schema), *_check_nodes(schema), *_check_limits(schema)]
    except RecursionError:
        return [Problem("", "The references of the schema lead to each other too many times.")]
    problems = [Problem(format_pointer(path), message) for path, message in found]
    places = {problem.path for problem in problems}
    # What is no JSON Schema at all is reported once, in our words where we have some.
    return problems + [problem for problem in check_schema(schema) if problem.path not in places]


Found = Iterator[tuple[Path, str]]


def _check_root(schema: dict[str, Any]) -> Found:
    if "anyOf" in schema:
        yield ("anyOf",), "The root can't be a choice; wrap it in an object with one property."
    elif schema.get("type") != "object":
        yield _place_at((), schema, "type"), "The root must have the type “object”."
    if "$ref" in schema:
        yield ("$ref",), "The root can't be a reference; write out what it refers to."


def _walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """A schema and those inside it, in the keywords that strict mode knows."""
    yield path, node
    if isinstance(node, dict):
        for key, child in list_children(node):
            if key[0] in SUPPORTED and key[0] != "additionalProperties":
                yield from _walk(child, (*path, *key))


def _check_nodes(schema: dict[str, Any]) -> Found:
    for path, node in _walk(schema):
        if not isinstance(node, dict):
            yield path, 'A schema must be an object such as {"type": "string"}.'
            continue
        for keyword in node:
            if keyword not in SUPPORTED and (path or keyword != "$schema"):
                hint = _HINTS.get(keyword, "leave it out, or check it with an audit")
                yield (*path, keyword), f"Strict mode doesn't know “{keyword}”; {hint}."
        if "$ref" in node:
            yield from _check_ref(node, path)
        elif "anyOf" not in node:
            yield from _check_type(node, path)


def _check_ref(node: dict[str, Any], path: Path) -> Found:
    ref = node["$ref"]
    if isinstance(ref, str) and ref.startswith("#") and ref != "#" and not ref.startswith("#/$defs/"):
        yield (*path, "$ref"), "Strict mode follows references to “#” and “#/$defs/…” only."
    others = sorted(set(node) & SUPPORTED - {"$ref"})
    if path and others:
        yield path, f"Beside “$ref” nothing else can stand; move “{others[0]}” to what it refers to."


def _check_type(node: dict[str, Any], path: Path) -> Found:
    types = list_types(node)
    if "type" not in node:
        yield path, "A type is missing; strict mode can't take “anything”."
        return
    if not types or not all(name in TYPES for name in types):
        yield (*path, "type"), f"The type must be one of {', '.join(TYPES)}."
        return
    for keyword in node:
        wanted = _KEYWORDS_OF_TYPE.get(keyword)
        if wanted and not wanted.intersection(types):
            yield (*path, keyword), f"“{keyword}” goes with the type {' or '.join(sorted(wanted))} only."
    if "format" in node and node["format"] not in FORMATS:
        yield (*path, "format"), f"Strict mode knows the formats {', '.join(FORMATS)} only."
    if _looks_around(node.get("pattern")):
        yield (*path, "pattern"), "Strict mode takes no look-ahead and no look-behind in a pattern."
    if isinstance(node.get("enum"), list):
        yield from _check_enum(node["enum"], (*path, "enum"))
    if "array" in types and "items" not in node:
        yield path, "A list must say in “items” what its elements are."
    if "object" in types:
        yield from _check_object(node, path)


def _check_enum(values: list[Any], path: Path) -> Found:
    if not values:
        yield path, "List at least one value."
    characters = sum(len(value) for value in values if isinstance(value, str))
    if len(values) > LARGE_ENUM and characters > MAX_LARGE_ENUM_CHARACTERS:
        allowed = f"beyond {LARGE_ENUM} values, {MAX_LARGE_ENUM_CHARACTERS:,} are allowed"
        yield path, f"The {len(values):,} values have {characters:,} characters; {allowed}."


def _check_object(node: dict[str, Any], path: Path) -> Found:
    properties, required = node.get("properties"), node.get("required")
    closing = _place_at(path, node, "additionalProperties")
    if not isinstance(properties, dict):
        yield closing, "An object must list its “properties”; strict mode takes no free keys."
        return
    if node.get("additionalProperties") is not False:
        yield closing, "Every object must have “additionalProperties”: false."
    names = required if isinstance(required, list) else []
    missing = [name for name in properties if name not in names]
    if missing:
        listed = ", ".join(f"“{name}”" for name in missing[:5]) + (" …" if len(missing) > 5 else "")
        message = f"Every property must be in “required”; {listed} is missing. What may be left out is null."
        yield _place_at(path, node, "required"), message
    for index, name in enumerate(names):
        if not isinstance(name, str) or name not in properties:
            yield (*path, "required", index), f"“{name}” is required, but is no property."


def _place_at(path: Path, node: dict[str, Any], keyword: str) -> Path:
    return (*path, keyword) if keyword in node else path


def _looks_around(pattern: Any) -> bool:
    return isinstance(pattern, str) and any(part in pattern for part in _LOOKAROUND)


def _check_limits(schema: dict[str, Any]) -> Found:
    properties, options, texts = 0, 0, 0
    for _, node in _walk(schema):
        if not isinstance(node, dict):
            continue
        children = [key for key, _ in list_children(node)]
        names = [str(name) for keyword, *rest in children for name in rest if keyword in ("properties", "$defs")]
        values = node["enum"] if isinstance(node.get("enum"), list) else []
        properties += sum(keyword == "properties" for keyword, *_ in children)
        options += len(values)
        texts += sum(len(one) for one in [*names, *values, node.get("const")] if isinstance(one, str))
    if properties > MAX_PROPERTIES:
        yield (), f"The schema has {properties:,} properties; {MAX_PROPERTIES:,} are allowed."
    if options > MAX_ENUM_VALUES:
        yield (), f"The schema has {options:,} enum values; {MAX_ENUM_VALUES:,} are allowed."
    if texts > MAX_NAME_CHARACTERS:
        yield (), f"Names and enum values have {texts:,} characters; {MAX_NAME_CHARACTERS:,} are allowed in total."
    too_deep = _find_too_deep(schema, schema, (), 0, frozenset(), {})
    if too_deep is not None:
        yield too_deep, f"Objects are nested deeper than {MAX_NESTING} levels here."


def _find_too_deep(
    node: Any, root: dict[str, Any], path: Path, level: int, refs: frozenset[str], followed: dict[str, int]
) -> Path | None:
    """Where objects first stand more than ``MAX_NESTING`` levels inside each other; recursion counts once.

    ``followed`` holds the level from which on a reference was followed already: between definitions that all refer to
    each other there are too many ways to go each.
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

_MAX_DEPTH = 200

_MAX_NODES = 20_000
"""Schemas within one; once there are more, references are no longer written out. Each could double what is there."""

# Without these the schema would mean something else: they stay, and the check reports them.
_KEPT = SUPPORTED | {"allOf", "prefixItems"}

_TYPE_NAMES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def make_strict(schema: Any, *, optional_becomes_null: bool = True) -> Any:
    """A copy of ``schema`` as near to the strict subset as it can be brought; ``check_strict`` says what is left.

    Objects list their properties, all of them required, and take no others; what could be left out may be null, unless
    ``optional_becomes_null`` is false. ``oneOf`` becomes ``anyOf``, a single ``allOf`` is merged, a ``$ref`` with
    keywords beside it is written out, and keywords that only restrict are dropped. Doing it twice changes nothing more.
    """
    if not isinstance(schema, dict):
        return schema
    root = _rename_definitions(schema)
    if isinstance(root.get("definitions"), dict):
        definitions, present = root.pop("definitions"), root.get("$defs", {})
        root["$defs"] = {**definitions, **present} if isinstance(present, dict) else definitions
    return _Maker(root, optional_becomes_null).make_root()


def _rename_definitions(value: Any, depth: int = 0) -> Any:
    """A copy whose references lead to ``$defs``: ``definitions`` is of older drafts."""
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_rename_definitions(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: _rename_definitions(item, depth + 1) for key, item in value.items()}
    if isinstance(renamed.get("$ref"), str):
        renamed["$ref"] = renamed["$ref"].replace("#/definitions/", "#/$defs/", 1)
    return renamed


class _Maker:
    def __init__(self, root: dict[str, Any], optional_becomes_null: bool) -> None:
        self._root = root
        self._optional_becomes_null = optional_becomes_null
        self._count = 0

    def make_root(self) -> dict[str, Any]:
        root = self._root
        ref = root.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/$defs/") and isinstance(target := follow_ref(root, ref), dict):
            root = {**target, **{key: value for key, value in root.items() if key != "$ref"}}
        made: dict[str, Any] = self._make(root, frozenset(), 0)
        return {"$schema": DRAFT, **made} if root.get("$schema") == DRAFT else made

    def _make(self, node: Any, inlined: frozenset[str], depth: int) -> Any:
        if not isinstance(node, dict) or depth > _MAX_DEPTH:
            return node
        self._count += 1
        while _is_single(node.get("allOf")):
            (part,) = node["allOf"]
            node = {**part, **{key: value for key, value in node.items() if key != "allOf"}}
        if isinstance(node.get("$ref"), str):
            return self._make_ref(node, inlined, depth)
        if "oneOf" in node and "anyOf" not in node:
            node = {"anyOf" if key == "oneOf" else key: value for key, value in node.items()}
        made = {key: value for key, value in node.items() if key in _KEPT}
        for keyword in ("properties", "$defs"):
            if isinstance(made.get(keyword), dict):
                made[keyword] = {name: self._make(part, inlined, depth + 1) for name, part in made[keyword].items()}
        if isinstance(made.get("anyOf"), list):
            made["anyOf"] = [self._make(part, inlined, depth + 1) for part in made["anyOf"]]
            return made
        if "items" in made:
            made["items"] = self._make(made["items"], inlined, depth + 1)
        _fit_type(made, is_nullable=node.get("nullable") is True)
        self._close(made, node.get("required"))
        return made

    def _make_ref(self, node: dict[str, Any], inlined: frozenset[str], depth: int) -> dict[str, Any]:
        """A reference alone, or what it refers to with the keywords that stood beside it."""
        ref = node["$ref"]
        siblings = {key: value for key, value in node.items() if key in SUPPORTED and key != "$ref"}
        target = follow_ref(self._root, ref)
        # What refers to itself is written out once; the words beside the inner references are dropped.
        if not siblings or not isinstance(target, dict) or ref in inlined or self._count > _MAX_NODES:
            return {"$ref": ref}
        written_out = {key: value for key, value in target.items() if key != "$defs"}
        made: dict[str, Any] = self._make({**written_out, **siblings}, inlined | {ref}, depth + 1)
        return made

    def _close(self, made: dict[str, Any], required: Any) -> None:
        properties = made.get("properties")
        if not isinstance(properties, dict) or "type" not in made:
            return
        names = required if isinstance(required, list) else []
        for name, part in properties.items():
            if self._optional_becomes_null and name not in names:
                properties[name] = allow_null(part)
        made["required"] = list(properties)
        made["additionalProperties"] = False


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
    values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else []
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
