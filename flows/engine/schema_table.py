"""Schemas for people who don't write JSON Schema: made from a table of fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool

from flows.engine.errors import Problem, SpecError
from flows.engine.json_value import format_pointer
from flows.engine.schema_check import check_input_schema
from flows.engine.strict_schema import check_strict

MAX_LEVELS = 3
"""Levels of fields within each other; those of the schema itself are the first."""

Path = tuple[str | int, ...]


class FieldType(StrEnum):
    """What a field holds."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    """One of several texts."""
    TEXTS = "texts"
    INTEGERS = "integers"
    NUMBERS = "numbers"
    OBJECTS = "objects"
    OBJECT = "object"


_SINGLE = {
    FieldType.TEXT: "string",
    FieldType.INTEGER: "integer",
    FieldType.NUMBER: "number",
    FieldType.BOOLEAN: "boolean",
    FieldType.CHOICE: "string",
    FieldType.OBJECT: "object",
}
_ELEMENTS = {
    FieldType.TEXTS: "string",
    FieldType.INTEGERS: "integer",
    FieldType.NUMBERS: "number",
    FieldType.OBJECTS: "object",
}
SINGLE_TYPES = {kind: name for name, kind in _SINGLE.items() if name is not FieldType.CHOICE}
"""By the types of JSON Schema."""
LIST_TYPES = {kind: name for name, kind in _ELEMENTS.items()}
"""By the types of their elements."""

FURTHER = frozenset(
    {
        *("title", "format", "pattern", "minLength", "maxLength", "multipleOf", "minItems", "maxItems", "uniqueItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "default", "examples"),
    }
)
"""Keywords that the table has no column for, and that go on as they are with the field that they stand at."""
FURTHER_OF_ELEMENTS = FURTHER | {"description", "enum"}
FURTHER_OF_ROOT = frozenset({"$schema", "title", "description", "examples", "default"})


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SchemaField(_Part):
    """One row of the table."""

    name: str
    type: FieldType
    is_required: StrictBool = True
    """Whether an input must have it; outputs have all fields."""
    is_nullable: StrictBool = False
    description: str = ""
    choices: tuple[str, ...] = ()
    fields: tuple[SchemaField, ...] = ()
    """Those of the object, or of each object of the list."""
    further: dict[str, Any] = {}
    """What the schema says beyond the table: keywords such as ``minLength``."""
    further_of_elements: dict[str, Any] = {}


class SchemaTable(_Part):
    """A schema as rows."""

    fields: tuple[SchemaField, ...]
    is_closed: StrictBool = True
    """Whether the objects of an input take no other fields; those of an output never do."""
    further: dict[str, Any] = {}


def make_schema_from_fields(table: SchemaTable, *, for_input: bool = False) -> dict[str, Any]:
    """The schema that the table describes: a strict one, unless it is ``for_input``.

    Raises ``SpecError``: problems of rows have paths into the table (``/fields/0/name``), those of what the rows
    make have none and name the place in the schema.
    """
    problems = [*_check_further(table.further, FURTHER_OF_ROOT, ()), *_check_rows(table.fields, ("fields",), level=1)]
    if problems:
        raise SpecError(problems)
    is_closed = table.is_closed or not for_input
    schema = {**_make_object(table.fields, is_closed=is_closed, for_input=for_input), **table.further}
    problems = check_input_schema(schema) if for_input else check_strict(schema)
    if problems:
        raise SpecError([Problem("", str(problem)) for problem in problems])
    return schema


def _check_rows(
    fields: Sequence[SchemaField], path: Path, *, level: int, owner: str = "The table"
) -> Iterator[Problem]:
    if not fields:
        yield Problem(format_pointer(path), f"{owner} has no fields yet. Add one.")
    if level > MAX_LEVELS:
        yield Problem(format_pointer(path), f"Fields nest at most {MAX_LEVELS} levels deep in the table.")
        return
    names: set[str] = set()
    for index, field in enumerate(fields):
        place = (*path, index)
        fault = find_fault(field.name)
        if fault is None and field.name in names:
            fault = "stands twice; give one of the fields another name"
        names.add(field.name)
        if fault is not None:
            shown = f"The name “{field.name}”" if field.name.strip() else f"The name of field {index + 1}"
            yield Problem(format_pointer((*place, "name")), f"{shown} {fault}.")
        if field.type is FieldType.CHOICE:
            yield from _check_choices(field, place)
        if field.type in (FieldType.OBJECT, FieldType.OBJECTS):
            yield from _check_rows(field.fields, (*place, "fields"), level=level + 1, owner=f"“{field.name}”")
        yield from _check_further(field.further, FURTHER, place)
        yield from _check_further(field.further_of_elements, FURTHER_OF_ELEMENTS, place)


def _check_choices(field: SchemaField, place: Path) -> Iterator[Problem]:
    pointer = format_pointer((*place, "choices"))
    if not field.choices:
        yield Problem(pointer, f"“{field.name}” has no choices yet. Write one a line.")
    for index, choice in enumerate(field.choices):
        fault = find_fault(choice) or ("stands twice; keep one" if choice in field.choices[:index] else None)
        if fault is not None:
            yield Problem(pointer, f"A choice of “{field.name}”, “{choice}”, {fault}.")


def find_fault(text: str) -> str | None:
    """What keeps a name or a choice from standing in a line of its own; None if nothing does."""
    if not text.strip():
        return "is missing"
    if text != text.strip():
        return "begins or ends with a space; take it out"
    return "has a line break; take it out" if len(text.splitlines()) > 1 else None


def _check_further(further: Mapping[str, Any], known: frozenset[str], place: Path) -> Iterator[Problem]:
    for keyword in further:
        if keyword not in known:
            yield Problem(format_pointer(place), f"The table keeps no “{keyword}”.")


def _make_object(fields: Sequence[SchemaField], *, is_closed: bool, for_input: bool) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.name: _make_field(field, is_closed=is_closed, for_input=for_input) for field in fields},
        "required": [field.name for field in fields if field.is_required or not for_input],
        **({"additionalProperties": False} if is_closed else {}),
    }


def _make_field(field: SchemaField, *, is_closed: bool, for_input: bool) -> dict[str, Any]:
    kind = _SINGLE.get(field.type, "array")
    schema: dict[str, Any] = {"type": [kind, "null"] if field.is_nullable else kind}
    if field.description:
        schema["description"] = field.description
    inside = {}
    if field.type in (FieldType.OBJECT, FieldType.OBJECTS):
        inside = _make_object(field.fields, is_closed=is_closed, for_input=for_input)
    if field.type is FieldType.CHOICE:
        schema["enum"] = [*field.choices, *([None] if field.is_nullable else [])]
    elif field.type in _ELEMENTS:
        schema["items"] = {"type": _ELEMENTS[field.type], **inside, **field.further_of_elements}
    else:
        schema |= {keyword: value for keyword, value in inside.items() if keyword != "type"}
    return {**schema, **field.further}
