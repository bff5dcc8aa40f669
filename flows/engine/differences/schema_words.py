"""What a JSON Schema allows, in a few words: “number”, “one of EUR, USD”, “list of objects”."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MOST_SHOWN = 8
_LONGEST_VALUE = 60
_MOST_NESTING = 3

_TYPES = {"string": "text", "array": "list", "null": "null"}


def describe_schema(schema: Any, *, depth: int = 0) -> str:
    """The values that a schema allows, without its limits; as far as a few words can say it."""
    if not isinstance(schema, Mapping):
        return "anything" if schema is True else "nothing" if schema is False else quote_value(schema)
    if "const" in schema:
        return f"always {quote_value(schema['const'])}"
    match schema:
        case {"enum": list(values)}:
            return f"one of {quote_value(values)}"
        case {"$ref": str(reference)}:
            return f"“{reference.rpartition('/')[2] or reference}”"
        case {"anyOf": list(choices)} | {"oneOf": list(choices)} if choices and depth < _MOST_NESTING:
            return " or ".join(dict.fromkeys(describe_schema(one, depth=depth + 1) for one in choices[:_MOST_SHOWN]))
        case {"type": list(types)} if types:
            return " or ".join(_describe_type(kind, schema, depth) for kind in types[:_MOST_SHOWN])
        case {"type": kind}:
            return _describe_type(kind, schema, depth)
    return "anything" if not schema else "a value"


def _describe_type(kind: Any, schema: Mapping[str, Any], depth: int) -> str:
    if not isinstance(kind, str):
        return quote_value(kind)
    word = _TYPES.get(kind, kind)
    if kind == "array" and "items" in schema and depth < _MOST_NESTING:
        inner = describe_schema(schema["items"], depth=depth + 1)
        return f"list of {'objects' if inner.startswith('object') else inner}"
    if kind == "object" and isinstance(properties := schema.get("properties"), Mapping) and properties:
        return f"object with {len(properties)} {'property' if len(properties) == 1 else 'properties'}"
    if kind == "string":
        if isinstance(form := schema.get("format"), str):
            word += f" ({form})"
        if isinstance(pattern := schema.get("pattern"), str):
            word += f" like {quote_value(pattern)}"
    return word


def quote_value(value: Any, *, is_plain: bool = False) -> str:
    """A value within a sentence: short, text in quotes, lists as their elements (texts there without quotes)."""
    match value:
        case str():
            return value if is_plain else f"“{_shorten(value)}”"
        case list() if value:
            words = [_shorten(item) if isinstance(item, str) else quote_value(item) for item in value[:_MOST_SHOWN]]
            more = f" and {len(value) - _MOST_SHOWN} more" if len(value) > _MOST_SHOWN else ""
            return ", ".join(words) + more
        case _:
            return _shorten(json.dumps(value, ensure_ascii=False, default=str))


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
