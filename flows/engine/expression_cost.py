"""How long an expression may take, before it is evaluated: ``cel`` can't be interrupted.

The estimate is an upper bound from the sizes of the variables and from the loops in the text; its figures in
microseconds were measured. It is deliberately crude: what it overrates is evaluated all the same, only elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flows.engine.expression_functions import MAX_RANGE
from flows.engine.expression_scanner import Scan

MAX_INLINE_MICROSECONDS = 20_000
MAX_INLINE_RESULT = 2_000_000
"""Values and characters that an evaluation may bring about in this process."""

CHARACTERS_A_VALUE = 16
"""Characters that a value of a small variable may have on average."""
MAX_SMALL_COUNT = 2_048
"""Values that a small variable holds at most."""

MAX_VALUE_DEPTH = 110
"""A JSON value has at most 100 levels; ``steps`` adds a few around it."""

# Measured, in microseconds: for each token of a loop's body, for each value that ``cel`` copies, for each call of a
# function of ours, for each value or character that such a function is handed, and for each value that is converted.
_TOKEN, _COPY, _CALL, _HANDED, _CONVERT = 0.12, 0.1, 1.5, 0.6, 2.0
# For each character that is searched, and for each two values that are compared.
_CHARACTER, _COMPARED = 0.003, 0.05

_TEXT_FUNCTIONS = frozenset(
    (
        "charAt",
        "contains",
        "double",
        "endsWith",
        "has",
        "indexOf",
        "int",
        "lastIndexOf",
        "lowerAscii",
        "matches",
        "replace",
        "size",
        "split",
        "startsWith",
        "string",
        "substring",
        "trim",
        "type",
        "upperAscii",
        "weight",
    )
)
_PAIRWISE = frozenset({"distinct", "sets.contains", "sets.equivalent", "sets.intersects"})


@dataclass(frozen=True, slots=True)
class Size:
    """How large a value is: all values in it, all characters, the most elements in one list or map, and how deep it is.

    ``part`` is how many values its largest key or element holds, ``text`` the length of its longest text.
    """

    values: int = 0
    characters: int = 0
    longest: int = 0
    depth: int = 0
    part: int = 0
    text: int = 0


def measure(value: Any) -> Size:
    """The size of a JSON value. It is walked level by level, at most one more than ``MAX_VALUE_DEPTH`` of them.

    Raises ``TypeError`` for a map with keys that are no text.
    """
    if isinstance(value, dict):
        children: Iterable[Any] = value.values()
        characters = len("".join(value))
    elif isinstance(value, list | tuple):
        children, characters = value, 0
    else:
        return _measure_level([value])
    inside = [_measure_level([child]) if isinstance(child, dict | list | tuple) else None for child in children]
    scalars = _measure_level([child for child in children if not isinstance(child, dict | list | tuple)])
    total = add_sizes([scalars, *filter(None, inside)])
    return Size(
        values=total.values + 1,
        characters=total.characters + characters,
        longest=max(total.longest, len(inside)),
        depth=total.depth + 1,
        part=max((size.values for size in inside if size is not None), default=1),
        text=total.text,
    )


def _measure_level(level: list[Any]) -> Size:
    values = characters = longest = depth = text = 0
    while level and depth <= MAX_VALUE_DEPTH:
        below: list[Any] = []
        values += len(level)
        for item in level:
            kind = type(item)
            if kind is str:
                characters += len(item)
                text = max(text, len(item))
            elif kind is dict:
                longest = max(longest, len(item))
                characters += len("".join(item))
                below.extend(item.values())
            elif kind is list or kind is tuple:
                longest = max(longest, len(item))
                below.extend(item)
        level = below
        depth += 1
    return Size(values, characters, longest, depth, values, text)


def add_sizes(sizes: Iterable[Size]) -> Size:
    """The size of several values together."""
    values = characters = longest = depth = part = text = 0
    for size in sizes:
        values += size.values
        characters += size.characters
        longest = max(longest, size.longest)
        depth = max(depth, size.depth)
        part = max(part, size.part)
        text = max(text, size.text)
    return Size(values, characters, longest, depth, part, text)


def is_cheap(scan: Scan, text_length: int, size: Size, unconverted: int) -> bool:
    """Whether an expression over variables of this size may be evaluated where it can't be stopped.

    ``unconverted`` is how many of their values ``cel`` has not got yet.
    """
    time = _CONVERT * unconverted
    if not scan.loops and not scan.calls:
        return time <= MAX_INLINE_MICROSECONDS
    # Literals are values too.
    literals = len(scan.tokens)
    values, characters, part = size.values + literals, size.characters + text_length, size.part + literals
    longest = max(size.longest, _longest_literal(scan), 1)
    growth = _estimate_growth(scan, longest, part / values)
    if (values + characters) * growth > MAX_INLINE_RESULT:
        return False
    stretched = _stretch(scan, longest, values, characters, growth)
    text = (size.text + text_length) * growth
    # What ``lists.range`` and ``split`` make is in no variable.
    time += _estimate_time(scan, stretched, values * growth + stretched, part * growth + stretched, text)
    return time <= MAX_INLINE_MICROSECONDS


def find_small_count(scan: Scan, text_length: int) -> int:
    """How many values the variables of an expression may hold together for it to be cheap without an estimate.

    Their characters may be ``CHARACTERS_A_VALUE`` times as many. 0 if there is no such number.
    """
    small = 0
    for exponent in range(4, MAX_SMALL_COUNT.bit_length()):
        count = 1 << exponent
        characters = count * CHARACTERS_A_VALUE
        if not is_cheap(scan, text_length, Size(count, characters, count, 1, count, characters), count):
            break
        small = count
    return small


def count_if_small(value: Any) -> int | None:
    """How many values a small JSON value holds, counting its characters as ``find_small_count`` does; None if it holds
    more than ``MAX_SMALL_COUNT`` or is nested too deeply.

    Raises ``TypeError`` for a map with keys that are no text.
    """
    values = characters = 0
    level = [value]
    for _ in range(MAX_VALUE_DEPTH):
        below: list[Any] = []
        values += len(level)
        if values > MAX_SMALL_COUNT:
            return None
        for item in level:
            kind = type(item)
            if kind is str:
                characters += len(item)
            elif kind is dict:
                characters += len("".join(item))
                below.extend(item.values())
            elif kind is list or kind is tuple:
                below.extend(item)
        if not below:
            count = max(values, -(-characters // CHARACTERS_A_VALUE))
            return count if count <= MAX_SMALL_COUNT else None
        level = below
    return None


def _longest_literal(scan: Scan) -> int:
    return sum(token.text == "," for token in scan.tokens) + 1


def _estimate_growth(scan: Scan, longest: int, part: float) -> float:
    """How many times larger than all variables a result can be: a ``map`` may repeat its element and what is around.

    ``part`` is the largest part of a variable, measured by all of them.
    """
    growth = 1.0
    for loop in scan.loops:
        if loop.macro == "map":
            growth *= max(1, loop.own + longest * (loop.outer + loop.whole + loop.parts * part))
            if growth > MAX_INLINE_RESULT:
                return math.inf
    return growth


def _stretch(scan: Scan, longest: int, values: int, characters: int, growth: float) -> float:
    """The longest list that a loop can go through, once lists are joined, flattened or made."""
    joins = sum(token.text == "+" for token in scan.tokens)
    result: float = longest * (1 + joins)
    for call in scan.calls:
        if call.name == "flatten":
            result = max(result, values * growth)
        elif call.name == "split":
            result = max(result, characters * growth)
        elif call.name == "lists.range":
            argument = call.arguments[0].text if len(call.arguments) == 1 else ""
            result = max(result, min(int(argument), MAX_RANGE) if argument.isdigit() else MAX_RANGE)
    return result


def _estimate_time(scan: Scan, longest: float, values: float, part: float, text: float) -> float:
    time = 0.0
    for loop in scan.loops:
        rounds = longest**loop.depth
        time += rounds * (_TOKEN * loop.tokens + _COPY * (values * loop.whole + part * loop.parts))
        # All elements of a list together are no larger than the list.
        time += rounds / longest * _COPY * values * (loop.own + loop.outer)
        if loop.macro in ("map", "filter"):
            # The list of results is copied for each element that is added to it.
            time += rounds * _COPY * values / 2
    for call in scan.calls:
        rounds = longest**call.depth
        # Only text is handed to ``size`` where it is asked of a plain path.
        if call.name in _TEXT_FUNCTIONS and (call.name != "size" or call.path is not None):
            time += rounds * (_CALL + _CHARACTER * text)
        else:
            time += rounds * (_CALL + _HANDED * values)
        if call.name in _PAIRWISE:
            time += rounds * _COMPARED * longest**2
    return time
