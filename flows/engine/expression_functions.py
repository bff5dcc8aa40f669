"""The functions that expressions can call: the standard library of ``cel``, its extensions, and our own.

Some extensions are replaced. Theirs could be made to fill the memory (``replace``, ``join``, ``lists.range``), take
quadratic time (``distinct``, ``sets``) or compile a regular expression for every call (``matches``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jsonschema_rs
from cel.stdlib import STDLIB_FUNCTIONS

from flows.engine.history import Severity

MAX_PRODUCED = 1_000_000
"""Characters and list elements that the functions may produce in one evaluation, all in all."""
MAX_RANGE = 10_000

REPLACED = {"matches": "matches_cached", "size": "size_in_characters"}
"""The names in a compiled expression of functions that ``cel`` does not let us replace under their own.

Its ``matches`` compiles the pattern at each call, and its ``size`` counts the bytes of a text in UTF-8.
"""
KEYS = "keys_in_order"
"""Wraps a map before a loop goes through its keys; ``cel`` would give them in a new order each time."""

LOOPS = frozenset({"all", "exists", "exists_one", "filter", "map"})
"""The macros that go through a list or the keys of a map and bind a name to each element."""


class NeedsProcessError(Exception):
    """A function made so much that the evaluation could take long; it has to go to a process of its own."""


class Evaluation(threading.local):
    """What the functions share in the evaluation of this thread; ``cel`` calls them with their arguments only."""

    order_keys: Callable[[Sequence[str]], list[str]]
    is_quick: Callable[[int, int], bool]
    """Whether to go on in this process, given how much was produced and the length of a new list."""
    fault: tuple[str, Exception] | None = None
    """The first function that failed, and why."""
    produced: int = 0

    def begin(self, order_keys: Callable[[Sequence[str]], list[str]], is_quick: Callable[[int, int], bool]) -> None:
        """Forget the evaluation before."""
        self.order_keys, self.is_quick, self.fault, self.produced = order_keys, is_quick, None, 0

    def produce(self, amount: int, length: int = 0) -> None:
        """Count characters or elements before they are made, ``length`` of them in one list.

        Raises ``ValueError`` for more than ``MAX_PRODUCED``, ``NeedsProcessError`` for what is too much for here.
        """
        self.produced += max(0, amount)
        if self.produced > MAX_PRODUCED:
            raise ValueError(f"more than {MAX_PRODUCED:,} characters or list elements would come out")
        if not self.is_quick(self.produced, length):
            raise NeedsProcessError


current = Evaluation()


# ---------------------------------------------------------------------------------------------------------------
# Replacements


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A test whether a regular expression is found in a text, in time linear in the text's length.

    Raises ``ValueError`` for an invalid regular expression, and for one that takes too much memory.
    """
    # The engine of ``cel`` itself, behind another door: this one keeps what it has compiled.
    try:
        options = jsonschema_rs.RegexOptions(size_limit=1 << 20)
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options).is_valid
    except (jsonschema_rs.ValidationError, ValueError):
        raise ValueError(f"“{pattern[:60]}” is not a regular expression that can be used here") from None


def _freeze(value: Any) -> Any:
    """A hashable value that equals that of another one exactly if CEL calls the two equal."""
    if isinstance(value, bool):
        # A bool is not a number to CEL, and is one to Python.
        return (bool, value)
    if isinstance(value, dict):
        return frozenset((key, _freeze(item)) for key, item in value.items())
    return tuple(map(_freeze, value)) if isinstance(value, list | tuple) else value


def _distinct(items: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(_freeze(item), item)
    return list(found.values())


def _range(count: int) -> list[int]:
    if not 0 <= count <= MAX_RANGE:
        raise ValueError(f"lists.range: {count} is out of range, 0 to {MAX_RANGE:,} is possible")
    return list(range(count))


def _count_elements(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def call(*arguments: Any) -> list[Any]:
        result = function(*arguments)
        current.produce(len(result), len(result))
        return result

    return call


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    current.produce(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def _join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise ValueError("it takes a list of texts; write list.map(x, string(x)) for other values")
    current.produce(sum(map(len, items)) + len(items) * len(separator))
    return separator.join(items)


# ---------------------------------------------------------------------------------------------------------------
# The table

FUNCTIONS: dict[str, tuple[str, str]] = {
    "all": ("list.all(x, condition)", "whether the condition holds for every element of a list or key of a map"),
    "exists": ("list.exists(x, condition)", "whether it holds for at least one"),
    "exists_one": ("list.exists_one(x, condition)", "whether it holds for exactly one"),
    "filter": ("list.filter(x, condition)", "the elements or keys that it holds for"),
    "map": ("list.map(x, value)", "a list of the values; list.map(x, condition, value) leaves elements out"),
    "has": ("has(map.key)", "whether a map has a key"),
    "size": ("size(x)", "how many characters, elements, keys or bytes text, a list, a map or bytes have"),
    "type": ("type(x)", "the type of a value: type(x) == string"),
    "dyn": ("dyn(x)", "the value itself"),
    "int": ("int(x)", "a number or text as an int, without decimals"),
    "uint": ("uint(x)", "a number or text as an unsigned int"),
    "double": ("double(x)", "a number or text as a double"),
    "string": ("string(x)", "a number, bool, timestamp or duration as text"),
    "bytes": ("bytes(text)", "the bytes of a text in UTF-8"),
    "bool": ("bool(text)", "the text true or false as a bool"),
    "timestamp": ("timestamp(text)", "a time, from text such as 2030-01-31T12:00:00Z"),
    "duration": ("duration(text)", "a span of time, from text such as 1h30m"),
    "weight": ("weight(severity)", "1, 2, 4, 8 for low, medium, high, critical"),
    "contains": ("x.contains(part)", "whether a text holds a part, or a list an element"),
    "startsWith": ("text.startsWith(start)", "whether a text begins with another"),
    "endsWith": ("text.endsWith(end)", "whether a text ends with another"),
    "matches": ("text.matches(pattern)", "whether a regular expression is found in a text; anchor it with ^ and $"),
    "charAt": ("text.charAt(index)", "the character at a position, counted from 0"),
    "indexOf": ("text.indexOf(part)", "where a part first begins, or -1"),
    "lastIndexOf": ("text.lastIndexOf(part)", "where a part last begins, or -1"),
    "substring": ("text.substring(start, end)", "the part from start to before end; end may be left out"),
    "replace": ("text.replace(old, new)", "the text with every old replaced by new"),
    "split": ("text.split(separator)", "a list of the parts between the separators"),
    "join": ("list.join(separator)", "the texts of a list joined into one"),
    "lowerAscii": ("text.lowerAscii()", "the text with A–Z in lower case"),
    "upperAscii": ("text.upperAscii()", "the text with a–z in upper case"),
    "trim": ("text.trim()", "the text without white space around it"),
    "reverse": ("x.reverse()", "a list or text from its end to its beginning"),
    "min": ("min(list)", "the least element"),
    "max": ("max(list)", "the greatest element"),
    "sum": ("sum(list)", "the sum of a list of numbers: list.map(x, x.amount).sum()"),
    "distinct": ("list.distinct()", "the list without repetitions"),
    "flatten": ("list.flatten()", "a list of lists as one list"),
    "slice": ("list.slice(start, end)", "the elements from start to before end"),
    "sort": ("list.sort()", "the list in rising order"),
    "first": ("list.first()", "the first element as an optional value: list.first().orValue(other)"),
    "last": ("list.last()", "the last element as an optional value"),
    "orValue": ("optional.orValue(other)", "what an optional value holds, or another value"),
    "hasValue": ("optional.hasValue()", "whether an optional value is there"),
    "value": ("optional.value()", "what an optional value holds"),
    "getFullYear": ("time.getFullYear()", "the year of a timestamp"),
    "getMonth": ("time.getMonth()", "its month, counted from 0"),
    "getDate": ("time.getDate()", "its day of the month, counted from 1"),
    "getDayOfMonth": ("time.getDayOfMonth()", "its day of the month, counted from 0"),
    "getDayOfWeek": ("time.getDayOfWeek()", "its day of the week, 0 for Sunday"),
    "getDayOfYear": ("time.getDayOfYear()", "its day of the year, counted from 0"),
    "getHours": ("time.getHours()", "its hour"),
    "getMinutes": ("time.getMinutes()", "its minute"),
    "getSeconds": ("time.getSeconds()", "its second"),
    "getMilliseconds": ("time.getMilliseconds()", "the milliseconds of its second"),
    "strings.quote": ("strings.quote(text)", "the text in double quotes, with escapes"),
    "base64.encode": ("base64.encode(bytes(text))", "bytes as Base64 text"),
    "base64.decode": ("base64.decode(text)", "Base64 text as bytes"),
    "lists.range": ("lists.range(n)", f"the ints from 0 to n - 1; n is at most {MAX_RANGE:,}"),
    "sets.contains": ("sets.contains(list, part)", "whether every element of part is in the list"),
    "sets.equivalent": ("sets.equivalent(a, b)", "whether two lists hold the same elements"),
    "sets.intersects": ("sets.intersects(a, b)", "whether two lists share an element"),
    "math.greatest": ("math.greatest(a, b)", "the greatest of its arguments, or of a list"),
    "math.least": ("math.least(a, b)", "the least of its arguments, or of a list"),
    "math.abs": ("math.abs(x)", "a number without its sign"),
    "math.sign": ("math.sign(x)", "-1, 0 or 1"),
    "math.ceil": ("math.ceil(x)", "the next whole number above, as a double"),
    "math.floor": ("math.floor(x)", "the next whole number below, as a double"),
    "math.round": ("math.round(x)", "the nearest whole number, as a double"),
    "math.trunc": ("math.trunc(x)", "a number without its decimals, as a double"),
    "math.sqrt": ("math.sqrt(x)", "the square root, as a double"),
    "math.isNaN": ("math.isNaN(x)", "whether a double is not a number"),
    "math.isInf": ("math.isInf(x)", "whether a double is infinite"),
    "math.isFinite": ("math.isFinite(x)", "whether a double is a finite number"),
    "math.bitOr": ("math.bitOr(a, b)", "the bits that are set in either int"),
    "math.bitAnd": ("math.bitAnd(a, b)", "the bits that are set in both ints"),
    "math.bitXor": ("math.bitXor(a, b)", "the bits that are set in one of two ints"),
    "math.bitNot": ("math.bitNot(a)", "an int with all its bits turned"),
    "math.bitShiftLeft": ("math.bitShiftLeft(a, n)", "an int with its bits moved to the left"),
    "math.bitShiftRight": ("math.bitShiftRight(a, n)", "an int with its bits moved to the right"),
    "optional.of": ("optional.of(x)", "an optional value that is there"),
    "optional.none": ("optional.none()", "an optional value that is not there"),
}
"""All functions and macros, by the name that an expression calls them by: how each is used, and what it gives."""


NAMESPACES = frozenset(name.partition(".")[0] for name in FUNCTIONS if "." in name)
"""Names before a dot that are not variables but the first part of a function's name."""


def _guard(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, with what it raises kept in ``current``: ``cel`` would print it."""

    def call(*arguments: Any) -> Any:
        if current.fault is None:
            try:
                return function(*arguments)
            except Exception as error:  # noqa: BLE001  # what it is given may be anything
                current.fault = name, error
        return None

    return call


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **STDLIB_FUNCTIONS,
    "weight": lambda severity: Severity(severity).weight,
    # JSON Schema lets a pattern pass for all but texts; here that is a mistake.
    "matches": lambda text, pattern: compile_pattern(pattern)(text + ""),
    "size": len,
    "flatten": _count_elements(STDLIB_FUNCTIONS["flatten"]),
    "lists.range": _count_elements(_range),
    "replace": _replace,
    "join": _join,
    "split": _count_elements(STDLIB_FUNCTIONS["split"]),
    "distinct": _distinct,
    "sets.contains": lambda items, part: set(map(_freeze, part)) <= set(map(_freeze, items)),
    "sets.equivalent": lambda items, others: set(map(_freeze, items)) == set(map(_freeze, others)),
    "sets.intersects": lambda items, others: not set(map(_freeze, items)).isdisjoint(map(_freeze, others)),
    KEYS: lambda value: current.order_keys(list(value)),
}

IMPLEMENTATIONS = {REPLACED.get(name, name): _guard(name, function) for name, function in _FUNCTIONS.items()}
"""The functions to register with ``cel``, by name."""
