"""Evaluates expressions over JSON values: in this process where that takes milliseconds, else in one of its own.

``cel`` keeps maps without an order. A step's input must be the same whenever it is asked for, so the keys of a result
are put back into the order of the expression's own literals, or else of the variables (ADR 5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

import cel

from flows.engine.errors import ExpressionError
from flows.engine.expression_functions import FUNCTIONS, IMPLEMENTATIONS, Evaluation, current
from flows.engine.expressions import CompiledExpression
from flows.engine.json_values import MAX_DEPTH

_VALUE_SIZE = 64
"""Characters that take as long to copy as one value: about 0.1 µs."""
MAX_INLINE_SIZE = 12_000 * _VALUE_SIZE
"""Size of the variables of an expression that is evaluated in this process: to convert them takes up to 30 ms."""
MAX_INLINE_COPIED = 200_000 * _VALUE_SIZE
"""What the loops of such an expression may copy: up to 40 ms."""
MAX_INLINE_ROUNDS = 20_000
_MAX_VARIABLE_DEPTH = MAX_DEPTH + 10
"""The variable ``steps`` adds a few levels around JSON values."""
NEEDS_PROCESS = object()
"""Stands for a value that has to be worked out in another process."""

_HINTS: dict[type[BaseException], str] = {
    IndexError: " Ask size(list) first.",
    ZeroDivisionError: " Ask first whether it is 0.",
    TypeError: " Write int(x), double(x) or string(x); conditions must be true or false, and null has no keys.",
}


class Scope:
    """Variables that expressions are evaluated over, one after the other; each is converted for ``cel`` once.

    They are JSON values that must not change while the scope is in use. A scope belongs to one thread.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._context = cel.Context()
        self._sizes: dict[str, tuple[int, int]] = {}
        """Of the variables that the context holds."""

    def evaluate(
        self,
        expression: CompiledExpression,
        extra: Mapping[str, Any] = MappingProxyType({}),
        *,
        is_limited: bool = True,
    ) -> Any:
        """The value of an expression over the variables and ``extra``, as a JSON value of its own.

        ``NEEDS_PROCESS`` if that ``is_limited`` and would take too long here. Raises ``ExpressionError`` if it fails.
        """
        values = select_variables(expression, {**self._variables, **extra} if extra else self._variables)
        size, longest = len(expression.text), 1
        fresh = [name for name in values if name in extra or name not in self._sizes]
        for name, value in values.items():
            its_size, its_longest = measure(name, value) if name in fresh else self._sizes[name]
            size += its_size
            longest = max(longest, its_longest)
            if size > MAX_INLINE_SIZE and is_limited:
                return NEEDS_PROCESS
            if name in fresh:
                self._convert(name, value)
                self._sizes[name] = its_size, its_longest
            if name in extra:
                del self._sizes[name]  # the next evaluation has another value

        def allows(length: int, produced: int) -> bool:
            """Whether the evaluation stays within the limits, given what functions make in its course."""
            return not is_limited or expression.cost.is_within(
                size + produced * _VALUE_SIZE,
                max(longest, length),
                max_rounds=MAX_INLINE_ROUNDS,
                max_copied=MAX_INLINE_COPIED,
            )

        return self._execute(expression, _KeyOrder(values), allows) if allows(longest, 0) else NEEDS_PROCESS

    def _convert(self, name: str, value: Any) -> None:
        try:
            self._context.add_variable(name, value)
        except (ValueError, OverflowError, RecursionError):
            raise ExpressionError(
                f"The variable “{name}” holds something that expressions can't read: "
                "a number too large for a double, half of a surrogate pair, or what is not JSON."
            ) from None

    def _execute(self, expression: CompiledExpression, key_order: _KeyOrder, allows: Callable[[int, int], bool]) -> Any:
        for function in expression.functions:
            self._context.add_function(function, IMPLEMENTATIONS[function])
        evaluation = Evaluation(lambda keys: key_order.sort(keys, ()), allows)
        current.evaluation = evaluation
        try:
            result = expression.program.execute(self._context)
        except BaseException as error:
            # A panic in Rust arrives as something that is no Exception; what ends a process or task goes on.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            if evaluation.fault is None:
                raise ExpressionError(_describe_failure(error)) from None
        if evaluation.needs_process:
            return NEEDS_PROCESS
        if evaluation.fault is not None:
            raise ExpressionError(evaluation.fault)
        return _to_json(result, lambda keys: key_order.sort(keys, expression.literal_keys))


def select_variables(expression: CompiledExpression, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the ``variables`` that an expression reads. Raises ``ExpressionError`` if one has no value."""
    for name in expression.variables:
        if name not in variables:
            raise ExpressionError(f"The variable “{name}” has no value here.")
    return {name: variables[name] for name in sorted(expression.variables)}


def measure(name: str, value: Any) -> tuple[int, int]:
    """The size of a JSON value in characters, and the number of elements in its longest list or map.

    Stops counting above ``MAX_INLINE_SIZE``. Raises ``ExpressionError`` for what is nested too deeply, and for a map
    with keys that are no text.
    """
    size, longest, level = 0, 1, [value]
    for _ in range(_MAX_VARIABLE_DEPTH):
        below: list[Any] = []
        size += _VALUE_SIZE * len(level)
        for item in level:
            kind = type(item)
            if kind is str:
                size += len(item)
                continue
            if kind is dict:
                try:
                    size += len("".join(item))
                except TypeError:
                    raise ExpressionError(f"The variable “{name}” holds a map with keys that are no text.") from None
                below.extend(item.values())
            elif kind is list or kind is tuple:
                below.extend(item)
            else:
                continue
            if len(item) > longest:
                longest = len(item)
        if not below or size > MAX_INLINE_SIZE:
            return size, longest
        level = below
    raise ExpressionError(f"The variable “{name}” is nested too deeply for an expression.")


# ---------------------------------------------------------------------------------------------------------------
# Results


class _KeyOrder:
    """The order of keys in the variables of an evaluation; they are gone through when it is first asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @cached_property
    def _found(self) -> tuple[dict[frozenset[str], tuple[str, ...]], dict[str, None]]:
        """The keys of each map, by the set of them, and all keys in the order in which they are first met."""
        shapes: dict[frozenset[str], tuple[str, ...]] = {}
        known: dict[str, None] = {}
        stack: list[Any] = list(self._values.values())[::-1]
        while stack:
            item = stack.pop()
            if isinstance(item, dict):
                shapes.setdefault(frozenset(item), tuple(item))
                known.update(dict.fromkeys(item))
                stack.extend(reversed(item.values()))
            elif isinstance(item, list | tuple):
                stack.extend(reversed(item))
        return shapes, known

    def sort(self, keys: Sequence[str], literals: Sequence[str]) -> list[str]:
        """The keys of a map in the order of a literal in the expression, else of a map in the variables that has just
        these keys, else of the variables as a whole; what is in none of them comes last, by the alphabet.
        """
        wanted = frozenset(keys)
        if wanted.issubset(literals):
            return list(dict.fromkeys(key for key in literals if key in wanted))
        shapes, known = self._found
        if wanted in shapes:
            return list(shapes[wanted])
        ranks: dict[str, int] = {}
        for key in (*literals, *known):
            ranks.setdefault(key, len(ranks))
        return sorted(keys, key=lambda key: (ranks.get(key, len(ranks)), key))


def _to_json(value: Any, sort_keys: Callable[[Sequence[str]], list[str]], depth: int = 0) -> Any:
    """A result of ``cel`` as a JSON value: times as text, optional values as what they hold, or null.

    Raises ``ExpressionError`` for bytes, NaN and infinities, and for nesting deeper than ``MAX_DEPTH``.
    """
    match value:
        case None | str() | int():
            return value
        case float():
            if math.isfinite(value):
                return value
            raise ExpressionError("The result holds NaN or an infinite number, which JSON doesn't know.")
        case list() | tuple() | dict() if depth >= MAX_DEPTH:
            raise ExpressionError(f"The result is nested deeper than {MAX_DEPTH} levels.")
        case list() | tuple():
            return [_to_json(item, sort_keys, depth + 1) for item in value]
        case dict():
            named = {key if isinstance(key, str) else _name_key(key): item for key, item in value.items()}
            keys = sort_keys(list(named)) if len(named) > 1 else named
            return {key: _to_json(named[key], sort_keys, depth + 1) for key in keys}
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():g}s"
        case cel.OptionalValue():
            return _to_json(value.value(), sort_keys, depth) if value.has_value() else None
        case bytes():
            raise ExpressionError(
                "The result holds bytes, which JSON doesn't know; write base64.encode(x) or string(x)."
            )
    raise ExpressionError(f"The result holds a value of type “{type(value).__name__}”, which has no JSON form.")


def _name_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _describe_failure(error: BaseException) -> str:
    """One sentence for what ``cel`` raised while it evaluated an expression, and what to do about it."""
    reason = str(error)[:200].partition(". ")[0].rstrip(".") or type(error).__name__
    if isinstance(error, KeyError):
        return f"There is no key {reason}. Ask first with has(x.key) or 'key' in x."
    called = re.match(r"Undefined variable or function: '(\w+)'|Function '(\w+)' error", reason)
    if called and (name := called[1] or called[2]) in FUNCTIONS:
        usage, description = FUNCTIONS[name]
        return f"“{name}” does not take these values here. “{usage}” gives {description}."
    hint = next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
    return f"The expression can't be evaluated: {reason}.{hint}"
