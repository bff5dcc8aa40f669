"""Schemas for people who don't write JSON Schema: made from an example of what is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flows.engine.errors import SpecError
from flows.engine.schema_check import check_input_schema, refuse_document
from flows.engine.schema_violations import name_place
from flows.engine.strict_schema import check_strict

MOST_NOTES = 10


@dataclass(frozen=True, slots=True)
class MadeSchema:
    """A schema, and a sentence for each thing that the example left open."""

    schema: dict[str, Any]
    notes: tuple[str, ...] = ()


def make_schema_from_example(
    example: dict[str, Any], *, for_input: bool = False, with_descriptions: bool = False
) -> MadeSchema:
    """The schema that an example of an object fits.

    Lists hold one kind of element: what its elements have is merged. Where different types meet, each of them is
    allowed; where null stands, null too. Strict mode wants every property, so that one which only some elements of a
    list have may be null: an output that lacks it must then say so. With ``for_input`` it is not required instead,
    and the schema keeps the example. ``with_descriptions`` leaves an empty description in each property.

    The example is a JSON value, as ``parse_object`` gives it. Raises ``SpecError`` if what it makes is no schema that
    can be used, such as one that nests objects too deep.
    """
    root = _Shape()
    root.add(example, ())
    builder = _Builder(for_input=for_input, with_descriptions=with_descriptions)
    schema = builder.build(root)
    notes = builder.notes
    if for_input:
        with_example = {**schema, "examples": [example]}
        if refuse_document(with_example) is None:
            schema = with_example
        else:
            notes.append("The example itself is too large to be kept in the schema, or holds what JSON can't store.")
    problems = check_input_schema(schema) if for_input else check_strict(schema)
    if problems:
        raise SpecError(problems)
    more = len(notes) - MOST_NOTES
    return MadeSchema(schema, (*notes[:MOST_NOTES], *([f"{more:,} more places were left open."] if more > 0 else [])))


@dataclass(slots=True)
class _Shape:
    """All that an example shows at one place, which may be one element of a list like another."""

    path: tuple[str | int, ...] = ()
    """Where it was seen first."""
    count: int = 0
    objects: int = 0
    types: set[str] = field(default_factory=set)
    """Of JSON Schema; what holds integers and other numbers has both."""
    properties: dict[str, _Shape] = field(default_factory=dict)
    elements: _Shape | None = None

    def add(self, value: Any, path: tuple[str | int, ...]) -> None:
        """Take note of one more value that stands here."""
        if not self.count:
            self.path = path
        self.count += 1
        match value:
            case None:
                self.types.add("null")
            case bool():
                self.types.add("boolean")
            case int():
                self.types.add("integer")
            case float():
                self.types.add("number")
            case str():
                self.types.add("string")
            case dict():
                self.types.add("object")
                self.objects += 1
                for key, item in value.items():
                    self.properties.setdefault(key, _Shape()).add(item, (*path, key))
            case list():
                self.types.add("array")
                self.elements = self.elements or _Shape()
                for index, item in enumerate(value):
                    self.elements.add(item, (*path, index))


class _Builder:
    def __init__(self, *, for_input: bool, with_descriptions: bool) -> None:
        self.notes: list[str] = []
        self._for_input = for_input
        self._with_descriptions = with_descriptions

    def build(self, shape: _Shape, *, becomes_nullable: bool = False, is_property: bool = False) -> dict[str, Any]:
        words = {"description": ""} if self._with_descriptions and is_property else {}
        nullable = becomes_nullable or "null" in shape.types
        branches = list(self._build_branches(shape))
        if len(branches) > 1:
            return {**words, "anyOf": [*branches, *([{"type": "null"}] if nullable else [])]}
        (branch,) = branches
        kind = branch.pop("type")
        return {"type": [kind, "null"] if nullable else kind, **words, **branch}

    def _build_branches(self, shape: _Shape) -> Iterator[dict[str, Any]]:
        """One schema for each type, at least one."""
        types = shape.types - {"null"}
        if "number" in types:
            types.discard("integer")
        if not types:
            types = {"string"}
            # Of an empty list, the list tells.
            if shape.count:
                self.notes.append(f"{name_place(shape.path)} is null in the example: text or null is assumed.")
        for kind in ("string", "integer", "number", "boolean"):
            if kind in types:
                yield {"type": kind}
        if "object" in types:
            yield self._build_object(shape)
        if "array" in types and shape.elements is not None:
            if not shape.elements.count:
                self.notes.append(
                    f"{name_place(shape.path)} is an empty list: a list of texts is assumed. "
                    "Give it one element to show what it holds."
                )
            yield {"type": "array", "items": self.build(shape.elements)}

    def _build_object(self, shape: _Shape) -> dict[str, Any]:
        if not shape.properties:
            self.notes.append(f"{name_place(shape.path)} is an empty object: nothing may stand in it.")
        properties, required = {}, []
        for name, child in shape.properties.items():
            is_partial = child.count < shape.objects
            if is_partial:
                consequence = "it may be left out" if self._for_input else "it is required, and may be null"
                self.notes.append(f"{name_place(child.path)} is not in every element of its list: {consequence}.")
            if not (is_partial and self._for_input):
                required.append(name)
            properties[name] = self.build(child, becomes_nullable=is_partial and not self._for_input, is_property=True)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
