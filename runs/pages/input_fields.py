"""Which fields an input schema asks for.

What fields can't express is left to a JSON field, or to the JSON view of the whole input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.json_values import dump_json, format_pointer

MAX_DEPTH = 3
"""Objects nested deeper than this become a JSON field."""
MAX_FIELDS = 100
"""A schema with more fields than this gets no form, only the JSON view."""
LONG_TEXT = 200
"""Characters; a text that may be longer gets a field that grows."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of an enum; ``text`` is the value as JSON."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class InputField:
    """One field.

    ``kind`` says what it takes: ``text``, ``long`` (text), ``number``, ``choice``, ``check``, ``lines`` (an array of
    simple values, one a line), ``json``, or ``group`` with ``children``. ``scalar`` is the JSON type of what a number
    field or each line holds.
    """

    pointer: str
    key: str
    kind: str
    label: str
    help: str
    is_required: bool
    is_nullable: bool
    scalar: str = ""
    choices: tuple[Choice, ...] = ()
    children: tuple[InputField, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the form: no clash with other names, whatever the keys are."""
        return f"input{self.pointer}"


def build_fields(schema: Mapping[str, Any] | None) -> tuple[InputField, ...]:
    """The fields of an input schema; none if it describes no object with known properties, or too many."""
    if schema is None:
        return ()
    builder = _Builder(schema)
    resolved, _ = builder.resolve(schema)
    fields = builder.build_properties(resolved, (), depth=0)
    return fields if 0 < sum(1 for _ in walk_fields(fields)) <= MAX_FIELDS else ()


def walk_fields(fields: Iterable[InputField]) -> Iterator[InputField]:
    """All fields, groups before what is in them."""
    for field in fields:
        yield field
        yield from walk_fields(field.children)


def default_input(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the schema gives as defaults, for the whole input or property by property."""
    if schema is None:
        return {}
    if isinstance(schema.get("default"), dict):
        return dict(schema["default"])
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {key: part["default"] for key, part in properties.items() if isinstance(part, dict) and "default" in part}


def example_input(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The first of the schema's examples, if it has any."""
    examples = (schema or {}).get("examples")
    if isinstance(examples, list) and examples and isinstance(examples[0], dict):
        return dict(examples[0])
    return None


class _Builder:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root

    def resolve(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """The schema behind local references and ``anyOf: [..., null]``, and whether null is allowed."""
        nullable = False
        for _ in range(8):
            if isinstance(schema.get("$ref"), str):
                target = self._follow(schema["$ref"])
                schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
                continue
            options = schema.get("anyOf")
            if isinstance(options, list) and len(options) == 2 and {"type": "null"} in options:
                other: Mapping[str, Any] = next((option for option in options if option != {"type": "null"}), {})
                nullable = True
                schema = {**other, **{key: value for key, value in schema.items() if key != "anyOf"}}
                continue
            break
        kind = schema.get("type")
        if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
            nullable = True
            schema = {**schema, "type": next(name for name in kind if name != "null")}
        return schema, nullable

    def _follow(self, reference: str) -> Mapping[str, Any]:
        target: Any = self.root
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = target.get(part) if isinstance(target, Mapping) else None
        return target if isinstance(target, Mapping) else {}

    def build_properties(self, schema: Mapping[str, Any], path: tuple[str, ...], depth: int) -> tuple[InputField, ...]:
        properties = schema.get("properties")
        if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
            return ()
        required = schema.get("required", ())
        return tuple(
            self.build_field((*path, key), part if isinstance(part, Mapping) else {}, key in required, depth)
            for key, part in properties.items()
        )

    def build_field(
        self, path: tuple[str, ...], schema: Mapping[str, Any], is_required: bool, depth: int
    ) -> InputField:
        schema, is_nullable = self.resolve(schema)
        key = path[-1]
        title = schema.get("title")
        kind, scalar = self._choose_kind(schema, is_required and not is_nullable)
        children: tuple[InputField, ...] = ()
        if kind == "group":
            # Only an object that must be there is a group: whether an optional one is meant can't be seen from fields.
            children = self.build_properties(schema, path, depth + 1) if depth < MAX_DEPTH else ()
            if not children or is_nullable:
                kind, children = "json", ()
        return InputField(
            pointer=format_pointer(path),
            key=key,
            kind=kind,
            label=title
            if isinstance(title, str) and title
            else key.replace("_", " ").strip().capitalize() or "(no name)",
            help=_describe(schema, kind),
            is_required=is_required,
            is_nullable=is_nullable,
            scalar=scalar,
            choices=_build_choices(schema) if kind == "choice" else (),
            children=children,
        )

    def _choose_kind(self, schema: Mapping[str, Any], is_certain: bool) -> tuple[str, str]:
        kind = schema.get("type")
        if isinstance(schema.get("enum"), list) or "const" in schema:
            return "choice", ""
        if kind == "boolean":
            # A box is either ticked or not; a value that may be missing needs a third state.
            return ("check" if is_certain else "choice"), "boolean"
        if kind in ("integer", "number"):
            return "number", str(kind)
        if kind == "string":
            longest = schema.get("maxLength")
            short = isinstance(longest, int) and longest <= LONG_TEXT
            return ("text" if short or "format" in schema or "pattern" in schema else "long"), "string"
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            items, nullable = self.resolve(schema["items"])
            if not nullable and items.get("type") in ("string", "integer", "number"):
                return "lines", str(items["type"])
        if kind == "object" and schema.get("properties"):
            return "group", ""
        return "json", ""


def _build_choices(schema: Mapping[str, Any]) -> tuple[Choice, ...]:
    if "const" in schema:
        values = [schema["const"]]
    else:
        values = schema.get("enum", [True, False])
    words = {"true": "Yes", "false": "No", "null": "None"}
    texts = [(dump_json(value), value) for value in values]
    return tuple(Choice(text, value if isinstance(value, str) else words.get(text, text)) for text, value in texts)


def _describe(schema: Mapping[str, Any], kind: str) -> str:
    """The schema's description and what it says about size, as sentences."""
    description = schema.get("description")
    sentences = [description.strip()] if isinstance(description, str) and description.strip() else []
    if kind == "lines":
        bounds = _describe_bounds(schema.get("minItems"), schema.get("maxItems"), " lines")
        sentences.append(f"One per line, {bounds}." if bounds else "One per line.")
    elif kind == "number":
        bounds = _describe_bounds(schema.get("minimum"), schema.get("maximum"), "")
        sentences += [f"{bounds.capitalize()}."] if bounds else []
    elif kind in ("text", "long") and isinstance(schema.get("maxLength"), int):
        sentences.append(f"At most {schema['maxLength']} characters.")
    elif kind == "json":
        sentences.append("As JSON.")
    return " ".join(sentence if sentence.endswith((".", "!", "?")) else f"{sentence}." for sentence in sentences)


def _describe_bounds(least: Any, most: Any, unit: str) -> str:
    if least is not None and most is not None:
        return f"{least}{unit}" if least == most else f"{least} to {most}{unit}"
    if least is not None:
        return f"at least {least}{unit}"
    return f"at most {most}{unit}" if most is not None else ""
