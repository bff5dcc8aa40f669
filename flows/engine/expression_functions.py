"""The functions that expressions can call: the standard library of ``cel``, its extensions, and our own.

Some extensions are replaced. Theirs could be made to fill the memory (``replace``, ``join``, ``lists.range``), take
quadratic time (``distinct``, ``sets``) or compile a regular expression for every call (``matches``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jsonschema_rs
from cel.stdlib import STDLIB_FUNCTIONS

from flows.engine.history import Severity

MAX_PRODUCED = 1_000_000
"""Characters and list elements that the functions may produce in one evaluation, all in all."""
MAX_RANGE = 10_000

MATCHES = "matches_cached"
"""The name of ``matches`` in a compiled expression; ``cel`` does not let us replace its own."""
SIZE = "size_in_characters"
"""The name of ``size`` in a compiled expression; that of ``cel`` counts the bytes of a text in UTF-8."""
KEYS = "keys_in_order"
"""Wraps a map before a loop goes through its keys; ``cel`` would give them in a new order each time."""

LOOPS = frozenset({"all", "exists", "exists_one", "filter", "map"})
"""The macros that go through a list or the keys of a map and bind a name to each element."""
NAMESPACES = frozenset({"base64", "lists", "math", "optional", "sets", "strings"})
"""Names before a dot that are no variables but the first part of a function's name."""

_WEIGHTS = {severity.value: severity.weight for severity in Severity}


class NeedsProcessError(Exception):
    """A function made a list that is too long to go on in this process."""


@dataclass
class Evaluation:
    """The state that the functions of one evaluation share."""

    order_keys: Callable[[Sequence[str]], list[str]]
    allows: Callable[[int, int], bool]
    """Whether to go on in this process, given the length of a new list and all that was produced."""
    fault: str | None = None
    """Why the first function that failed did so."""
    needs_process: bool = False
    produced: int = 0

    def produce(self, amount: int, length: int = 0) -> None:
        """Count characters or elements before they are made, ``length`` of them in one list.

        Raises ``ValueError`` for more than ``MAX_PRODUCED``.
        """
        self.produced += max(0, amount)
        if self.produced > MAX_PRODUCED:
            raise ValueError(f"more than {MAX_PRODUCED:,} characters or list elements would come out")
        if not self.allows(length, self.produced):
            raise NeedsProcessError


class _Current(threading.local):
    evaluation: Evaluation


current = _Current()
"""``current.evaluation`` is set while ``cel`` executes; it calls functions with their arguments only."""


# ---------------------------------------------------------------------------------------------------------------
# Replacements


def _weight(severity: str) -> int:
    if severity not in _WEIGHTS:
        raise ValueError(f"“{str(severity)[:40]}” is no severity; low, medium, high and critical are")
    return _WEIGHTS[severity]


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern)(text)


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
        raise ValueError(f"“{pattern[:60]}” is no regular expression that can be used here") from None


def _keys_in_order(value: dict[str, Any]) -> list[str]:
    return current.evaluation.order_keys(list(value))


def _freeze(value: Any) -> Any:
    """A hashable value that equals that of another one exactly if CEL calls the two equal."""
    if isinstance(value, bool):
        # A bool is no number to CEL, and is one to Python.
        return (bool, value)
    if isinstance(value, dict):
        return frozenset((key, _freeze(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    return value


def _distinct(items: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(_freeze(item), item)
    return list(found.values())


def _freeze_all(items: list[Any]) -> set[Any]:
    return {_freeze(item) for item in items}


def _range(count: int) -> list[int]:
    if not 0 <= count <= MAX_RANGE:
        raise ValueError(f"lists.range: {count} is out of range, 0 to {MAX_RANGE:,} is possible")
    current.evaluation.produce(count, count)
    return list(range(count))


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    result: list[Any] = STDLIB_FUNCTIONS["flatten"](items, depth)
    current.evaluation.produce(len(result), len(result))
    return result


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    current.evaluation.produce(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def _join(items: list[Any], separator: str = "") -> str:
    for item in items:
        if not isinstance(item, str):
            raise ValueError("join takes a list of texts; write list.map(x, string(x)) for other values")
    current.evaluation.produce(sum(len(item) for item in items) + len(items) * len(separator))
    return separator.join(items)


def _split(text: str, separator: str, limit: int | None = None) -> list[str]:
    count = text.count(separator) + 1
    current.evaluation.produce(len(text), count if limit is None or limit < 0 else min(count, limit))
    parts: list[str] = STDLIB_FUNCTIONS["split"](text, separator, limit)
    return parts


# ---------------------------------------------------------------------------------------------------------------
# The table


class Function(NamedTuple):
    """A function: how it is used, and what it gives."""

    usage: str
    description: str


def _describe(**usages: tuple[str, str]) -> dict[str, Function]:
    return {name: Function(*texts) for name, texts in usages.items()}


FUNCTIONS: dict[str, Function] = {
    **_describe(
        all=("list.all(x, condition)", "whether the condition holds for every element of a list or key of a map"),
        exists=("list.exists(x, condition)", "whether it holds for at least one"),
        exists_one=("list.exists_one(x, condition)", "whether it holds for exactly one"),
        filter=("list.filter(x, condition)", "the elements or keys that it holds for"),
        map=("list.map(x, value)", "a list of the values; list.map(x, condition, value) leaves elements out"),
        has=("has(map.key)", "whether a map has a key"),
        size=("size(x)", "how many characters, elements, keys or bytes text, a list, a map or bytes have"),
        type=("type(x)", "the type of a value: type(x) == string"),
        dyn=("dyn(x)", "the value itself"),
        int=("int(x)", "a number or text as an int; decimals are cut off"),
        uint=("uint(x)", "a number or text as an unsigned int"),
        double=("double(x)", "a number or text as a double"),
        string=("string(x)", "a number, bool, timestamp or duration as text"),
        bytes=("bytes(text)", "the bytes of a text in UTF-8"),
        bool=("bool(text)", "the text true or false as a bool"),
        timestamp=("timestamp(text)", "a time, from text such as 2030-01-31T12:00:00Z"),
        duration=("duration(text)", "a span of time, from text such as 1h30m"),
        weight=("weight(severity)", "1, 2, 4, 8 for low, medium, high, critical"),
        contains=("x.contains(part)", "whether a text holds a part, or a list an element"),
        startsWith=("text.startsWith(start)", "whether a text begins with another"),
        endsWith=("text.endsWith(end)", "whether a text ends with another"),
        matches=("text.matches(pattern)", "whether a regular expression is found in a text; anchor it with ^ and $"),
        charAt=("text.charAt(index)", "the character at a position, counted from 0"),
        indexOf=("text.indexOf(part)", "where a part first begins, or -1"),
        lastIndexOf=("text.lastIndexOf(part)", "where a part last begins, or -1"),
        substring=("text.substring(start, end)", "the part from start to before end; end may be left out"),
        replace=("text.replace(old, new)", "the text with every old replaced by new"),
        split=("text.split(separator)", "a list of the parts between the separators"),
        join=("list.join(separator)", "the texts of a list in one"),
        lowerAscii=("text.lowerAscii()", "the text with A–Z in lower case"),
        upperAscii=("text.upperAscii()", "the text with a–z in upper case"),
        trim=("text.trim()", "the text without white space around it"),
        reverse=("x.reverse()", "a list or text from its end to its beginning"),
        min=("min(list)", "the least element"),
        max=("max(list)", "the greatest element"),
        sum=("sum(list)", "the sum of a list of numbers: list.map(x, x.amount).sum()"),
        distinct=("list.distinct()", "the list without repetitions"),
        flatten=("list.flatten()", "a list of lists as one list"),
        slice=("list.slice(start, end)", "the elements from start to before end"),
        sort=("list.sort()", "the list in rising order"),
        first=("list.first()", "the first element as an optional value: list.first().orValue(other)"),
        last=("list.last()", "the last element as an optional value"),
        orValue=("optional.orValue(other)", "what an optional value holds, or another value"),
        hasValue=("optional.hasValue()", "whether an optional value is there"),
        value=("optional.value()", "what an optional value holds"),
        getFullYear=("time.getFullYear()", "the year of a timestamp"),
        getMonth=("time.getMonth()", "its month, counted from 0"),
        getDate=("time.getDate()", "its day of the month, counted from 1"),
        getDayOfMonth=("time.getDayOfMonth()", "its day of the month, counted from 0"),
        getDayOfWeek=("time.getDayOfWeek()", "its day of the week, 0 for Sunday"),
        getDayOfYear=("time.getDayOfYear()", "its day of the year, counted from 0"),
        getHours=("time.getHours()", "its hour"),
        getMinutes=("time.getMinutes()", "its minute"),
        getSeconds=("time.getSeconds()", "its second"),
        getMilliseconds=("time.getMilliseconds()", "the milliseconds of its second"),
    ),
    "strings.quote": Function("strings.quote(text)", "the text in double quotes, with escapes"),
    "base64.encode": Function("base64.encode(bytes(text))", "bytes as Base64 text"),
    "base64.decode": Function("base64.decode(text)", "Base64 text as bytes"),
    "lists.range": Function("lists.range(n)", f"the ints from 0 to n - 1; n is at most {MAX_RANGE:,}"),
    "sets.contains": Function("sets.contains(list, part)", "whether every element of part is in the list"),
    "sets.equivalent": Function("sets.equivalent(a, b)", "whether two lists hold the same elements"),
    "sets.intersects": Function("sets.intersects(a, b)", "whether two lists share an element"),
    "math.greatest": Function("math.greatest(a, b)", "the greatest of its arguments, or of a list"),
    "math.least": Function("math.least(a, b)", "the least of its arguments, or of a list"),
    "math.abs": Function("math.abs(x)", "a number without its sign"),
    "math.sign": Function("math.sign(x)", "-1, 0 or 1"),
    "math.ceil": Function("math.ceil(x)", "the next whole number above, as a double"),
    "math.floor": Function("math.floor(x)", "the next whole number below, as a double"),
    "math.round": Function("math.round(x)", "the nearest whole number, as a double"),
    "math.trunc": Function("math.trunc(x)", "a number without its decimals, as a double"),
    "math.sqrt": Function("math.sqrt(x)", "the square root, as a double"),
    "math.isNaN": Function("math.isNaN(x)", "whether a double is not a number"),
    "math.isInf": Function("math.isInf(x)", "whether a double is infinite"),
    "math.isFinite": Function("math.isFinite(x)", "whether a double is a finite number"),
    "math.bitOr": Function("math.bitOr(a, b)", "the bits that are set in either int"),
    "math.bitAnd": Function("math.bitAnd(a, b)", "the bits that are set in both ints"),
    "math.bitXor": Function("math.bitXor(a, b)", "the bits that are set in one of two ints"),
    "math.bitNot": Function("math.bitNot(a)", "an int with all its bits turned"),
    "math.bitShiftLeft": Function("math.bitShiftLeft(a, n)", "an int with its bits moved to the left"),
    "math.bitShiftRight": Function("math.bitShiftRight(a, n)", "an int with its bits moved to the right"),
    "optional.of": Function("optional.of(x)", "an optional value that is there"),
    "optional.none": Function("optional.none()", "an optional value that is not there"),
}
"""All functions and macros, by the name that an expression calls them by."""


def _guard(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, with an error kept for our own sentence about it, where ``cel`` would print it."""
    name = {MATCHES: "matches", SIZE: "size"}.get(name, name)
    usage = FUNCTIONS[name].usage if name in FUNCTIONS else name

    def call(*arguments: Any) -> Any:
        evaluation = current.evaluation
        if evaluation.fault is not None:
            return None
        try:
            return function(*arguments)
        except NeedsProcessError:
            evaluation.needs_process = True
            reason = "it makes long lists"
        except (LookupError, ValueError) as error:
            reason = str(error)
        except (ArithmeticError, AttributeError, MemoryError, RecursionError, TypeError):
            reason = "the values are not what it takes"
        evaluation.fault = f"“{usage}” can't be worked out: {reason}."
        return None

    return call


_REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "weight": _weight,
    MATCHES: _matches,
    SIZE: len,
    KEYS: _keys_in_order,
    "distinct": _distinct,
    "flatten": _flatten,
    "lists.range": _range,
    "replace": _replace,
    "join": _join,
    "split": _split,
    "sets.contains": lambda items, part: _freeze_all(part) <= _freeze_all(items),
    "sets.equivalent": lambda items, others: _freeze_all(items) == _freeze_all(others),
    "sets.intersects": lambda items, others: not _freeze_all(items).isdisjoint(_freeze_all(others)),
}

IMPLEMENTATIONS = {name: _guard(name, function) for name, function in {**STDLIB_FUNCTIONS, **_REPLACEMENTS}.items()}
"""The functions to register with ``cel``, by name."""
