"""Violations of a schema as sentences that both people and the model that tries again understand.

``jsonschema_rs`` decides quickly whether a value fits, but lists errors eagerly: for a union it explains every branch,
each with the unions inside it, which grows exponentially with the depth. Here the schema is walked keyword by keyword,
a pair of a referenced schema and a value is judged once, and of a union only the closest branch is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias

import jsonschema_rs

from flows.engine.errors import Problem
from flows.engine.json_value import describe_type, dump_json, format_pointer
from flows.engine.schema_check import follow_ref

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

_ASSERTIONS = ("type", "const", "enum", "required", "dependentRequired", "uniqueItems", *_LIMITS)
"""The keywords that hold no schemas: the library checks them, at no more cost than that of the value itself."""

_ANYTHING: dict[str, Any] = {}

Path: TypeAlias = tuple[str | int, ...]


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


class _Walk:
    """Walks one schema over one value."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._targets: dict[str, Any] = {}
        self._validators: dict[tuple[int, tuple[str, ...]], jsonschema_rs.Validator] = {}
        self._plain: dict[int, jsonschema_rs.Validator | None] = {}
        self._verdicts: dict[tuple[str, int], bool] = {}

    def fits(self, schema: Any, value: Any) -> bool:
        """Whether a value fits, judged once for each schema that references lead to: others are met once anyway."""
        if not isinstance(schema, dict):
            return schema is not False
        validator = self._compile_plain(schema)
        if validator is not None:
            return validator.is_valid(value)
        if not self._holds(schema, value, _ASSERTIONS):
            return False
        if "$ref" in schema:
            key = (schema["$ref"], id(value))
            if key not in self._verdicts:
                # A reference that leads back to itself demands nothing more.
                self._verdicts[key] = True
                self._verdicts[key] = self.fits(self._follow(schema["$ref"]), value)
            if not self._verdicts[key]:
                return False
        for part, item, _ in self._iter_parts(schema, value, ()):
            if not self.fits(part, item):
                return False
        return not any(self._break_choices(schema, value))

    def describe(self, schema: Any, value: Any, path: Path) -> Iterator[Problem]:
        """Describe what a schema itself demands of a value, and not the schemas inside it."""
        if schema is False:
            yield Problem(format_pointer(path), f"{name_place(path)} is not expected; leave it out.")
            return
        for keyword in _ASSERTIONS:
            if keyword in schema and not self._holds(schema, value, (keyword,)):
                yield from _describe_assertion(keyword, schema[keyword], value, path)
        for keyword in self._break_choices(schema, value):
            if keyword not in ("anyOf", "oneOf"):
                message = f"{name_place(path)} breaks the rule “{keyword}” of the schema, got {_show_with_type(value)}."
                yield Problem(format_pointer(path), message)
            elif any(map(self.fits, schema[keyword], repeat(value))):
                message = f"{name_place(path)} fits more than one of the {len(schema[keyword])} forms; it must fit one."
                yield Problem(format_pointer(path), message)
            elif self._find_closest(schema[keyword], value) is None:
                yield self._describe_choice(schema[keyword], value, path)

    def list_parts(self, schema: Any, value: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:
        """List what else has to fit, with the values and their paths: of a union, the branch that comes closest."""
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            yield self._follow(schema["$ref"]), value, path
        yield from self._iter_parts(schema, value, path)
        for keyword in self._break_choices(schema, value):
            if keyword in ("anyOf", "oneOf"):
                closest = self._find_closest(schema[keyword], value)
                if closest is not None:
                    yield closest, value, path

    def _compile_plain(self, schema: dict[str, Any]) -> jsonschema_rs.Validator | None:
        """The library's validator of a schema without references, None for one that has some."""
        if id(schema) not in self._plain:
            self._plain[id(schema)] = None if '"$ref"' in dump_json(schema) else _compile(schema)
        return self._plain[id(schema)]

    def _follow(self, ref: str) -> Any:
        if ref not in self._targets:
            self._targets[ref] = follow_ref(self._root, ref)
        return self._targets[ref]

    def _holds(self, schema: dict[str, Any], value: Any, keywords: tuple[str, ...]) -> bool:
        """Whether a value has what some keywords of a schema demand, none of which hold schemas."""
        key = (id(schema), keywords)
        validator = self._validators.get(key)
        if validator is None:
            rules = {keyword: schema[keyword] for keyword in keywords if keyword in schema}
            validator = self._validators[key] = _compile(rules)
        return validator.is_valid(value)

    def _iter_parts(self, schema: dict[str, Any], value: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:
        for part in schema.get("allOf", ()):
            yield part, value, path
        if "if" in schema:
            yield schema.get("then" if self.fits(schema["if"], value) else "else", True), value, path
        if isinstance(value, dict):
            for name, part in schema.get("dependentSchemas", {}).items():
                if name in value:
                    yield part, value, path
            properties = schema.get("properties", {})
            patterns = [(_compile_pattern(key), part) for key, part in schema.get("patternProperties", {}).items()]
            for name, item in value.items():
                parts = [properties[name]] if name in properties else []
                parts += [part for pattern, part in patterns if pattern.is_valid(name)]
                for part in parts or [schema.get("additionalProperties", True)]:
                    yield part, item, (*path, name)
        elif isinstance(value, list):
            prefix, others = schema.get("prefixItems", ()), schema.get("items", True)
            for index, item in enumerate(value):
                yield prefix[index] if index < len(prefix) else others, item, (*path, index)

    def _break_choices(self, schema: dict[str, Any], value: Any) -> Iterator[str]:
        """The keywords that ask for some of their schemas, and which the value breaks."""
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

    def _resolve(self, branch: Any) -> dict[str, Any]:
        """A schema with its reference followed, also where it leads to others."""
        for _ in range(10):
            if not isinstance(branch, dict) or "$ref" not in branch:
                break
            branch = self._follow(branch["$ref"])
        return branch if isinstance(branch, dict) else _ANYTHING

    def _has_kind(self, branch: Any, value: Any) -> bool:
        return branch is not False and self._holds(self._resolve(branch), value, ("type", "const"))

    def _has_constants(self, branch: Any, value: Any) -> bool:
        schema = self._resolve(branch)
        properties = schema.get("properties", {}) if isinstance(value, dict) else {}
        parts = [(self._resolve(part), value[name]) for name, part in properties.items() if name in value]
        return all(self._holds(part, item, ("const", "enum")) for part, item in [(schema, value), *parts])

    def _describe_choice(self, branches: Sequence[Any], value: Any, path: Path) -> Problem:
        types: set[str] = set()
        if not any(map(self._has_kind, branches, repeat(value))):
            types = {name for branch in branches for name in _list_types(self._resolve(branch).get("type"))}
        words = " or ".join(sorted(_TYPE_WORDS.get(name, name) for name in types))
        must = f"must be {words}" if words else f"fits none of the {len(branches)} forms it may have"
        return Problem(format_pointer(path), f"{name_place(path)} {must}, got {_show_with_type(value)}.")


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(schema, offline=True, validate_formats=True)


@lru_cache(maxsize=512)
def _compile_pattern(pattern: str) -> jsonschema_rs.Validator:
    return _compile({"pattern": pattern})


def _list_types(declared: Any) -> list[str]:
    return declared if isinstance(declared, list) else [declared] if declared else []


def _describe_assertion(keyword: str, rule: Any, value: Any, path: Path) -> Iterator[Problem]:
    place, pointer = name_place(path), format_pointer(path)
    match keyword:
        case "required":
            for name in rule:
                if name not in value:
                    yield Problem(pointer, f"{name_place([*path, name])} is missing.")
        case "type":
            words = " or ".join(_TYPE_WORDS[name] for name in sorted(_list_types(rule)))
            yield Problem(pointer, f"{place} must be {words}, got {_show_with_type(value)}.")
        case "enum":
            listed = ", ".join(show_value(option) for option in rule[:_MOST_NAMES])
            more = " …" if len(rule) > _MOST_NAMES else ""
            yield Problem(pointer, f"{place} must be one of {listed}{more}, got {show_value(value)}.")
        case "const":
            yield Problem(pointer, f"{place} must be {show_value(rule)}, got {show_value(value)}.")
        case "uniqueItems":
            yield Problem(pointer, f"{place} must not hold the same element twice.")
        case "dependentRequired":
            yield Problem(pointer, f"{place} breaks the rule “{keyword}” of the schema, got {_show_with_type(value)}.")
        case _:
            shown = f"“{rule}”" if keyword == "pattern" else str(rule)
            got = f"{len(value):,}" if keyword.endswith(("Items", "Length", "Properties")) else show_value(value)
            yield Problem(pointer, f"{place} {_LIMITS[keyword].format(shown)}, got {got}.")


def _show_with_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return describe_type(value) if value is None else show_value(value)
    shown, kind = show_value(value), describe_type(value)
    return (
        shown if shown.startswith(kind) else f"{kind}: {shown}" if not isinstance(value, str) else f"the text {shown}"
    )
