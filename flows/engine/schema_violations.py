"""Violations of a schema as sentences that both people and the model that tries again understand.

``jsonschema_rs`` decides quickly whether a value fits, but lists errors eagerly: for a union it explains every branch,
each with the unions inside it, which grows exponentially with the depth. Here the schema is walked keyword by keyword,
a schema with references is judged once for each value, and of a union only the closest branch is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

import jsonschema_rs

from flows.engine.errors import Problem
from flows.engine.json_values import Path, describe_type, dump_json, follow_ref, format_pointer, shorten

_MAX_OPTIONS = 10
"""Values of an ``enum`` that a sentence lists."""

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

_ASSERTIONS = ("type", "const", "enum", "required", "dependentRequired", "uniqueItems", *_LIMITS)
"""The keywords that hold no schemas: the library checks them, at no more cost than that of the value itself."""


def find_violations(schema: Any, value: Any) -> Iterator[Problem]:
    """Find what is wrong with ``value``, place by place. The schema has only references within itself.

    A missing property is reported at the object that should have it, an unexpected one at itself.
    """
    walk = _Walk(schema)
    seen: set[tuple[int, Path]] = set()
    open_parts: list[Iterator[tuple[Any, Any, Path]]] = [iter([(schema, value, ())])]
    while open_parts:
        part = next(open_parts[-1], None)
        if part is None:
            open_parts.pop()
            continue
        schema, value, path = part
        if (id(schema), path) not in seen and not walk.fits(schema, value):
            seen.add((id(schema), path))
            yield from walk.describe(schema, value, path)
            open_parts.append(walk.list_parts(schema, value, path))


def fits_schema(schema: Any, value: Any) -> bool:
    """Whether a value fits a schema, in time proportional to both, however often the schema refers to itself."""
    return _Walk(schema).fits(schema, value)


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


@lru_cache(maxsize=4096)
def _compile(text: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(text, offline=True, validate_formats=True)


class _Walk:
    """Walks one schema over one value."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._plain: dict[int, jsonschema_rs.Validator | None] = {}
        self._verdicts: dict[tuple[int, int], bool] = {}

    def fits(self, schema: Any, value: Any) -> bool:
        """Whether a value fits: by the library where a schema has no references, else judged once for each value."""
        if not isinstance(schema, dict):
            return schema is not False
        if id(schema) not in self._plain:
            text = dump_json(schema)
            self._plain[id(schema)] = None if '"$ref"' in text else _compile(text)
        validator = self._plain[id(schema)]
        if validator is not None:
            return validator.is_valid(value)
        key = (id(schema), id(value))
        if key not in self._verdicts:
            # A reference that leads back to itself demands nothing more.
            self._verdicts[key] = True
            self._verdicts[key] = self._judge(schema, value)
        return self._verdicts[key]

    def _judge(self, schema: dict[str, Any], value: Any) -> bool:
        if any(self._list_broken(schema, value)):
            return False
        for part, item, _ in self._list_necessary(schema, value, ()):  # noqa: SIM110  # a generator recurses deeper
            if not self.fits(part, item):
                return False
        return True

    def describe(self, schema: Any, value: Any, path: Path) -> Iterator[Problem]:
        """Describe what a schema itself demands of a value, and not the schemas inside it."""
        place, pointer = format_place(path), format_pointer(path)
        if schema is False:
            yield Problem(pointer, f"{place} is not expected; leave it out.")
            return
        for keyword in self._list_broken(schema, value):
            rule = schema[keyword]
            if keyword == "required":
                for name in rule:
                    if name not in value:
                        yield Problem(pointer, f"{format_place([*path, name])} is missing.")
            elif keyword not in ("anyOf", "oneOf"):
                yield Problem(pointer, f"{place} {_describe_rule(keyword, rule, value)}.")
            elif any(map(self.fits, rule, repeat(value))):
                yield Problem(pointer, f"{place} fits more than one of the {len(rule)} forms; it must fit one.")
            elif self._find_closest(rule, value) is None:
                yield Problem(pointer, f"{place} {self._describe_forms(rule, value)}, got {_show_with_type(value)}.")

    def list_parts(self, schema: Any, value: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:
        """List what else has to fit, with the values and their paths: of a union, the branch that comes closest."""
        if not isinstance(schema, dict):
            return
        yield from self._list_necessary(schema, value, path)
        for keyword in self._list_broken(schema, value):
            if keyword in ("anyOf", "oneOf"):
                closest = self._find_closest(schema[keyword], value)
                if closest is not None:
                    yield closest, value, path

    def _list_necessary(self, schema: dict[str, Any], value: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:
        if "$ref" in schema:
            yield follow_ref(self._root, schema["$ref"]), value, path
        for part in schema.get("allOf", ()):
            yield part, value, path
        if "if" in schema:
            yield schema.get("then" if self.fits(schema["if"], value) else "else", True), value, path
        if isinstance(value, dict):
            for name, part in schema.get("dependentSchemas", {}).items():
                if name in value:
                    yield part, value, path
            properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
            for name, item in value.items():
                parts = [properties[name]] if name in properties else []
                parts += [part for pattern, part in patterns.items() if _holds({"pattern": pattern}, name)]
                for part in parts or [schema.get("additionalProperties", True)]:
                    yield part, item, (*path, name)
        elif isinstance(value, list):
            prefix, others = schema.get("prefixItems", ()), schema.get("items", True)
            for index, item in enumerate(value):
                yield prefix[index] if index < len(prefix) else others, item, (*path, index)

    def _list_broken(self, schema: dict[str, Any], value: Any) -> Iterator[str]:
        """The keywords that a value breaks, of those that hold no schemas or ask for some of theirs."""
        for keyword in _ASSERTIONS:
            if keyword in schema and not _holds({keyword: schema[keyword]}, value):
                yield keyword
        if "anyOf" in schema and not any(map(self.fits, schema["anyOf"], repeat(value))):
            yield "anyOf"
        if "oneOf" in schema and sum(map(self.fits, schema["oneOf"], repeat(value))) != 1:
            yield "oneOf"
        if "not" in schema and self.fits(schema["not"], value):
            yield "not"
        if "contains" in schema and isinstance(value, list):
            count = sum(map(self.fits, repeat(schema["contains"]), value))
            if not schema.get("minContains", 1) <= count <= schema.get("maxContains", len(value)):
                yield "contains"
        names = value if isinstance(value, dict) else ()
        if not all(map(self.fits, repeat(schema.get("propertyNames", True)), names)):
            yield "propertyNames"

    def _find_closest(self, branches: Sequence[Any], value: Any) -> Any:
        """The branch that was meant: the only one of the right type, or with the constants that tell branches apart."""
        fitting = [branch for branch in branches if self._has_kind(branch, value)]
        if len(fitting) > 1:
            fitting = [branch for branch in fitting if self._has_constants(branch, value)] or fitting
        return fitting[0] if len(fitting) == 1 else None

    def _has_kind(self, branch: Any, value: Any) -> bool:
        return branch is not False and _holds(_select(self._resolve(branch), "type", "const"), value)

    def _has_constants(self, branch: Any, value: Any) -> bool:
        properties = self._resolve(branch).get("properties", {}) if isinstance(value, dict) else {}
        parts = [(branch, value), *((part, value[name]) for name, part in properties.items() if name in value)]
        return all(_holds(_select(self._resolve(part), "const", "enum"), item) for part, item in parts)

    def _resolve(self, branch: Any) -> dict[str, Any]:
        return resolve_refs(branch, self._root)

    def _describe_forms(self, branches: Sequence[Any], value: Any) -> str:
        types: set[str] = set()
        if not any(map(self._has_kind, branches, repeat(value))):
            types = {name for branch in branches for name in list_types(self._resolve(branch))}
        return f"must be {_join_types(types)}" if types else f"fits none of the {len(branches)} forms it may have"


def resolve_refs(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """A schema with its reference followed, also where it leads to others; an empty one for what is no object."""
    for _ in range(10):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        schema = follow_ref(root, schema["$ref"])
    return schema if isinstance(schema, dict) else {}


def list_types(schema: dict[str, Any]) -> list[str]:
    """The types that a schema names, none if it names none."""
    declared = schema.get("type", [])
    return declared if isinstance(declared, list) else [declared]


def _select(schema: dict[str, Any], *keywords: str) -> dict[str, Any]:
    return {keyword: schema[keyword] for keyword in keywords if keyword in schema}


def _holds(rules: dict[str, Any], value: Any) -> bool:
    """Whether a value has what rules demand that hold no schemas."""
    return _compile(dump_json(rules)).is_valid(value)


def _describe_rule(keyword: str, rule: Any, value: Any) -> str:
    got = format_value(value)
    if keyword == "type":
        return f"must be {_join_types(list_types({'type': rule}))}, got {_show_with_type(value)}"
    if keyword == "enum":
        listed = ", ".join(format_value(option) for option in rule[:_MAX_OPTIONS])
        return f"must be one of {listed}{' …' if len(rule) > _MAX_OPTIONS else ''}, got {got}"
    if keyword == "const":
        return f"must be {format_value(rule)}, got {got}"
    if keyword == "uniqueItems":
        return "must not hold the same element twice"
    if keyword not in _LIMITS:
        return f"breaks the rule “{keyword}” of the schema, got {_show_with_type(value)}"
    if keyword.endswith(("Items", "Length", "Properties")):
        got = f"{len(value):,}"
    return f"{_LIMITS[keyword].format(f'“{rule}”' if keyword == 'pattern' else rule)}, got {got}"


def _join_types(names: Sequence[str] | set[str]) -> str:
    return " or ".join(_TYPE_WORDS.get(name, name) for name in sorted(names))


def _show_with_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return format_value(value)
    shown, kind = format_value(value), describe_type(value)
    if isinstance(value, str):
        return f"the text {shown}"
    return shown if shown.startswith(kind) else f"{kind}: {shown}"
