"""Invents a value that fits a JSON Schema of the strict subset, the same one for the same seed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any
from uuid import UUID

from flows.engine.simulated_model import vocabulary
from flows.engine.simulated_model.text_pattern import generate_match

_DEEP = 6
"""From this depth on, arrays stay as short as they may and choices avoid references: recursion comes to an end."""
_DEEPEST = 60
_MOST_VALUES = 20_000
"""A schema that nests deeper or holds more recurses without a way out; from there on it gets null."""
_TRIES = 20

_FORMATS: dict[str, Callable[[Random], str]] = {
    "date": vocabulary.make_date,
    "date-time": vocabulary.make_date_time,
    "time": vocabulary.make_time,
    "duration": lambda random: f"PT{random.randrange(1, 60)}M",
    "email": vocabulary.make_email,
    "hostname": lambda random: "example.com",
    "ipv4": lambda random: f"192.0.2.{random.randrange(1, 255)}",
    "ipv6": lambda random: f"2001:db8::{random.randrange(1, 10_000):x}",
    "uri": vocabulary.make_url,
    "uuid": lambda random: str(UUID(int=random.getrandbits(128), version=4)),
}


def invent_value(schema: Mapping[str, Any], *, seed: str) -> Any:
    """A believable value that fits ``schema``.

    What is outside the strict subset is ignored. A schema that nothing fits gets something that doesn't fit.
    """
    random = Random(seed)  # noqa: S311  # made to be repeatable, not secret
    return _Inventor(schema, random).invent(schema, "", 0)


class _Inventor:
    def __init__(self, root: Mapping[str, Any], random: Random) -> None:
        self.root = root
        self.random = random
        self.retries = _TRIES
        self.values_left = _MOST_VALUES

    def invent(self, schema: Any, name: str, depth: int) -> Any:
        schema = self.resolve(schema)
        self.values_left -= 1
        if depth > _DEEPEST or self.values_left < 0:
            return None
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self.random.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                return self.invent(self.choose(schema[keyword], depth), name, depth + 1)
        kind = self.choose_type(schema)
        if kind == "object":
            properties = _as_mapping(schema.get("properties"))
            return {key: self.invent(part, key, depth + 1) for key, part in properties.items()}
        if kind == "array":
            return self.invent_array(schema, name, depth)
        if kind == "string":
            return self.invent_text(schema, name)
        if kind == "integer":
            return self.invent_integer(schema, name)
        if kind == "number":
            return self.invent_number(schema, name)
        if kind == "boolean":
            return self.random.random() < 0.5
        return None

    def resolve(self, schema: Any) -> Mapping[str, Any]:
        """``schema`` with its reference followed; what can't be followed is any text."""
        for _ in range(_TRIES):
            found = _as_mapping(schema)
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return found
            schema = self.root
            for token in reference.lstrip("#").split("/")[1:]:
                schema = _as_mapping(schema).get(token.replace("~1", "/").replace("~0", "~"))
        return {"type": "string"}

    def choose(self, options: list[Any], depth: int) -> Any:
        values = [option for option in options if _as_mapping(option).get("type") != "null"]
        if depth >= _DEEP:
            if len(values) < len(options):
                return {"type": "null"}
            values = [option for option in values if "$ref" not in _as_mapping(option)] or values
        return self.random.choice(values or options)

    def choose_type(self, schema: Mapping[str, Any]) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return self.random.choice([member for member in kind if member != "null"] or kind)
        if kind is None:
            return "object" if "properties" in schema else "array" if "items" in schema else "string"
        return kind

    def invent_array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        least = _as_count(schema.get("minItems"), 0)
        most = _as_count(schema.get("maxItems"), max(least, 3))
        if depth < _DEEP:
            count = self.random.randint(max(least, min(2, most)), max(least, min(most, least + 3)))
        else:
            count = least
        element = schema.get("items", {})
        items: list[Any] = []
        while len(items) < count:
            item = self.invent(element, name, depth + 1)
            # Repeated elements look careless even where they are allowed: try for others, then take what comes.
            if item not in items or (self.retries <= 0 and not schema.get("uniqueItems")):
                items.append(item)
            elif self.retries <= 0:
                break
            else:
                self.retries -= 1
        return items

    def invent_text(self, schema: Mapping[str, Any], name: str) -> str:
        by_format = _FORMATS.get(str(schema.get("format")))
        make = by_format or vocabulary.find_text_maker(name) or vocabulary.make_words
        pattern = schema.get("pattern")
        if not isinstance(pattern, str):
            return _fit_length(make(self.random), schema)
        text = make(self.random)
        try:
            for _ in range(_TRIES):
                if re.search(pattern, text) and _fit_length(text, schema) == text:
                    break
                text = generate_match(pattern, self.random)
        except (ValueError, re.error):
            return text
        return text

    def invent_integer(self, schema: Mapping[str, Any], name: str) -> int:
        least, most = _find_bounds(schema, vocabulary.find_whole_bounds(name), step=1)
        step = schema.get("multipleOf")
        if isinstance(step, int) and step > 0:
            return step * self.choose_factor(schema, least, most, step)
        return self.random.randint(math.ceil(least), max(math.ceil(least), math.floor(most)))

    def invent_number(self, schema: Mapping[str, Any], name: str) -> float:
        least, most = _find_bounds(schema, vocabulary.find_bounds(name), step=0.01)
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and step > 0:
            return round(step * self.choose_factor(schema, least, most, step), 10)
        value = self.random.uniform(least, most)
        rounded = round(value, 2)
        return rounded if least <= rounded <= most else value

    def choose_factor(self, schema: Mapping[str, Any], least: float, most: float, step: float) -> int:
        """A whole number that brings ``step`` between the bounds, or just beyond one that the schema doesn't set."""
        low, high = math.ceil(least / step), math.floor(most / step)
        if low > high:
            return high if "maximum" in schema or "exclusiveMaximum" in schema else low
        return self.random.randint(low, high)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and 0 <= value <= 10_000 else default


def _find_bounds(schema: Mapping[str, Any], usual: tuple[float, float], *, step: float) -> tuple[float, float]:
    """The bounds that ``schema`` sets, the usual ones where it sets none; ``step`` keeps off an exclusive bound."""
    given_low = _highest(schema.get("minimum"), schema.get("exclusiveMinimum"), step)
    given_high = _highest(_negate(schema.get("maximum")), _negate(schema.get("exclusiveMaximum")), step)
    low = usual[0] if given_low is None else given_low
    high = usual[1] if given_high is None else -given_high
    if low > high:
        # One bound is the schema's, the other the usual one on the wrong side of it.
        if given_high is None:
            high = low + (usual[1] - usual[0])
        elif given_low is None:
            low = high - (usual[1] - usual[0])
        else:
            middle = (low + high) / 2
            low = high = middle
    return low, high


def _highest(inclusive: Any, exclusive: Any, step: float) -> float | None:
    bounds = []
    if isinstance(inclusive, int | float):
        bounds.append(inclusive)
    if isinstance(exclusive, int | float):
        bounds.append(exclusive + step)
    return max(bounds, default=None)


def _negate(value: Any) -> Any:
    return -value if isinstance(value, int | float) else None


def _fit_length(text: str, schema: Mapping[str, Any]) -> str:
    least = _as_count(schema.get("minLength"), 0)
    most = _as_count(schema.get("maxLength"), max(least, 10_000))
    while len(text) < least:
        text = f"{text} {text}" if text else "a"
    return text[:most]
