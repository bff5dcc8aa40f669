"""Between an input and what stands in the fields of its form.

The schema itself is checked when the run is submitted: here only what can't be read at all (a word where a number
should be) is a problem.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.engine.errors import Problem
from flows.engine.json_values import dump_json, parse_json
from runs.pages.input_fields import InputField, walk_fields

Texts = Mapping[str, str]
"""What stands in the fields, by their names, as a browser sends it."""


def write_texts(fields: Sequence[InputField], value: Any) -> dict[str, str]:
    """What stands in the fields for ``value``. Parts that no field can hold are left out: see ``can_show``."""
    texts: dict[str, str] = {}
    if not isinstance(value, dict):
        return texts
    for field in fields:
        if field.key not in value:
            continue
        item = value[field.key]
        if field.kind == "group":
            texts.update(write_texts(field.children, item))
        elif field.kind == "check":
            texts.update({field.name: "on"} if item is True else {})
        elif field.kind == "choice":
            texts[field.name] = dump_json(item)
        elif item is None and field.is_nullable:
            texts[field.name] = ""
        elif field.kind == "lines" and isinstance(item, list):
            texts[field.name] = "\n".join(_write_scalar(part) for part in item)
        elif field.kind == "json":
            texts[field.name] = dump_json(item, indent=2)
        elif not (field.kind == "text" and isinstance(item, str) and "\n" in item):
            # A field of one line would drop line breaks without a word.
            texts[field.name] = _write_scalar(item)
    return texts


def _write_scalar(value: Any) -> str:
    return value if isinstance(value, str) else dump_json(value)


def can_show(fields: Sequence[InputField], value: Any) -> bool:
    """Whether the fields hold ``value`` exactly: reading them back gives the same."""
    again, problems = read_value(fields, write_texts(fields, value))
    try:
        same = _canonical(again) == _canonical(value)
    except UnicodeEncodeError:
        # Half a character, escaped in JSON, can stand in no field.
        return False
    return bool(fields) and not problems and same


def _canonical(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode()


def read_value(fields: Sequence[InputField], texts: Texts) -> tuple[dict[str, Any], list[Problem]]:
    """The value that stands in the fields, and what can't be read of it.

    What can't be read stands in the value as the text that was typed, so that nothing is lost in the JSON view.
    """
    value: dict[str, Any] = {}
    problems: list[Problem] = []
    for field in fields:
        if field.kind == "group":
            item, inner = read_value(field.children, texts)
            problems += inner
            if item or field.is_required:
                value[field.key] = item
            continue
        if field.kind == "check":
            value[field.key] = field.name in texts
            continue
        text = texts.get(field.name, "").replace("\r\n", "\n")
        if not text.strip() and _leaves_out(field, text):
            if field.is_required and field.is_nullable:
                value[field.key] = None
            elif field.is_required and field.kind != "lines":
                problems.append(Problem(field.pointer, _ASK[field.kind]))
            elif field.is_required:
                value[field.key] = []
            continue
        value[field.key], inner = _read_field(field, text)
        problems += inner
    return value, problems


_ASK = {"number": "Give a number.", "choice": "Choose one.", "json": "Give a JSON value."}


def _leaves_out(field: InputField, text: str) -> bool:
    """Whether an empty field means no value: text that must be there may well be empty, the schema says."""
    if field.kind in ("text", "long"):
        return not text and (not field.is_required or field.is_nullable)
    return True


def _read_field(field: InputField, text: str) -> tuple[Any, list[Problem]]:
    if field.kind == "lines":
        items: list[Any] = []
        problems = []
        for number, line in enumerate((line for line in text.split("\n") if line.strip()), start=1):
            item, sentence = _read_scalar(field.scalar, line)
            items.append(item)
            if sentence:
                problems.append(Problem(f"{field.pointer}/{number - 1}", f"Line {number}: {sentence}"))
        return items, problems
    if field.kind in ("json", "choice"):
        try:
            return parse_json(text), []
        except ValueError as error:
            return text, [Problem(field.pointer, str(error))]
    item, sentence = _read_scalar(field.scalar, text)
    return item, [Problem(field.pointer, sentence)] if sentence else []


def _read_scalar(scalar: str, text: str) -> tuple[Any, str]:
    """A text as a value of this JSON type; else the text itself and a sentence."""
    if scalar == "string":
        return text, ""
    example = "12" if scalar == "integer" else "1.5"
    kind = "a whole number" if scalar == "integer" else "a number"
    try:
        value = parse_json(text.strip().removeprefix("+"))
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        shown = text.strip() if len(text) <= 40 else f"{text.strip()[:40]}…"
        return text, f"“{shown}” is not {kind}; write it like {example}."
    return value, ""


@dataclass(frozen=True, slots=True)
class BoundField:
    """A field with what stands in it and what is wrong with that. ``id`` is for HTML."""

    field: InputField
    id: str
    text: str
    problems: tuple[Problem, ...]
    children: tuple[BoundField, ...]


@dataclass(frozen=True, slots=True)
class PlacedProblem:
    """A problem and the id of the field that it is shown at, empty if at none."""

    problem: Problem
    field_id: str


def bind_fields(
    fields: Sequence[InputField], texts: Texts, problems: Iterable[Problem] = ()
) -> tuple[tuple[BoundField, ...], tuple[PlacedProblem, ...]]:
    """Put texts and problems at their fields; a problem goes to the innermost field around its path."""
    ids = {field.pointer: f"field-{number}" for number, field in enumerate(walk_fields(fields))}
    own: dict[str, list[Problem]] = {}
    placed = []
    for problem in problems:
        pointer = problem.path
        while pointer and pointer not in ids:
            pointer = pointer.rpartition("/")[0]
        own.setdefault(pointer, []).append(problem)
        placed.append(PlacedProblem(problem, ids.get(pointer, "")))

    def bind(field: InputField) -> BoundField:
        children = tuple(bind(child) for child in field.children)
        found = tuple(own.get(field.pointer, ()))
        return BoundField(field, ids[field.pointer], texts.get(field.name, ""), found, children)

    return tuple(bind(field) for field in fields), tuple(placed)
