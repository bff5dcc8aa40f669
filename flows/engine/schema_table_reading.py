"""Schemas for people who don't write JSON Schema: shown as a table of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.engine.errors import Problem, SpecError
from flows.engine.json_value import describe_type, format_pointer
from flows.engine.schema_check import refuse_document
from flows.engine.schema_table import (
    FURTHER,
    FURTHER_OF_ELEMENTS,
    FURTHER_OF_ROOT,
    LIST_TYPES,
    MAX_LEVELS,
    SINGLE_TYPES,
    FieldType,
    Path,
    SchemaField,
    SchemaTable,
    find_fault,
)

_OBJECT_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties"})


def read_table(schema: Any, *, for_input: bool = False) -> SchemaTable:
    """The table that shows a schema without loss: made into a schema again, it means the same.

    What an output may leave out may be null in the table, as strict mode has it. Raises ``SpecError`` whose one
    problem says what the table can't show, with the JSON pointer of its place in the schema.
    """
    refusal = refuse_document(schema)
    if refusal is not None:
        raise SpecError([Problem("", refusal)])
    reader = _Reader(for_input=for_input)
    if schema.get("type") != "object":
        raise _refuse((), "its type is not “object”")
    further = _split_off(schema, _OBJECT_KEYWORDS, FURTHER_OF_ROOT, ())
    fields = reader.read_object(schema, (), level=1)
    if len(reader.closed) > 1:
        raise _refuse((), "some of its objects take other fields (“additionalProperties”), and some don't")
    return SchemaTable(fields=fields, is_closed=not for_input or reader.closed == {True}, further=further)


def _refuse(path: Path, message: str) -> SpecError:
    return SpecError([Problem(format_pointer(path), f"{message[0].upper()}{message[1:]}.")])


def _split_off(node: Mapping[str, Any], shown: frozenset[str], kept: frozenset[str], path: Path) -> dict[str, Any]:
    """The keywords of a schema that are kept without being shown."""
    for keyword in node:
        if keyword not in shown and keyword not in kept:
            raise _refuse((*path, keyword), f"the table has no place for “{keyword}”")
    return {keyword: value for keyword, value in node.items() if keyword in kept and keyword not in shown}


class _Reader:
    def __init__(self, *, for_input: bool) -> None:
        self.closed: set[bool] = set()
        self._for_input = for_input

    def read_object(self, node: Mapping[str, Any], path: Path, *, level: int) -> tuple[SchemaField, ...]:
        """The fields of an object; what else its schema says is for the caller."""
        if level > MAX_LEVELS:
            raise _refuse(path, f"fields nest deeper than {MAX_LEVELS} levels")
        properties, required = node.get("properties"), node.get("required", [])
        if not isinstance(properties, dict):
            raise _refuse(path, "the object doesn't list its “properties”")
        if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
            raise _refuse((*path, "required"), "“required” is no list of names of properties")
        others = node.get("additionalProperties", True)
        if not isinstance(others, bool):
            raise _refuse((*path, "additionalProperties"), "other fields have a schema of their own")
        if others and "additionalProperties" in node and not self._for_input:
            raise _refuse((*path, "additionalProperties"), "the object takes other fields")
        self.closed.add(not others or not self._for_input)
        return tuple(
            self._read_field(name, child, name in required, (*path, "properties", name), level)
            for name, child in properties.items()
        )

    def _read_field(self, name: str, node: Any, is_required: bool, path: Path, level: int) -> SchemaField:
        fault = find_fault(name)
        if fault is not None:
            raise _refuse(path, f"a name {fault}")
        if not isinstance(node, dict):
            raise _refuse(path, f"the schema is {describe_type(node)}")
        kind, is_nullable = _read_type(node, path)
        shown = {"type", "description"}
        values: dict[str, Any] = {}
        if kind == "object":
            shown |= _OBJECT_KEYWORDS
            values = {"type": FieldType.OBJECT, "fields": self.read_object(node, path, level=level + 1)}
        elif kind == "array":
            shown.add("items")
            values = self._read_elements(node.get("items"), (*path, "items"), level)
        elif kind == "string" and "enum" in node:
            shown.add("enum")
            values = {"type": FieldType.CHOICE, "choices": _read_choices(node["enum"], is_nullable, path)}
        else:
            values = {"type": SINGLE_TYPES[kind]}
        description = node.get("description", "")
        if not isinstance(description, str):
            raise _refuse((*path, "description"), "the description is no text")
        return SchemaField(
            name=name,
            is_required=is_required or not self._for_input,
            is_nullable=is_nullable or not (is_required or self._for_input),
            description=description,
            further=_split_off(node, frozenset(shown), FURTHER, path),
            **values,
        )

    def _read_elements(self, node: Any, path: Path, level: int) -> dict[str, Any]:
        if not isinstance(node, dict):
            raise _refuse(path, "the list doesn't say what its elements are")
        kind, is_nullable = _read_type(node, path)
        if kind not in LIST_TYPES or is_nullable:
            raise _refuse(path, "the elements of a list are texts, numbers or objects in the table, and never null")
        shown = _OBJECT_KEYWORDS if kind == "object" else frozenset({"type"})
        further = _split_off(node, shown, FURTHER_OF_ELEMENTS, path)
        fields = self.read_object(node, path, level=level + 1) if kind == "object" else ()
        return {"type": LIST_TYPES[kind], "fields": fields, "further_of_elements": further}


def _read_type(node: Mapping[str, Any], path: Path) -> tuple[str, bool]:
    """The type, and whether null is allowed as well."""
    declared = node.get("type")
    types = declared if isinstance(declared, list) else [declared]
    kinds = [name for name in types if name != "null"]
    if len(kinds) != 1 or kinds[0] not in (*SINGLE_TYPES, "array"):
        keyword = next((name for name in ("$ref", "anyOf", "oneOf", "allOf", "const") if name in node), None)
        message = f"the table has no place for “{keyword}”" if keyword else "a field has exactly one type in the table"
        raise _refuse((*path, keyword) if keyword else path, message)
    return kinds[0], "null" in types


def _read_choices(values: Any, is_nullable: bool, path: Path) -> tuple[str, ...]:
    choices = [value for value in values if value is not None] if isinstance(values, list) else []
    if not choices or not all(isinstance(choice, str) and find_fault(choice) is None for choice in choices):
        raise _refuse((*path, "enum"), "the choices of a field are texts of one line each in the table")
    if (None in values) != is_nullable:
        raise _refuse((*path, "enum"), "type and choices disagree about null")
    if len(set(choices)) < len(choices):
        raise _refuse((*path, "enum"), "a choice stands twice")
    return tuple(choices)
