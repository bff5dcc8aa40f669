"""The form that an input schema asks for: its fields, and an input as the texts that stand in them.

The schema itself is checked when the run is submitted: here only what can't be parsed at all (a word where a number
should be) is a problem. What fields can't express is left to a JSON field, or to the JSON view of the whole input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flows.engine.errors import Problem
from flows.engine.json_values import dump_json, format_pointer, parse_json

MAX_DEPTH = 3
"""Objects nested deeper than this become a JSON field."""
MAX_FIELDS = 100
"""A schema with more fields than this gets no form, only the JSON view."""
LONG_TEXT = 200
"""Characters; a text that may be longer gets a field that grows."""
REQUIRED = "This field is required."

Texts = Mapping[str, str]
"""What stands in the fields, by their names, as a browser sends it."""


class FormProblem(NamedTuple):
    """An entry of the summary above a form. ``field_id`` is empty where no field is to blame."""

    field_id: str
    label: str
    message: str


@dataclass(frozen=True, slots=True)
class InputField:
    """One field.

    ``kind`` says what it takes: ``text``, ``long`` (text), ``number``, ``choice``, ``check``, ``lines`` (an array of
    simple values, one a line), ``json``, or ``group`` with ``children``. ``scalar`` is the JSON type of what a number
    field or each line holds; ``choices`` are pairs of a value as JSON and its label.
    """

    pointer: str
    key: str
    kind: str
    label: str
    help: str
    is_required: bool
    is_nullable: bool
    scalar: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    children: tuple[InputField, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the form: no clash with other names, whatever the keys are."""
        return f"input{self.pointer}"

    @property
    def may_be_left_out(self) -> bool:
        """Whether an empty field is no mistake."""
        return not self.is_required or self.is_nullable


def build_fields(schema: Mapping[str, Any] | None) -> tuple[InputField, ...]:
    """The fields of an input schema; none if it describes no object with known properties, or too many."""
    if schema is None:
        return ()
    fields = _build_properties(schema, _resolve(schema, schema)[0], (), 0)
    return fields if 0 < sum(1 for _ in walk_fields(fields)) <= MAX_FIELDS else ()


def walk_fields(fields: Iterable[InputField]) -> Iterator[InputField]:
    """All fields, groups before what is in them."""
    for field in fields:
        yield field
        yield from walk_fields(field.children)


def default_input(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the schema gives as defaults, for the whole input or property by property."""
    schema = schema or {}
    if isinstance(schema.get("default"), dict):
        return dict(schema["default"])
    properties = schema.get("properties")
    parts = properties.items() if isinstance(properties, dict) else ()
    return {key: part["default"] for key, part in parts if isinstance(part, dict) and "default" in part}


def example_input(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The first of the schema's examples, if it has any."""
    examples = (schema or {}).get("examples")
    is_given = isinstance(examples, list) and examples and isinstance(examples[0], dict)
    return dict(examples[0]) if is_given else None  # type: ignore[index]  # a list, see above


def _resolve(root: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The schema behind local references and ``anyOf: [..., null]``, and whether null is allowed."""
    is_nullable = False
    for _ in range(8):
        options = schema.get("anyOf")
        if isinstance(schema.get("$ref"), str):
            target, hidden = _follow(root, schema["$ref"]), "$ref"
        elif isinstance(options, list) and len(options) == 2 and {"type": "null"} in options:
            target, hidden = next((option for option in options if option != {"type": "null"}), {}), "anyOf"
            is_nullable = True
        else:
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != hidden}}
    kind = schema.get("type")
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        return {**schema, "type": next(name for name in kind if name != "null")}, True
    return schema, is_nullable


def _follow(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    target: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        target = target.get(part) if isinstance(target, Mapping) else None
    return target if isinstance(target, Mapping) else {}


def _build_properties(
    root: Mapping[str, Any], schema: Mapping[str, Any], path: tuple[str, ...], depth: int
) -> tuple[InputField, ...]:
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        return ()
    required = schema.get("required", ())
    return tuple(
        _build_field(root, part if isinstance(part, Mapping) else {}, (*path, key), key in required, depth)
        for key, part in properties.items()
    )


def _build_field(
    root: Mapping[str, Any], schema: Mapping[str, Any], path: tuple[str, ...], is_required: bool, depth: int
) -> InputField:
    schema, is_nullable = _resolve(root, schema)
    kind, scalar = _choose_kind(root, schema, is_required and not is_nullable)
    children: tuple[InputField, ...] = ()
    if kind == "group":
        # Only an object that must be there is a group: fields can't show whether an optional one is wanted.
        if depth < MAX_DEPTH and not is_nullable:
            children = _build_properties(root, schema, path, depth + 1)
        kind = "group" if children else "json"
    title = schema.get("title")
    label = title if isinstance(title, str) and title else path[-1].replace("_", " ").strip().capitalize()
    return InputField(
        pointer=format_pointer(path),
        key=path[-1],
        kind=kind,
        label=label or "(no name)",
        help=_describe(schema, kind),
        is_required=is_required,
        is_nullable=is_nullable,
        scalar=scalar,
        choices=_list_choices(schema) if kind == "choice" else (),
        children=children,
    )


def _choose_kind(root: Mapping[str, Any], schema: Mapping[str, Any], is_certain: bool) -> tuple[str, str]:
    """The kind and the scalar of a field."""
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
        is_short = isinstance(longest, int) and longest <= LONG_TEXT
        return ("text" if is_short or "format" in schema or "pattern" in schema else "long"), "string"
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        items, is_nullable = _resolve(root, schema["items"])
        if not is_nullable and items.get("type") in ("string", "integer", "number"):
            return "lines", str(items["type"])
    return ("group" if kind == "object" and schema.get("properties") else "json"), ""


def _list_choices(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    values = [schema["const"]] if "const" in schema else schema.get("enum", [True, False])
    words = {"true": "Yes", "false": "No", "null": "None"}
    texts = [(dump_json(value), value) for value in values]
    return tuple((text, value if isinstance(value, str) else words.get(text, text)) for text, value in texts)


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


def format_texts(fields: Sequence[InputField], value: Any) -> dict[str, str]:
    """What stands in the fields for ``value``. Parts that no field can hold are left out: see ``can_show``."""
    texts: dict[str, str] = {}
    for field in fields if isinstance(value, dict) else ():
        if field.key not in value:
            continue
        item = value[field.key]
        if field.kind == "group":
            texts |= format_texts(field.children, item)
        elif field.kind == "check":
            texts |= {field.name: "on"} if item is True else {}
        elif field.kind == "choice":
            texts[field.name] = dump_json(item)
        elif item is None and field.is_nullable:
            texts[field.name] = ""
        elif field.kind == "lines" and isinstance(item, list):
            texts[field.name] = "\n".join(map(_format_scalar, item))
        elif field.kind == "json":
            texts[field.name] = dump_json(item, indent=2)
        elif not (field.kind == "text" and isinstance(item, str) and "\n" in item):
            # A field of one line would drop line breaks silently.
            texts[field.name] = _format_scalar(item)
    return texts


def _format_scalar(value: Any) -> str:
    return value if isinstance(value, str) else dump_json(value)


def can_show(fields: Sequence[InputField], value: Any) -> bool:
    """Whether the fields hold ``value`` exactly: parsing their texts gives the same."""
    again, problems = parse_texts(fields, format_texts(fields, value))
    try:
        is_same = _canonical(again) == _canonical(value)
    except UnicodeEncodeError:
        # Half a character, escaped in JSON, fits into no field.
        return False
    return bool(fields) and not problems and is_same


def _canonical(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode()


def parse_texts(fields: Sequence[InputField], texts: Texts) -> tuple[dict[str, Any], list[Problem]]:
    """The value that stands in the fields, and what can't be parsed of it.

    What can't be parsed stands in the value as the text that was typed, so that nothing is lost in the JSON view.
    """
    value: dict[str, Any] = {}
    problems: list[Problem] = []
    for field in fields:
        text = texts.get(field.name, "").replace("\r\n", "\n")
        inner: list[Problem] = []
        if field.kind == "group":
            item, inner = parse_texts(field.children, texts)
            if item or field.is_required:
                value[field.key] = item
        elif field.kind == "check":
            value[field.key] = field.name in texts
        elif text.strip() or (text and field.scalar == "string" and field.kind != "lines"):
            value[field.key], inner = _parse_field(field, text)
        elif field.is_required and field.is_nullable:
            value[field.key] = None
        elif field.is_required and field.kind in ("text", "long", "lines"):
            # An empty text fits the schema: see ``find_missing_texts``.
            value[field.key] = [] if field.kind == "lines" else ""
        elif field.is_required:
            inner = [Problem(field.pointer, REQUIRED)]
        problems += inner
    return value, problems


def find_missing_texts(fields: Sequence[InputField], texts: Texts) -> list[Problem]:
    """A problem for each text that must be given and was left empty: in a form that is a mistake."""
    return [
        Problem(field.pointer, REQUIRED)
        for field in walk_fields(fields)
        if field.kind in ("text", "long") and not field.may_be_left_out and not texts.get(field.name, "").strip()
    ]


def _parse_field(field: InputField, text: str) -> tuple[Any, list[Problem]]:
    if field.kind == "lines":
        found = [_parse_scalar(field.scalar, line) for line in text.split("\n") if line.strip()]
        problems = [
            Problem(f"{field.pointer}/{index}", f"Line {index + 1}: {sentence}")
            for index, (_, sentence) in enumerate(found)
            if sentence
        ]
        return [item for item, _ in found], problems
    if field.kind in ("json", "choice"):
        try:
            return parse_json(text), []
        except ValueError as error:
            return text, [Problem(field.pointer, str(error))]
    item, sentence = _parse_scalar(field.scalar, text)
    return item, [Problem(field.pointer, sentence)] if sentence else []


def _parse_scalar(scalar: str, text: str) -> tuple[Any, str]:
    """A text as a value of this JSON type; else the text itself and a sentence."""
    if scalar == "string":
        return text, ""
    try:
        value = parse_json(text.strip().removeprefix("+"))
    except ValueError:
        value = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value, ""
    shown = text.strip() if len(text) <= 40 else f"{text.strip()[:40]}…"
    kind = "a whole number; write it like 12" if scalar == "integer" else "a number; write it like 1.5"
    return text, f"“{shown}” is not {kind}."


@dataclass(frozen=True, slots=True)
class BoundField:
    """A field with what stands in it and what is wrong with that. ``id`` is for HTML."""

    field: InputField
    id: str
    text: str
    problems: tuple[str, ...]
    children: tuple[BoundField, ...]


def bind_fields(
    fields: Sequence[InputField], texts: Texts, problems: Iterable[Problem] = ()
) -> tuple[tuple[BoundField, ...], tuple[FormProblem, ...]]:
    """Put texts and problems at their fields; a problem goes to the innermost field around its path.

    The second value lists the problems for the summary, in the order of the fields; those without a field come first.
    """
    ids = {field.pointer: f"field-{number}" for number, field in enumerate(walk_fields(fields))}
    labels = {field.pointer: field.label for field in walk_fields(fields)}
    own: dict[str, list[Problem]] = {}
    for problem in problems:
        pointer = problem.path
        while pointer and pointer not in ids:
            pointer = pointer.rpartition("/")[0]
        own.setdefault(pointer, []).append(problem)

    def bind(field: InputField) -> BoundField:
        sentences = tuple(problem.message for problem in own.get(field.pointer, ()))
        return BoundField(
            field, ids[field.pointer], texts.get(field.name, ""), sentences, tuple(map(bind, field.children))
        )

    summary = [FormProblem("", problem.path or "Input", problem.message) for problem in own.get("", ())]
    for pointer, id in ids.items():
        summary += [FormProblem(id, labels[pointer], problem.message) for problem in own.get(pointer, ())]
    return tuple(map(bind, fields)), tuple(summary)
