"""The OpenAPI document reduced to what clients rely on, and the differences of two of them.

A reduced schema is a text such as ``integer|null`` or ``#Run`` (a shared schema), or a mapping: ``name`` or ``name!``
(required) to the schema of a field, ``[]`` to that of elements, ``{}`` to that of other values, ``=`` to the values of
an enumeration, ``|`` to the types where there are fields, too. Descriptions, formats and bounds are left out, and names
of shared schemas count for nothing: only fields are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")
REF = "#/components/schemas/"


def reduce_document(document: dict[str, Any]) -> dict[str, Any]:
    """The document with nothing but paths, parameters, statuses, fields and their types."""
    responses = document["components"].get("responses", {})
    paths = {
        path: {method.upper(): _reduce_operation(item[method], responses) for method in METHODS if method in item}
        for path, item in sorted(document["paths"].items())
    }
    hooks = {
        name: _reduce_operation(item["post"], responses) for name, item in sorted(document.get("webhooks", {}).items())
    }
    shared = {name: reduce_schema(schema) for name, schema in sorted(document["components"]["schemas"].items())}
    return {"paths": paths, "webhooks": hooks, "schemas": shared}


def _reduce_operation(operation: dict[str, Any], responses: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        f"{one['in']} {one['name']}{'!' if one.get('required') else ''}": reduce_schema(one["schema"])
        for one in operation.get("parameters", [])
    }
    body = {kind: reduce_schema(one.get("schema", {})) for kind, one in _content(operation.get("requestBody", {}))}
    found: dict[str, Any] = {}
    problems = []
    for status, response in sorted(operation["responses"].items()):
        if ref := response.get("$ref"):
            response = responses[ref.rpartition("/")[2]]
        content = {kind: reduce_schema(one.get("schema", {})) for kind, one in _content(response)}
        # All problems have one shape, which is compared once.
        if list(content) == ["application/problem+json"]:
            problems.append(int(status))
        else:
            found[status] = content
    reduced = {"parameters": parameters, "body": body, "responses": found, "problems": problems}
    return {name: part for name, part in reduced.items() if part}


def _content(part: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return sorted(part.get("content", {}).items())


def reduce_schema(schema: Any) -> Any:
    """One schema in the reduced form; references stay references."""
    if not isinstance(schema, dict) or not schema:
        return "any"
    if ref := schema.get("$ref"):
        return "#" + ref.removeprefix(REF)
    choices = [reduce_schema(one) for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, [])]
    types = schema.get("type", [])
    names = set(types if isinstance(types, list) else [types])
    reduced: dict[str, Any] = {}
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if values:
        reduced["="] = sorted(str(value) for value in values if value is not None)
        names |= {"null"} if None in values else set()
        names |= set() if names else {"string"}
    required = schema.get("required", [])
    for name, part in schema.get("properties", {}).items():
        reduced[f"{name}!" if name in required else name] = reduce_schema(part)
    if "items" in schema:
        reduced["[]"] = reduce_schema(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        reduced["{}"] = reduce_schema(schema["additionalProperties"])
    for choice in choices:
        if isinstance(choice, str):
            names |= set(choice.split("|"))
        else:
            names |= set(choice.pop("|", "object").split("|"))
            reduced.update(choice)
    if not reduced:
        return "|".join(sorted(names)) or "any"
    if names != {"object"}:
        reduced["|"] = "|".join(sorted(names))
    return reduced


@dataclass
class Shape:
    """A schema with the shared ones that it names merged into it."""

    types: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    fields: dict[str, Any] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    items: Any = None
    other: Any = None

    def merge(self, reduced: Any, shared: dict[str, Any]) -> Shape:
        """Take in a reduced schema."""
        parts: dict[str, Any] = {"|": reduced} if isinstance(reduced, str) else {"|": "object", **reduced}
        for name in parts["|"].split("|"):
            if name.startswith("#"):
                self.merge(shared[name[1:]], shared)
            else:
                self.types.add(name)
        for name, part in parts.items():
            match name:
                case "|":
                    pass
                case "=":
                    self.values |= set(part)
                case "[]":
                    self.items = part
                case "{}":
                    self.other = part
                case _:
                    self.fields[name.rstrip("!")] = part
                    self.required |= {name[:-1]} if name.endswith("!") else set()
        return self


class Comparison:
    """What clients of the ``old`` reduced document miss in the ``new`` one. What is new there is no difference."""

    def __init__(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[str, str, bool]] = set()

    def find_differences(self) -> list[str]:
        """A line for each difference, with its place."""
        found = [*self._compare_operations(self._old["paths"], self._new["paths"])]
        old_hooks, new_hooks = ({"webhook": one["webhooks"]} for one in (self._old, self._new))
        found += self._compare_operations(old_hooks, new_hooks)
        found += self._compare_schemas("Problem", "#Problem", "#Problem", is_sent=False)
        return found

    def _compare_operations(self, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        for path, methods in old.items():
            for method, operation in methods.items():
                where = f"{method} {path}"
                if method not in new.get(path, {}):
                    yield f"{where}: removed"
                    continue
                yield from self._compare_operation(where, operation, new[path][method])

    def _compare_operation(self, where: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        for part in ("parameters", "body"):
            # Clients send these, but for the messages to receivers.
            is_sent = not where.endswith(" webhook")
            yield from self._compare_parts(where, old.get(part, {}), new.get(part, {}), is_sent=is_sent)
        for status, content in old["responses"].items():
            if status in new["responses"]:
                yield from self._compare_parts(f"{where} {status}", content, new["responses"][status], is_sent=False)
            else:
                yield f"{where} {status}: removed"
        gone = set(old.get("problems", [])) - set(new.get("problems", []))
        yield from (f"{where} {status}: removed" for status in sorted(gone))

    def _compare_parts(self, where: str, old: dict[str, Any], new: dict[str, Any], *, is_sent: bool) -> Iterator[str]:
        now = {name.rstrip("!"): name for name in new}
        for name, before in old.items():
            plain = name.rstrip("!")
            if plain not in now:
                yield f"{where} {plain}: removed"
                continue
            if now[plain].endswith("!") and now[plain] != name:
                yield f"{where} {plain}: became required"
            yield from self._compare_schemas(f"{where} {plain}", before, new[now[plain]], is_sent=is_sent)
        for plain in now.keys() - {name.rstrip("!") for name in old}:
            if now[plain].endswith("!"):
                yield f"{where} {plain}: new and required"

    def _compare_schemas(self, where: str, old: Any, new: Any, *, is_sent: bool) -> Iterator[str]:
        pair = (repr(old), repr(new), is_sent)
        if "#" in pair[0] and pair in self._seen:
            return
        self._seen.add(pair)
        before = Shape().merge(old, self._old["schemas"])
        after = Shape().merge(new, self._new["schemas"])
        if before.types != after.types:
            yield f"{where}: {'|'.join(sorted(before.types))} is {'|'.join(sorted(after.types))}"
        gone = before.values - after.values if after.values else set()
        if gone or (before.values and not after.values):
            yield f"{where}: without {', '.join(sorted(gone or before.values))}"
        for name in sorted(before.fields):
            place = f"{where} .{name}"
            if name not in after.fields:
                yield f"{place}: removed"
                continue
            if (name in before.required) != (name in after.required) and is_sent == (name in after.required):
                yield f"{place}: {'became' if is_sent else 'no longer'} required"
            yield from self._compare_schemas(place, before.fields[name], after.fields[name], is_sent=is_sent)
        if is_sent:
            yield from (f"{where} .{name}: new and required" for name in sorted(after.required - before.fields.keys()))
        for mark, inner, other in (("[]", before.items, after.items), ("{}", before.other, after.other)):
            if inner is not None:
                yield from self._compare_schemas(f"{where} {mark}", inner, other or "any", is_sent=is_sent)
