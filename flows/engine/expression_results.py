"""What comes out of an expression as a JSON value, its keys in an order that is always the same.

``cel`` keeps maps without an order: the keys of a result come back in another one each time. A step's input must be
the same whenever it is asked for, so they are put back in the order in which they stand in the expression or in the
variables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from flows.engine.cel_package import OptionalValue
from flows.engine.errors import ExpressionError
from flows.engine.json_value import MAX_DEPTH

_PLAIN = frozenset({bool, str, int})


@dataclass
class KeyIndex:
    """The order of keys in one value."""

    shapes: dict[frozenset[str], tuple[str, ...]] = field(default_factory=dict)
    """The keys of each map, as a set and in their order."""
    ranks: dict[str, int] = field(default_factory=dict)
    """When each key was first met."""


def index_keys(value: Any) -> KeyIndex:
    """Index the keys of all maps in a JSON value."""
    index = KeyIndex()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            index.shapes.setdefault(frozenset(item), tuple(item))
            for key in item:
                index.ranks.setdefault(key, len(index.ranks))
            stack.extend(reversed(item.values()))
        elif isinstance(item, list | tuple):
            stack.extend(reversed(item))
    return index


def sort_keys(
    keys: Sequence[str], list_indexes: Callable[[], Sequence[KeyIndex]], literals: Sequence[str]
) -> list[str]:
    """The keys of a map in the order of a literal in the expression, else of a map in the variables that has just these
    keys, else of the variables as a whole; what is in none of them comes last, by the alphabet.
    """
    wanted = frozenset(keys)
    if literals and wanted <= frozenset(literals):
        return list(dict.fromkeys(key for key in literals if key in wanted))
    # Making the indexes means walking all variables: only where the literals don't say it.
    indexes = list_indexes()
    for index in indexes:
        shape = index.shapes.get(wanted)
        if shape is not None:
            return list(shape)
    ranks: dict[str, int] = {}
    for source in (literals, *(index.ranks for index in indexes)):
        for key in source:
            ranks.setdefault(key, len(ranks))
    return sorted(keys, key=lambda key: (ranks.get(key, len(ranks)), key))


def to_json(value: Any, order: Callable[[Sequence[str]], list[str]], depth: int = 0) -> Any:
    """A result of ``cel`` as a JSON value: times as text, optional values as what they hold, or null.

    Raises ``ExpressionError`` for bytes, NaN and infinities, and for nesting deeper than ``MAX_DEPTH``.
    """
    if value is None or type(value) in _PLAIN:
        return value
    match value:
        case float():
            if math.isfinite(value):
                return value
            raise ExpressionError("The result holds NaN or an infinite number, which JSON doesn't know.")
        case list() | tuple() | dict() if depth >= MAX_DEPTH:
            raise ExpressionError(f"The result is nested deeper than {MAX_DEPTH} levels.")
        case list() | tuple():
            return [to_json(item, order, depth + 1) for item in value]
        case dict():
            named = {key if isinstance(key, str) else _name_key(key): item for key, item in value.items()}
            keys = order(list(named)) if len(named) > 1 else named
            return {key: to_json(named[key], order, depth + 1) for key in keys}
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():g}s"
        case OptionalValue():
            return to_json(value.value(), order, depth) if value.has_value() else None
        case bytes():
            raise ExpressionError(
                "The result holds bytes, which JSON doesn't know; write base64.encode(x) or string(x)."
            )
    raise ExpressionError(f"The result holds a value of type “{type(value).__name__}”, which has no JSON form.")


def _name_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
