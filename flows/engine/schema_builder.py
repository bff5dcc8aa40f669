"""Schemas for people who don't write JSON Schema: made from an example, and shown as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from genson import SchemaBuilder

from flows.engine.errors import SpecError
from flows.engine.json_values import dump_json, follow_ref, shorten
from flows.engine.schema_violations import format_place, list_types, resolve_refs
from flows.engine.schemas import check_input_schema, check_schema, refuse_document
from flows.engine.strict_schema import allow_null, check_strict

MAX_NOTES = 10

MAX_FIELDS = 200
"""Rows of a table."""


# ---------------------------------------------------------------------------------------------------------------
# From an example


@dataclass(frozen=True, slots=True)
class BuiltSchema:
    """A schema, and a sentence for each thing that the example left open."""

    schema: dict[str, Any]
    notes: tuple[str, ...] = ()


def build_schema_from_example(
    example: dict[str, Any], *, for_input: bool = False, with_descriptions: bool = False
) -> BuiltSchema:
    """The schema that an example of an object fits.

    Lists hold one kind of element: what its elements have is merged. Strict mode wants every property, so that one
    which only some elements of a list have may be null: an output that lacks it must then say so. With ``for_input``
    it is not required instead, and the schema keeps an example that has room. ``with_descriptions`` leaves an empty
    description in each property. Raises ``SpecError`` if the example makes no schema that can be used.
    """
    merged = SchemaBuilder(schema_uri=None)
    merged.add_object(example)
    closer = _Closer(for_input=for_input, with_descriptions=with_descriptions)
    schema = closer.close(merged.to_schema(), ())
    notes = closer.notes
    if for_input and refuse_document(with_example := {**schema, "examples": [example]}) is None:
        schema = with_example
    problems = check_input_schema(schema) if for_input else check_strict(schema)
    if problems:
        raise SpecError(problems)
    more = len(notes) - MAX_NOTES
    return BuiltSchema(schema, (*notes[:MAX_NOTES], *([f"{more:,} more values were left open."] if more > 0 else [])))


_NULL = {"type": "null"}


def _split(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The forms of what an example shows: genson merges an empty object or list with the names of other types."""
    for form in node.get("anyOf", [node]):
        types = list_types(form)
        if len(types) > 1 and not {"object", "array"}.isdisjoint(types):
            yield from ({"type": name} for name in types)
        else:
            yield form


class _Closer:
    """Closes what an example shows: nothing else is allowed, and what it leaves open is assumed and noted."""

    def __init__(self, *, for_input: bool, with_descriptions: bool) -> None:
        self.notes: list[str] = []
        self._for_input = for_input
        self._with_descriptions = with_descriptions

    def close(self, node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        forms = list(_split(node))
        if forms == [_NULL]:
            self._note(path, "is null in the example: text or null is assumed.")
            return {"type": ["string", "null"]}
        branches = [self._close_form(form, path) for form in forms if form != _NULL]
        closed = {"anyOf": branches} if len(branches) > 1 else branches[0]
        return allow_null(closed) if _NULL in forms else closed

    def _close_form(self, node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        types = list_types(node)
        if "object" in types:
            return self._close_object(node, path)
        if "array" not in types:
            return {"type": sorted(types, key="null".__eq__)} if len(types) > 1 else node
        if "items" not in node:
            self._note(path, "is an empty list: a list of texts is assumed. Give it one element to show what it holds.")
        elements = (*path[:-1], f"{path[-1]}[]")
        return {**node, "items": self.close(node["items"], elements) if "items" in node else {"type": "string"}}

    def _close_object(self, node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        if not node.get("properties"):
            self._note(path, "is an empty object: no properties are allowed in it.")
        properties: dict[str, Any] = {}
        required = set(node.get("required", ()))
        for name, part in node.get("properties", {}).items():
            place = (*path, name)
            properties[name] = self.close(part, place)
            if name not in required:
                left_out = "it may be left out" if self._for_input else "it is required, and may be null"
                self._note(place, f"is not in every element of its list: {left_out}.")
                if not self._for_input:
                    properties[name] = allow_null(properties[name])
            if self._with_descriptions:
                properties[name] = {"description": "", **properties[name]}
        names = [name for name in properties if name in required or not self._for_input]
        return {**node, "properties": properties, "required": names, "additionalProperties": False}

    def _note(self, path: tuple[str, ...], sentence: str) -> None:
        self.notes.append(f"{format_place(path)} {sentence}")


# ---------------------------------------------------------------------------------------------------------------
# As a table


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """One field of a schema: its place (``lines[].amount``), what it holds, and whether it must be there."""

    name: str
    kind: str
    is_required: bool
    description: str
    rules: str
    """What else the schema says of it, such as ``minimum 0``."""


_KINDS = {"string": "text", "integer": "whole number", "boolean": "yes or no", "array": "list"}
_NOT_RULES = {
    *("type", "title", "description", "properties", "required", "additionalProperties", "items"),
    *("allOf", "anyOf", "oneOf", "$ref", "$defs", "definitions"),
}
_MAX_SCHEMAS = 2_000
"""Schemas that are visited for one table, however often definitions refer to each other."""
_MAX_FORMS, _MAX_KIND_LEVELS = 10, 3


def list_rows(schema: dict[str, Any]) -> list[SchemaRow]:
    """The fields of a schema, those of objects within it below their own; ``MAX_FIELDS`` at most.

    References are followed as long as they don't lead back. A union shows the fields of each of its forms. Raises
    ``SpecError`` for what is not a schema.
    """
    if problems := check_schema(schema):
        raise SpecError(problems)
    return list(islice(_list_rows(schema, schema, "", frozenset(), iter(range(_MAX_SCHEMAS))), MAX_FIELDS))


def _list_rows(
    node: Any, root: dict[str, Any], place: str, refs: frozenset[str], left: Iterator[int]
) -> Iterator[SchemaRow]:
    if not isinstance(node, dict) or next(left, None) is None:
        return
    ref = node.get("$ref")
    if ref is not None and ref not in refs:
        yield from _list_rows(follow_ref(root, ref), root, place, refs | {ref}, left)
    for branch in _list_forms(node):
        yield from _list_rows(branch, root, place, refs, left)
    yield from _list_rows(node.get("items"), root, f"{place}[]", refs, left)
    for name, part in node.get("properties", {}).items():
        inner = f"{place}.{name}" if place else name
        yield _describe(inner, part, root, name in node.get("required", ()))
        yield from _list_rows(part, root, inner, refs, left)


def _describe(place: str, part: Any, root: dict[str, Any], is_required: bool) -> SchemaRow:
    beside = part if isinstance(part, dict) else {}
    node = {**resolve_refs(part, root), **beside}
    rules = [_describe_rule(key, rule) for key, rule in node.items() if key not in _NOT_RULES]
    kind = shorten(_name_kind(part, root, _MAX_KIND_LEVELS), 100)
    return SchemaRow(place, kind, is_required, node.get("description", ""), ", ".join(rules))


def _describe_rule(key: str, rule: Any) -> str:
    if key == "enum":
        return shorten(f"one of {', '.join(one if isinstance(one, str) else dump_json(one) for one in rule)}")
    return f"{key} {shorten(dump_json(rule))}"


def _name_kind(part: Any, root: dict[str, Any], levels: int) -> str:
    """What a field holds, in words: “list of text”, “object or null”."""
    node = resolve_refs(part, root)
    if not levels:
        return "anything"
    if "type" not in node:
        kinds = dict.fromkeys(_name_kind(branch, root, levels - 1) for branch in _list_forms(node)[:_MAX_FORMS])
        return " or ".join(kinds) or "anything"
    names = [_KINDS.get(name, name) for name in list_types(node)]
    if "list" in names and "items" in node:
        names[names.index("list")] = f"list of {_name_kind(node['items'], root, levels - 1)}"
    return " or ".join(names)


def _list_forms(node: dict[str, Any]) -> list[Any]:
    return [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in node.get(keyword, ())]
