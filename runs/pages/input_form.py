"""The form that an input schema asks for: its fields, and an input as the texts that are in them.

The schema itself is checked when the run is submitted: here only what can't be parsed at all (a word where a number
should be) is a problem. What fields can't express is left to a JSON field, or to the JSON view of the whole input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.engine.errors import Problem
from flows.engine.json_values import dump_json, follow_ref, format_pointer, parse_json
from runs.filter_fields import shorten

MAX_DEPTH = 3
"""Objects nested deeper than this become a JSON field."""
MAX_FIELDS = 100
"""A schema with more fields than this gets no form, only the JSON view."""
LONG_TEXT = 200
"""Characters; a text that may be longer gets a field that grows."""
REQUIRED = "This field is required."

Texts = Mapping[str, str]
"""What is in the fields, by their names, as a browser sends it."""


FormProblem = tuple[str, str, str]
"""An entry of the summary above a form: the id of the field, empty if it is about none, its label, and a message."""


@dataclass
class InputField:
    """A field as ``runs/input_field.html`` shows it, with what is in it and what is wrong with that.

    It is for a part of an input, what is at ``pointer``, in its object under ``key``, or for an option of a run.

    ``kind`` says what it takes: ``text``, ``long`` (text), ``number``, ``choice``, ``check``, ``lines`` (an array of
    simple values, one a line), ``json``, or ``group`` with ``children``. ``choices`` are pairs of a value and a label;
    of an input their values are JSON. ``scalar`` is the JSON type of what a number field or each line holds.
    """

    name: str
    kind: str
    label: str
    help: str = ""
    is_required: bool = False
    choices: Sequence[tuple[str, str]] = ()
    placeholder: str = ""
    id: str = ""
    text: str = ""
    problems: Sequence[str] = ()
    pointer: str = ""
    key: str = ""
    is_nullable: bool = False
    scalar: str = ""
    children: Sequence[InputField] = ()


def build_fields(schema: Mapping[str, Any] | None) -> Sequence[InputField]:
    """The fields of an input schema; none if it describes no object with known properties, or too many."""
    if schema is None:
        return ()
    fields = _build_properties(schema, resolve_schema(schema, schema)[0], (), 0)
    for number, one in enumerate(walk_fields(fields)):
        if number == MAX_FIELDS:
            return ()
        one.id = f"field-{number}"
    return fields


def walk_fields(fields: Iterable[InputField]) -> Iterator[InputField]:
    """All fields, groups before what is in them."""
    for one in fields:
        yield one
        yield from walk_fields(one.children)


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


def resolve_schema(root: Mapping[str, Any], schema: Any) -> tuple[Mapping[str, Any], bool]:
    """The schema behind local references and ``anyOf: [..., null]``, and whether null is allowed."""
    if not isinstance(schema, Mapping):
        return {}, False
    is_nullable = False
    for _ in range(8):
        options = schema.get("anyOf")
        if isinstance(schema.get("$ref"), str):
            target, hidden = follow_ref(dict(root), schema["$ref"]), "$ref"
        elif isinstance(options, list) and len(options) == 2 and {"type": "null"} in options:
            target, hidden = next((option for option in options if option != {"type": "null"}), {}), "anyOf"
            is_nullable = True
        else:
            break
        more = target if isinstance(target, Mapping) else {}
        schema = {**more, **{key: value for key, value in schema.items() if key != hidden}}
    kind = schema.get("type")
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        return {**schema, "type": next(name for name in kind if name != "null")}, True
    return schema, is_nullable


def _build_properties(
    root: Mapping[str, Any], schema: Mapping[str, Any], path: tuple[str, ...], depth: int
) -> Sequence[InputField]:
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        return ()
    required = schema.get("required", ())
    return [_build_field(root, part, (*path, key), key in required, depth) for key, part in properties.items()]


def _build_field(
    root: Mapping[str, Any], schema: Any, path: tuple[str, ...], is_required: bool, depth: int
) -> InputField:
    schema, is_nullable = resolve_schema(root, schema)
    kind, scalar = _choose_kind(root, schema, is_required and not is_nullable)
    children: Sequence[InputField] = ()
    if kind == "group":
        # Fields can't show whether an optional object is wanted that would have to hold something.
        if depth < MAX_DEPTH and not is_nullable and (is_required or not schema.get("required")):
            children = _build_properties(root, schema, path, depth + 1)
        kind = "group" if children else "json"
    pointer, title = format_pointer(path), schema.get("title")
    label = title if isinstance(title, str) and title else path[-1].replace("_", " ").strip().capitalize()
    return InputField(
        # No clash with other names of the form, whatever the keys are.
        name=f"input{pointer}",
        kind=kind,
        label=label or "(no name)",
        help=_describe(schema, kind),
        is_required=is_required,
        choices=_list_choices(schema) if kind == "choice" else (),
        pointer=pointer,
        key=path[-1],
        is_nullable=is_nullable,
        scalar=scalar,
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
        items, is_nullable = resolve_schema(root, schema["items"])
        if not is_nullable and items.get("type") in ("string", "integer", "number"):
            return "lines", str(items["type"])
    return ("group" if kind == "object" and schema.get("properties") else "json"), ""


def _list_choices(schema: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    values = [schema["const"]] if "const" in schema else schema.get("enum", [True, False])
    words = {"true": "Yes", "false": "No", "null": "None"}
    texts = [(dump_json(value), value) for value in values]
    labels = [(text, value if isinstance(value, str) else words.get(text, text)) for text, value in texts]
    return [("", "—"), *labels]


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
    """What is in the fields for ``value``. Parts that no field can hold are left out: see ``can_show``."""
    texts: dict[str, str] = {}
    for one in fields if isinstance(value, dict) else ():
        if one.key not in value:
            continue
        item = value[one.key]
        if one.kind == "group":
            texts |= format_texts(one.children, item)
        elif one.kind == "check":
            texts |= {one.name: "on"} if item is True else {}
        elif one.kind == "choice":
            texts[one.name] = dump_json(item)
        elif item is None and one.is_nullable:
            texts[one.name] = ""
        elif one.kind == "lines" and isinstance(item, list):
            texts[one.name] = "\n".join(map(_format_scalar, item))
        elif one.kind == "json":
            texts[one.name] = dump_json(item, indent=2)
        elif not (one.kind == "text" and isinstance(item, str) and "\n" in item):
            # A field of one line would drop line breaks silently.
            texts[one.name] = _format_scalar(item)
    return texts


def _format_scalar(value: Any) -> str:
    return value if isinstance(value, str) else dump_json(value)


def can_show(fields: Sequence[InputField], value: Any) -> bool:
    """Whether the fields hold ``value`` exactly: parsing their texts gives the same."""
    again, _ = parse_texts(fields, format_texts(fields, value))
    try:
        # As JSON: True is not 1 there. Half a character, escaped in JSON, fits into no field.
        first, second = (json.dumps(one, ensure_ascii=False, sort_keys=True).encode() for one in (value, again))
    except UnicodeEncodeError:
        return False
    return bool(fields) and first == second


def parse_texts(fields: Sequence[InputField], texts: Texts) -> tuple[dict[str, Any], list[Problem]]:
    """The value that is in the fields, and what can't be parsed of it.

    What can't be parsed is in the value as the text that was typed, so that nothing is lost in the JSON view.
    """
    value: dict[str, Any] = {}
    problems: list[Problem] = []
    for one in fields:
        text = texts.get(one.name, "").replace("\r\n", "\n")
        inner: list[Problem] = []
        must_be_given = one.is_required and not one.is_nullable
        if one.kind == "group":
            item, inner = parse_texts(one.children, texts)
            if item or one.is_required:
                value[one.key] = item
        elif one.kind == "check":
            value[one.key] = one.name in texts
        elif text.strip() or (text and one.kind in ("text", "long") and not must_be_given):
            value[one.key], inner = _parse_field(one, text)
        elif one.is_required and not must_be_given:
            value[one.key] = None
        elif one.is_required and one.kind == "lines":
            value[one.key] = []
        elif one.is_required:
            inner = [Problem(one.pointer, REQUIRED)]
            if one.kind in ("text", "long"):
                # It may fit the schema, and the JSON view takes it; left empty in a form it is a mistake.
                value[one.key] = text
        problems += inner
    return value, problems


def _parse_field(one: InputField, text: str) -> tuple[Any, list[Problem]]:
    try:
        if one.kind in ("json", "choice"):
            return parse_json(text), []
        if one.kind != "lines":
            return _parse_scalar(one.scalar, text), []
    except ValueError as error:
        return text, [Problem(one.pointer, str(error))]
    items: list[Any] = [line for line in text.split("\n") if line.strip()]
    problems = []
    for index, line in enumerate(items):
        try:
            items[index] = _parse_scalar(one.scalar, line)
        except ValueError as error:
            problems.append(Problem(f"{one.pointer}/{index}", f"Line {index + 1}: {error}"))
    return items, problems


def _parse_scalar(scalar: str, text: str) -> Any:
    """A text as a value of this JSON type. Raises ``ValueError`` with a sentence."""
    if scalar == "string":
        return text
    try:
        value = parse_json(text.strip().removeprefix("+"))
    except ValueError:
        value = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    kind = "a whole number; write it like 12" if scalar == "integer" else "a number; write it like 1.5"
    raise ValueError(f"“{shorten(text.strip())}” is not {kind}.")


def bind_fields(fields: Sequence[InputField], texts: Texts, problems: Iterable[Problem] = ()) -> Sequence[FormProblem]:
    """Put texts and problems into their fields; a problem goes to the innermost field around its path.

    Returns the problems for the summary, in the order of the fields; those without a field come first.
    """
    by_pointer = {one.pointer: one for one in walk_fields(fields)}
    own: dict[str, list[Problem]] = {}
    for problem in problems:
        pointer = problem.path
        while pointer and pointer not in by_pointer:
            pointer = pointer.rpartition("/")[0]
        own.setdefault(pointer, []).append(problem)
    summary = [("", problem.path or "Input", problem.message) for problem in own.get("", ())]
    for pointer, one in by_pointer.items():
        one.text = texts.get(one.name, "")
        one.problems = [problem.message for problem in own.get(pointer, ())]
        summary += [(one.id, one.label, message) for message in one.problems]
    return summary
