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
from flows.engine.expression_functions import FUNCTIONS, IMPLEMENTATIONS, NeedsProcessError, current
from flows.engine.expressions import ITEM_VARIABLES, CompiledExpression
from flows.engine.json_values import MAX_DEPTH, describe_type, shorten

MAX_INLINE_SIZE = 12_000
"""Values in the variables of an expression that is evaluated in this process: to convert them takes up to 30 ms."""
MAX_INLINE_ITEMS = 2_000
"""Elements of which a rule is asked in this process: 60 ms at most."""
_VALUE_LENGTH = 64
"""Characters that take as long to copy as one value: about 0.1 µs."""
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
        self._context = cel.Context(functions=IMPLEMENTATIONS)
        self._measures: dict[str, tuple[int, int]] = {}
        """Sizes of the variables in the context."""

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
        values = select_variables(expression, {**self._variables, **extra})
        for name in extra:
            self._measures.pop(name, None)
        measures = {name: self._measures.get(name) or measure(value) for name, value in values.items()}
        size = len(expression.text) // _VALUE_LENGTH + sum(measured[0] for measured in measures.values())
        longest = max((measured[1] for measured in measures.values()), default=1)

        def is_quick(produced: int, length: int) -> bool:
            largest = size + length + produced // _VALUE_LENGTH
            return not is_limited or expression.work.is_quick(largest, max(longest, length))

        if (is_limited and size > MAX_INLINE_SIZE) or not is_quick(0, 0):
            return NEEDS_PROCESS
        for name in values.keys() - self._measures.keys():
            try:
                self._context.add_variable(name, values[name])
            except (ValueError, OverflowError, RecursionError):
                raise ExpressionError(f"The variable “{name}” holds a value that is not JSON.") from None
            if name not in extra:
                self._measures[name] = measures[name]
        key_order = _KeyOrder(values)
        current.begin(key_order.sort, is_quick)
        try:
            result = expression.program.execute(self._context)
        except BaseException as error:
            # A panic in Rust arrives as something that is not an Exception; what ends a process or task goes on.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            if current.fault is None:
                raise ExpressionError(_describe_failure(error)) from None
        if current.fault is not None:
            function, fault = current.fault
            if isinstance(fault, NeedsProcessError):
                return NEEDS_PROCESS
            usage = FUNCTIONS[function][0] if function in FUNCTIONS else function
            is_readable = isinstance(fault, LookupError | ValueError)
            reason = shorten(str(fault), 200).rstrip(".") if is_readable else "the values are not what it takes"
            raise ExpressionError(f"“{usage}” can't be worked out: {reason}.")
        return _to_json(result, lambda keys: key_order.sort(keys, expression.literal_keys))

    def ask_each(self, rule: CompiledExpression, items: Sequence[Any], *, is_limited: bool = True) -> Any:
        """What a rule says of each of the ``items``: true, false, or a sentence where it gives neither.

        A list in their order; ``NEEDS_PROCESS`` if that ``is_limited`` and would take too long here.
        """
        if is_limited and not self._is_quick_for_each(rule, items):
            return NEEDS_PROCESS
        answers: list[bool | str] = []
        for index, item in enumerate(items):
            try:
                answer = self.evaluate(rule, {"item": item, "index": index}, is_limited=is_limited)
            except ExpressionError as error:
                answers.append(str(error))
                continue
            if answer is NEEDS_PROCESS:
                return NEEDS_PROCESS
            is_boolean = isinstance(answer, bool)
            answers.append(
                answer if is_boolean else f"the rule gave {describe_type(answer)}; it must give true or false."
            )
        return answers

    def _is_quick_for_each(self, rule: CompiledExpression, items: Sequence[Any]) -> bool:
        if len(items) > MAX_INLINE_ITEMS:
            return False
        shared = [measure(self._variables.get(name)) for name in rule.variables - ITEM_VARIABLES]
        own = [measure(item) for item in items] if "item" in rule.variables else []
        # Every element has the other variables copied for itself.
        shared_size, own_size = (sum(size for size, _ in measured) for measured in (shared, own))
        longest = max((length for _, length in (*shared, *own)), default=1)
        is_small = shared_size + own_size <= MAX_INLINE_SIZE
        return is_small and rule.work.is_quick(shared_size * len(items) + own_size, longest, len(items))


def select_variables(expression: CompiledExpression, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the ``variables`` that an expression reads. Raises ``ExpressionError`` if one has no value."""
    for name in expression.variables - variables.keys():
        raise ExpressionError(f"The variable “{name}” has no value here.")
    return {name: variables[name] for name in sorted(expression.variables)}


def measure(value: Any) -> tuple[int, int]:
    """How many values a JSON value holds, texts counted by their length, and how many its longest list or map has.

    Stops counting above ``MAX_INLINE_SIZE``.
    """
    size, longest, left = 0, 1, [value]
    while left and size <= MAX_INLINE_SIZE:
        item = left.pop()
        size += 1
        if isinstance(item, str):
            size += len(item) // _VALUE_LENGTH
        elif isinstance(item, dict):
            size += len("".join(item)) // _VALUE_LENGTH
            longest = max(longest, len(item))
            left.extend(item.values())
        elif isinstance(item, list | tuple):
            longest = max(longest, len(item))
            left.extend(item)
    return size, longest


# ---------------------------------------------------------------------------------------------------------------
# Results


class _KeyOrder:
    """The order of keys in the variables of an evaluation; they are gone through when it is first asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @cached_property
    def _found(self) -> tuple[dict[frozenset[str], list[str]], dict[str, None]]:
        """The keys of each map, by the set of them, and all keys in the order in which they are first met."""
        shapes: dict[frozenset[str], list[str]] = {}
        known: dict[str, None] = {}
        left = list(self._values.values())[::-1]
        while left:
            item = left.pop()
            if isinstance(item, dict):
                shapes.setdefault(frozenset(item), list(item))
                known.update(dict.fromkeys(item))
                left.extend(reversed(item.values()))
            elif isinstance(item, list | tuple):
                left.extend(reversed(item))
        return shapes, known

    def sort(self, keys: Sequence[str], literals: Sequence[str] = ()) -> list[str]:
        """The keys of a map in the order of a literal in the expression, else of a map in the variables that has just
        these keys, else of the variables as a whole; what is in none of them comes last, by the alphabet.
        """
        shapes, known = self._found
        wanted = frozenset(keys)
        if wanted in shapes and not wanted.issubset(literals):
            return shapes[wanted]
        ranks = {key: rank for rank, key in enumerate(dict.fromkeys((*literals, *known)))}
        return sorted(keys, key=lambda key: (ranks.get(key, len(ranks)), key))


def _to_json(value: Any, sort_keys: Callable[[Sequence[str]], list[str]], depth: int = 0) -> Any:
    """A result of ``cel`` as a JSON value: times as text, optional values as what they hold, or null.

    Raises ``ExpressionError`` for what has no JSON form, and for nesting deeper than ``MAX_DEPTH``.
    """
    if depth > MAX_DEPTH:
        raise ExpressionError(f"The result is nested deeper than {MAX_DEPTH} levels.")
    match value:
        case None | str() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_to_json(item, sort_keys, depth + 1) for item in value]
        case dict():
            named = {str(key).lower() if isinstance(key, bool) else str(key): item for key, item in value.items()}
            keys = sort_keys(list(named)) if len(named) > 1 else named
            return {key: _to_json(named[key], sort_keys, depth + 1) for key in keys}
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():f}".rstrip("0").rstrip(".") + "s"
        case cel.OptionalValue():
            return _to_json(value.value(), sort_keys, depth) if value.has_value() else None
    what = "NaN or an infinite number" if isinstance(value, float) else f"a value of type “{type(value).__name__}”"
    raise ExpressionError(f"The result holds {what}, which has no JSON form.")


def _describe_failure(error: BaseException) -> str:
    """One sentence for what ``cel`` raised while it evaluated an expression, and what to do about it."""
    reason = str(error)[:200].partition(". ")[0].rstrip(".") or type(error).__name__
    if isinstance(error, KeyError):
        return f"There is no key {reason}. Ask first with has(x.key) or 'key' in x."
    called = re.match(r"Undefined variable or function: '(\w+)'|Function '(\w+)' error", reason)
    if called and (name := called[1] or called[2]) in FUNCTIONS:
        usage, gives = FUNCTIONS[name]
        return f"“{name}” does not take these values here. “{usage}” gives {gives}."
    hint = next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
    return f"The expression can't be evaluated: {reason}.{hint}"
