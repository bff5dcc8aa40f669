"""Invents a value that fits a JSON Schema of the strict subset, the same one for the same seed.

Texts and numbers follow the name of their property: ``due_date`` gets a date, ``vendor_name`` a company.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from itertools import chain
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import jsonschema_rs
from rstr import Rstr

from flows.engine.schema_violations import resolve_refs

_Entry = TypeVar("_Entry")

_DEEP = 6
"""From this depth on, arrays stay as short as they may and choices avoid references, so that recursion ends."""
_MAX_DEPTH = 60
_MAX_VALUES = 20_000
"""A schema that nests deeper or holds more recurses without a way out; from there on it gets null."""
_MAX_LENGTH = 10_000
"""Characters, or repetitions in a pattern, that a text may need."""
_MAX_ITEMS = 1_000
_MAX_TRIES = 20


def invent_value(schema: Mapping[str, Any], *, seed: str) -> Any:
    """A believable value that fits ``schema``.

    What is outside the strict subset is ignored. A schema that nothing fits gets something that doesn't fit.
    """
    random = Random(seed)  # noqa: S311  # made to be repeatable, not secret
    return _Inventor(dict(schema), random).invent(schema, "", 0)


# ---------------------------------------------------------------------------------------------------------------
# Vocabulary

_WORDS = ("amber", "birch", "cedar", "dune", "fjord", "harbour", "iris", "meadow")
_SENTENCES = (
    "The main points are in order and nothing is left open.",
    "Two details need another check before this goes out.",
    "The change is small, well described and easy to undo.",
)


def _choose(*words: str) -> Callable[[Random], str]:
    return lambda random: random.choice(words)


def _make_date(random: Random) -> str:
    return (date(2026, 1, 1) + timedelta(days=random.randrange(365))).isoformat()


def _make_time(random: Random) -> str:
    return f"{random.randrange(8, 18):02d}:{random.randrange(60):02d}:00Z"


_make_person = _choose("Ada Brandt", "Ben Costa", "Chloe Dubois", "Farid Haddad", "Ines Eriksen", "Keiko Ito")

_FORMATS: dict[str, Callable[[Random], str]] = {
    "date": _make_date,
    "date-time": lambda random: f"{_make_date(random)}T{_make_time(random)}",
    "time": _make_time,
    "duration": lambda random: f"PT{random.randrange(1, 60)}M",
    "email": lambda random: f"{_make_person(random).lower().replace(' ', '.')}@example.com",
    "hostname": lambda random: f"{random.choice(_WORDS)}.example.com",
    "ipv4": lambda random: f"192.0.2.{random.randrange(1, 255)}",
    "ipv6": lambda random: f"2001:db8::{random.randrange(1, 10_000):x}",
    "uri": lambda random: f"https://example.com/{random.choice(_WORDS)}/{random.randrange(100, 1_000)}",
    "uuid": lambda random: str(UUID(int=random.getrandbits(128), version=4)),
}

# The first entry that shares a word with the name wins, so that special entries are before general ones.
_TEXTS: tuple[tuple[str, Callable[[Random], str]], ...] = (
    ("hex color colour colors colours accent", lambda random: f"#{random.randrange(1 << 24):06x}"),
    ("email mail", _FORMATS["email"]),
    ("url link website homepage uri", _FORMATS["uri"]),
    ("date day due deadline birthday", _FORMATS["date"]),
    ("timestamp datetime", _FORMATS["date-time"]),
    ("time", _FORMATS["time"]),
    ("currency", _choose("EUR", "USD", "GBP")),
    ("city town", _choose("Dublin", "Lisbon", "Oslo", "Toronto")),
    ("company vendor supplier organisation organization seller issuer brand", _choose("Alder Foods", "Kestrel Optics")),
    ("product item article", _choose("Desk lamp", "Office chair", "Printer paper")),
    ("title subject headline heading", _choose("A clear start", "First findings")),
    ("summary description reason text body message comment note notes answer content", _choose(*_SENTENCES)),
    ("id number no reference ref code sku key", lambda random: f"NV-{random.randrange(10**5):05d}"),
    ("category type kind topic tag tags label labels keyword team queue", _choose("account", "billing", "quality")),
    ("person author customer client contact owner user sender recipient name", _make_person),
)
_NUMBERS: tuple[tuple[str, tuple[float, float]], ...] = (
    ("quantity count units pieces qty", (1, 9)),
    ("year", (2020, 2026)),
    ("age", (18, 80)),
    ("stars rating priority", (1, 5)),
    ("confidence probability ratio weight opacity alpha share", (0, 1)),
    ("price amount total subtotal tax cost fee sum net gross", (5, 500)),
)


def _find_named(table: tuple[tuple[str, _Entry], ...], name: str, default: _Entry) -> _Entry:
    """The entry of the first row that has a word of a property's name: ``dueDate`` and ``due_date`` have two."""
    words = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))
    return next((entry for known, entry in table if words.intersection(known.split())), default)


class _PatternText(Rstr):
    """Texts that match a pattern: of bounded length, and the same in every process."""

    printable_characters = string.digits + string.ascii_letters + string.punctuation

    def __init__(self, random: Random) -> None:
        # The alphabets of rstr hold control characters, and one of them is in another order in each process.
        super().__init__(random, printable=self.printable_characters, nonword=string.punctuation, whitespace=" ")
        self._cases = {**self._cases, "range": lambda ends: list(map(chr, range(ends[0], ends[1] + 1)[:256]))}
        self.repeats = 0

    def _handle_in(self, value: Any) -> Any:
        members = list(chain(*(self._handle_state(state) for state in value)))
        if members[0] is False:
            members = [character for character in self.printable_characters if character not in members]
        return self._random.choice(members)

    def _handle_repeat(self, start_range: int, end_range: int, value: Any) -> str:
        times = self._random.randint(start_range, min(end_range, start_range + 3))
        self.repeats += times
        if self.repeats > _MAX_LENGTH:
            raise ValueError("the pattern asks for a text that is too long")
        return "".join("".join(self._handle_state(state) for state in value) for _ in range(times))


# ---------------------------------------------------------------------------------------------------------------
# Schemas


class _Inventor:
    def __init__(self, root: dict[str, Any], random: Random) -> None:
        self.root = root
        self.random = random
        self.values_left = _MAX_VALUES

    def invent(self, schema: Any, name: str, depth: int) -> Any:
        schema = resolve_refs(schema, self.root)
        self.values_left -= 1
        if depth > _MAX_DEPTH or self.values_left < 0:
            return None
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.random.choice(schema["enum"])
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.invent(self.choose(options, depth), name, depth + 1)
        match self.choose_type(schema):
            case "object":
                properties = schema.get("properties", {})
                return {key: self.invent(part, key, depth + 1) for key, part in properties.items()}
            case "array":
                return self.invent_array(schema, name, depth)
            case "string":
                return self.invent_text(schema, name)
            case "integer" | "number" as kind:
                return self.invent_number(schema, name, is_whole=kind == "integer")
            case "boolean":
                return self.random.random() < 0.5
        return None

    def choose(self, options: list[dict[str, Any]], depth: int) -> dict[str, Any]:
        values = [option for option in options if option.get("type") != "null"]
        if depth >= _DEEP:
            if len(values) < len(options):
                return {"type": "null"}
            values = [option for option in values if "$ref" not in option] or values
        return self.random.choice(values or options)

    def choose_type(self, schema: dict[str, Any]) -> Any:
        kind = schema.get("type") or (
            "object" if "properties" in schema else "array" if "items" in schema else "string"
        )
        if isinstance(kind, list):
            return self.random.choice([member for member in kind if member != "null"] or kind)
        return kind

    def invent_array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(least, 3))
        wanted = (max(least, min(2, most)), max(least, min(most, least + 3))) if depth < _DEEP else (least, least)
        count = min(self.random.randint(*wanted), _MAX_ITEMS)
        items = [self.invent(schema.get("items", {}), name, depth + 1) for _ in range(count)]
        # Repeated elements look careless even where they are allowed.
        distinct = [item for index, item in enumerate(items) if item not in items[:index]]
        return distinct if len(distinct) >= least else items

    def invent_text(self, schema: dict[str, Any], name: str) -> str:
        make = _FORMATS.get(str(schema.get("format"))) or _find_named(
            _TEXTS, name, lambda random: " ".join(random.sample(_WORDS, 2))
        )
        text = make(self.random)
        if "pattern" not in schema:
            return _fit_length(text, schema)
        rules: dict[str, Any] = {key: schema[key] for key in ("pattern", "minLength", "maxLength") if key in schema}
        try:
            for _ in range(_MAX_TRIES):
                if jsonschema_rs.is_valid(rules, text):
                    break
                text = _PatternText(self.random).xeger(schema["pattern"])
        except Exception:  # noqa: BLE001  # a pattern beyond the generator, which raises what it comes across
            return text
        return text

    def invent_number(self, schema: dict[str, Any], name: str, *, is_whole: bool) -> float:
        low, high = _find_bounds(schema, _find_named(_NUMBERS, name, (1, 100)), gap=1 if is_whole else 0.01)
        step = schema.get("multipleOf", 1 if is_whole else None)
        if step is not None:
            least, most = math.ceil(low / step), math.floor(high / step)
            if least > most:  # just beyond the bound that the schema doesn't set
                least = most = most if "maximum" in schema or "exclusiveMaximum" in schema else least
            found: float = step * self.random.randint(least, most)
            return found if is_whole else round(found, 10)
        value = self.random.uniform(low, high)
        return rounded if low <= (rounded := round(value, 2)) <= high else value


def _find_bounds(schema: dict[str, Any], usual: tuple[float, float], *, gap: float) -> tuple[float, float]:
    """The bounds that ``schema`` sets, the usual ones where it sets none; ``gap`` keeps off an exclusive bound."""
    lows = [schema[key] + shift for key, shift in (("minimum", 0), ("exclusiveMinimum", gap)) if key in schema]
    highs = [schema[key] - shift for key, shift in (("maximum", 0), ("exclusiveMaximum", gap)) if key in schema]
    width = usual[1] - usual[0]
    if not lows:
        lows = [usual[0] if not highs or usual[0] <= min(highs) else min(highs) - width]
    if not highs:
        highs = [usual[1] if usual[1] >= max(lows) else max(lows) + width]
    low = max(lows)
    return low, max(low, min(highs))


def _fit_length(text: str, schema: dict[str, Any]) -> str:
    least = min(schema.get("minLength", 0), _MAX_LENGTH)
    while len(text) < least:
        text = f"{text} {text}"
    return text[: schema.get("maxLength", max(least, len(text)))]
