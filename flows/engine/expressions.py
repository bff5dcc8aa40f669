"""The one expression language of flows: CEL, the Common Expression Language, by the package ``cel``.

An expression is checked when its flow is saved (``parse_expression``) and evaluated over JSON values (``Scope``).
What might take long runs in a process of its own that can be killed. A text that begins with ``python:`` names a
registered function and is no expression: callers tell the two apart before they come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from flows.engine.cel_package import cel
from flows.engine.errors import ExpressionError
from flows.engine.expression_cost import (
    MAX_VALUE_DEPTH,
    Size,
    add_sizes,
    count_if_small,
    find_small_count,
    is_cheap,
    measure,
)
from flows.engine.expression_functions import FUNCTIONS, IMPLEMENTATIONS, KEYS, MATCHES, SIZE, Evaluation, current
from flows.engine.expression_messages import check_names, describe_failure, fail_at, fail_syntax
from flows.engine.expression_process import MOST_PROCESSES, START_PATIENCE, ExpressionProcess
from flows.engine.expression_results import KeyIndex, index_keys, sort_keys, to_json
from flows.engine.expression_scanner import Scan, scan
from flows.engine.plugins import DaemonThreads

MAX_LENGTH = 4_000
TIMEOUT = 2.0
"""Seconds that an expression may take in a process of its own."""

_process_threads = DaemonThreads(most=MOST_PROCESSES)

_STEP = frozenset({"input", "steps", "previous"})
_AUDIT = frozenset({"output", "input", "steps"})
FIELD_VARIABLES: Mapping[str, frozenset[str]] = {
    "input_expression": _STEP,
    "input_sanitizer": frozenset({"value"}),
    "output_sanitizer": frozenset({"value"}),
    "rule": _AUDIT,
    "message": _AUDIT | {"item"},
    "suggestions": _AUDIT | {"item"},
    "path": _AUDIT | {"item"},
    "pass_expression": frozenset({"issues", "output"}),
    "failure_reason_expression": frozenset({"issues"}),
    "compute": _STEP,
}
"""The variables that an expression in each field of a flow may use."""


@dataclass(frozen=True)
class CompiledExpression:
    """An expression that is known to be sound: it can be parsed, and its names are known."""

    text: str
    variables: frozenset[str]
    """The variables that it reads."""
    small_count: int
    """Its variables may hold so many values together before what it costs has to be estimated."""
    functions: tuple[str, ...]
    """Those of the registered functions that it may call."""
    scan: Scan = field(repr=False, compare=False)
    program: cel.Program = field(repr=False, compare=False)


@lru_cache(maxsize=2048)
def parse_expression(text: str, *, variables: frozenset[str]) -> CompiledExpression:
    """Check an expression that may read ``variables``, and compile it.

    Raises ``ExpressionError``, with line and column where one place is to blame, for text that is no expression, is
    empty or longer than ``MAX_LENGTH`` characters, and for unknown variables and functions.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"The expression has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed.")
    if not text.strip():
        raise ExpressionError("The expression is empty.")
    for offset, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            fail_at(text, offset, "an expression can't hold NUL or half of a surrogate pair")
    found = scan(text)
    _compile(text)
    check_names(text, found, variables)
    used = frozenset(name for name, _, _ in found.names if name in variables)
    rewritten = _rewrite(text, found)
    # A name that only stands in a text is no loss.
    functions = tuple(name for name in IMPLEMENTATIONS if name.rpartition(".")[2] in rewritten)
    return CompiledExpression(text, used, find_small_count(found, len(text)), functions, found, _compile(rewritten))


def _compile(text: str) -> cel.Program:
    try:
        return cel.compile(text)
    except ValueError as error:
        fail_syntax(text, str(error))


def _rewrite(text: str, found: Scan) -> str:
    """``text`` with our own functions in place of what ``cel`` does badly and lets nobody replace.

    A loop through the keys of a map meets them in a new order each time: a plain path that turns out to be a map is
    replaced by its keys in order. ``matches`` compiles its pattern for each call. ``size`` counts the bytes of a text;
    ours counts characters, but has a list copied for it: a plain path that turns out to be no text keeps theirs.
    """
    edits: list[tuple[int, int, str]] = []
    for loop in found.loops:
        if loop.receiver is not None and loop.macro in ("map", "filter"):
            path = text[slice(*loop.receiver)]
            edits.append((*loop.receiver, f"(type({path}) == map ? {KEYS}({path}) : {path})"))
    edits += [(call.offset, call.offset + len(call.name), MATCHES) for call in found.calls if call.name == "matches"]
    for call in found.calls:
        if call.name == "size" and call.path is not None and call.is_method != bool(call.arguments):
            path, start = text[slice(*call.path)], min(call.offset, call.path[0])
            edits.append((start, call.end, f"(type({path}) == string ? {SIZE}({path}) : size({path}))"))
        elif call.name == "size":
            edits.append((call.offset, call.offset + len(call.name), SIZE))
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def list_functions() -> list[tuple[str, str]]:
    """All functions and macros for documents and editors: how each is used, and what it gives."""
    return [(function.usage, function.description) for function in FUNCTIONS.values()]


class Scope:
    """Variables that expressions are evaluated over, one after the other.

    Only those are read that an expression names, and each is converted for ``cel`` once. They hold JSON values that
    must not change while the scope is in use. A scope belongs to one thread.
    """

    def __init__(self, variables: Mapping[str, Any], *, timeout: float = TIMEOUT) -> None:
        self._variables = variables
        self._timeout = timeout
        self._values: dict[str, Any] = {}
        self._small_counts: dict[str, int | None] = {}
        self._sizes: dict[str, Size] = {}
        self._converted: dict[str, Any] = {}
        self._key_indexes: dict[str, KeyIndex] = {}
        self._context = cel.Context()
        self._functions: set[str] = set()

    def evaluate(self, expression: CompiledExpression, **extra: Any) -> Any:
        """The value of an expression as a JSON value of its own, over the variables and ``extra``.

        Blocks up to ``timeout`` seconds. Raises ``ExpressionError``, and nothing else, for whatever goes wrong, and
        ``ExpressionTimeout`` if it took too long.
        """
        values = self._read(expression, extra)
        if self._is_cheap(expression):
            return self._execute(expression)
        return ExpressionProcess().evaluate(expression.text, values, timeout=self._timeout)

    async def evaluate_async(self, expression: CompiledExpression, **extra: Any) -> Any:
        """What ``evaluate`` does, without blocking the event loop."""
        values = self._read(expression, extra)
        if self._is_cheap(expression):
            return self._execute(expression)
        process = ExpressionProcess()
        try:
            return await _process_threads.run(
                "the expression",
                partial(process.evaluate, expression.text, values, timeout=self._timeout),
                # The process ends itself; this is for a machine on which not even that works.
                timeout=self._timeout + 3 * START_PATIENCE,
            )
        except BaseException:
            # Nobody waits for it any more, also where it was too slow to end itself.
            process.kill()
            raise

    def needs_process(self, expression: CompiledExpression) -> bool:
        """Whether an expression takes too long to be evaluated in this process."""
        self._read(expression, {})
        return not self._is_cheap(expression)

    def evaluate_here(self, expression: CompiledExpression) -> Any:
        """Evaluate in this process however long it takes: what the process that was started for it calls."""
        self._read(expression, {})
        return self._execute(expression)

    def _read(self, expression: CompiledExpression, extra: Mapping[str, Any]) -> dict[str, Any]:
        """The values that the expression names; those that are new here are looked through."""
        values: dict[str, Any] = {}
        for name in expression.variables:
            try:
                values[name] = value = extra[name] if name in extra else self._variables[name]
            except KeyError:
                raise ExpressionError(f"The variable “{name}” has no value here.") from None
            if name not in self._values or self._values[name] is not value:
                try:
                    self._small_counts[name] = count_if_small(value)
                except TypeError:
                    raise ExpressionError(f"The variable “{name}” holds a map with keys that are no text.") from None
                if self._small_counts[name] is None and measure(value).depth > MAX_VALUE_DEPTH:
                    raise ExpressionError(f"The variable “{name}” is nested too deeply for an expression.")
                self._values[name] = value
                self._sizes.pop(name, None)
                self._key_indexes.pop(name, None)
        return values

    def _is_cheap(self, expression: CompiledExpression) -> bool:
        counts = [self._small_counts[name] for name in expression.variables]
        if expression.small_count and None not in counts and sum(filter(None, counts)) <= expression.small_count:
            return True
        for name in expression.variables:
            if name not in self._sizes:
                self._sizes[name] = measure(self._values[name])
        size = add_sizes(self._sizes[name] for name in expression.variables)
        new = sum(
            self._sizes[name].values
            for name in expression.variables
            if name not in self._converted or self._converted[name] is not self._values[name]
        )
        return is_cheap(expression.scan, len(expression.text), size, new)

    def _execute(self, expression: CompiledExpression) -> Any:
        for name in expression.variables:
            self._convert(name)
        for name in expression.functions:
            # To register all of them takes longer than most expressions.
            if name not in self._functions:
                self._functions.add(name)
                self._context.add_function(name, IMPLEMENTATIONS[name])
        list_indexes = partial(self._list_key_indexes, expression)
        evaluation = Evaluation(lambda keys: sort_keys(keys, list_indexes, ()))
        current.evaluation = evaluation
        try:
            result = expression.program.execute(self._context)
            if evaluation.fault is None:
                if result is True or result is False:
                    return result
                return to_json(
                    result,
                    lambda keys: sort_keys(keys, list_indexes, expression.scan.literal_keys),
                )
        except ExpressionError:
            raise
        except BaseException as error:
            # A panic in Rust arrives as something that is no Exception; what ends a process or task goes on.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            if evaluation.fault is None:
                raise ExpressionError(describe_failure(error, expression.scan.tokens)) from None
        raise ExpressionError(evaluation.fault)

    def _convert(self, name: str) -> None:
        value = self._values[name]
        if name not in self._converted or self._converted[name] is not value:
            try:
                self._context.add_variable(name, value)
            except (ValueError, OverflowError, RecursionError):
                raise ExpressionError(
                    f"The variable “{name}” holds something that expressions can't read: "
                    "a number too large for a double, half of a surrogate pair, or what is not JSON."
                ) from None
            self._converted[name] = value

    def _list_key_indexes(self, expression: CompiledExpression) -> list[KeyIndex]:
        for name in expression.variables:
            if name not in self._key_indexes:
                self._key_indexes[name] = index_keys(self._values[name])
        return [self._key_indexes[name] for name in sorted(expression.variables)]
