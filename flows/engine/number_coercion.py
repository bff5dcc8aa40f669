"""Numbers of a value as its schema names them, by a function that is built once for each schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from flows.engine.schema_check import follow_ref

_EXACT = 2**53

Coercer: TypeAlias = Callable[[Any], Any]
"""Gives the value with other numbers, or the same object if none has to change."""


def build_coercer(schema: dict[str, Any]) -> Coercer | None:
    """The function for a schema; None if no value of it can hold a number that has to change."""
    return _Builder(schema).build(schema)


class _Builder:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._refs: dict[str, Coercer | None] = {}

    def build(self, node: Any) -> Coercer | None:
        if not isinstance(node, dict):
            return None
        if isinstance(node.get("$ref"), str):
            return self._build_ref(node["$ref"])
        branches = node.get("anyOf") or node.get("oneOf")
        if isinstance(branches, list):
            return self._build_choice(branches)
        declared = node.get("type")
        types = declared if isinstance(declared, list) else [declared]
        if "number" in types:
            return None if "integer" in types else _to_float
        if "integer" in types:
            return _to_int
        if isinstance(node.get("properties"), dict):
            return self._build_object(node["properties"])
        if "items" in node:
            return _for_elements(self.build(node["items"]))
        return None

    def _build_ref(self, ref: str) -> Coercer | None:
        if ref not in self._refs:
            # A recursive schema meets this stand-in while its function is being built.
            self._refs[ref] = lambda value: coerce(value) if (coerce := self._refs[ref]) is not None else value
            self._refs[ref] = self.build(follow_ref(self._root, ref))
        return self._refs[ref]

    def _build_object(self, properties: dict[str, Any]) -> Coercer | None:
        coercers = {name: coerce for name, child in properties.items() if (coerce := self.build(child)) is not None}
        return _for_properties(coercers) if coercers else None

    def _build_choice(self, branches: list[Any]) -> Coercer | None:
        built = [(branch, coerce) for branch in branches if (coerce := self.build(branch)) is not None]
        scalars = {coerce for _, coerce in built} & {_to_float, _to_int}
        # Where both are allowed, the value says what it is.
        scalar = scalars.pop() if len(scalars) == 1 and not any(_allows_both(branch) for branch in branches) else None
        containers = [(branch, coerce) for branch, coerce in built if coerce not in (_to_float, _to_int)]
        if scalar is None and not containers:
            return None

        def choose(value: Any) -> Any:
            if isinstance(value, dict | list):
                for branch, coerce in containers:
                    if self._fits(value, branch):
                        return coerce(value)
                return value
            return scalar(value) if scalar is not None else value

        return choose

    def _fits(self, value: Any, branch: Any) -> bool:
        """Whether a value is meant by a branch: the same keys, and the constants that tell branches apart."""
        for _ in range(10):
            if not isinstance(branch, dict) or "$ref" not in branch:
                break
            branch = follow_ref(self._root, branch["$ref"])
        if not isinstance(branch, dict):
            return False
        if isinstance(value, list):
            return "items" in branch
        properties = branch.get("properties")
        if not isinstance(properties, dict) or not value.keys() <= properties.keys():
            return False
        for name, child in properties.items():
            if isinstance(child, dict) and name in value:
                allowed = [child["const"]] if "const" in child else child.get("enum")
                if isinstance(allowed, list) and value[name] not in allowed:
                    return False
        return all(name in value for name in branch.get("required", ()))


def _allows_both(branch: Any) -> bool:
    declared = branch.get("type") if isinstance(branch, dict) else None
    return isinstance(declared, list) and "number" in declared and "integer" in declared


def _to_float(value: Any) -> Any:
    # An int that a float can't hold exactly stays what it is.
    if type(value) is int and -_EXACT <= value <= _EXACT:
        return float(value)
    return value


def _to_int(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


def _for_properties(coercers: dict[str, Coercer]) -> Coercer:
    def coerce(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed: dict[str, Any] = {}
        for name, coerce_one in coercers.items():
            if name in value:
                before = value[name]
                after = coerce_one(before)
                if after is not before:
                    changed[name] = after
        # Updating a copy keeps the order of the keys.
        return {**value, **changed} if changed else value

    return coerce


def _for_elements(coerce_one: Coercer | None) -> Coercer | None:
    if coerce_one is None:
        return None

    def coerce(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        after = [coerce_one(item) for item in value]
        return value if all(new is old for new, old in zip(after, value, strict=True)) else after

    return coerce
