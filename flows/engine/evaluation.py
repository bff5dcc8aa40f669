"""The fields of a flow that hold an expression: CEL text or ``python:name``, evaluated over one set of variables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any

from pydantic import BaseModel

from flows.engine.clock import describe_seconds
from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.expression_scope import NEEDS_PROCESS, Scope
from flows.engine.expressions import FIELD_VARIABLES, parse_expression
from flows.engine.history import History
from flows.engine.json_values import MOST_VALUES, clean_value
from flows.engine.plugins import PREFIX, DaemonThreads, PluginName, PythonFunction, Registry, copy_json
from flows.engine.spec import FlowSpec
from flows.engine.time_limits import Patience

MAX_MESSAGE_LENGTH = 1_000
"""Characters that are kept of what a Python function raised."""

plugin_threads = DaemonThreads()
"""Where synchronous plug-ins of this process are called."""


class Variables(dict[str, Any]):
    """Variables by name. A function stands for what it gives, and is called when the variable is first read."""

    def extend(self, **values: Any) -> Variables:
        """These variables and more, or others of the same name."""
        return Variables(self.copy() | values)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if type(value) is FunctionType:
            value = self[name] = value()
        return value


def step_variables(spec: FlowSpec, history: History, index: int) -> Variables:
    """``input``, ``steps`` and ``previous`` as step ``index`` sees them: final attempts of the steps before it."""

    def build_steps() -> list[dict[str, Any]]:
        return [_describe_step(spec, history, position) for position in range(index)]

    final = history.final(index - 1)
    previous = final.usable_output if final else None
    # Few expressions need all steps, and building them takes long.
    return Variables({"input": history.initial_input, "steps": build_steps, "previous": previous})


def _describe_step(spec: FlowSpec, history: History, index: int) -> dict[str, Any]:
    final = history.final(index)
    return {
        "name": spec.step(index).name if index else "Initial input",
        "output": final.usable_output if final else None,
        "issues": [issue.model_dump(mode="json") for issue in final.issues] if final else [],
        "passed": bool(final and final.passed),
    }


class Evaluator:
    """Evaluates the fields of one attempt over the same variables and notes which plug-ins they used."""

    def __init__(
        self,
        variables: Variables,
        registry: Registry,
        patience: Patience | None = None,
        *,
        before_slow: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.variables = variables
        self.registry = registry
        self.patience = patience or Patience()
        self.plugins: dict[str, str] = {}
        """Fingerprints of the plug-ins used so far, by name with their prefix."""
        self._before_slow = before_slow
        self._scope = Scope(variables)

    async def evaluate(self, field: str, text: str, **extra: Any) -> Any:
        """The value of ``text``, which stands in ``field`` of the spec, over the variables and ``extra``.

        Raises ``ExpressionError`` whatever goes wrong in it.
        """
        if not text.startswith(PREFIX):
            expression = parse_expression(text, variables=FIELD_VARIABLES[field])
            value = self._scope.evaluate_here(expression, extra)
            if value is NEEDS_PROCESS:
                await self._prepare_slow()
                async with self.patience.until_deadline():
                    value = await self._scope.evaluate_in_process(expression)
            return value
        await self._prepare_slow()
        return await self.call(text, find_function(text, field, self.registry), self.variables.extend(**extra))

    async def _prepare_slow(self) -> None:
        if self._before_slow is not None:
            await self._before_slow()

    async def call(self, text: str, function: PythonFunction, variables: Mapping[str, Any]) -> Any:
        """Call the registered function that ``text`` names, and note its fingerprint; see ``call_function``."""
        self.plugins[text] = function.fingerprint
        return await call_function(text, function, variables, self.patience)


async def call_function(name: str, function: PythonFunction, variables: Mapping[str, Any], patience: Patience) -> Any:
    """Call a Python function, off the event loop unless it is a coroutine function; a generator becomes a list.

    Raises ``ExpressionError`` for whatever it raises, and if it does not return in time.
    """
    async with patience.until_deadline():
        if function.is_async:
            return await _finish_call(name, partial(function.call, variables), patience.plugin_timeout)
        call = partial(_call_in_thread, name, function, variables)
        value = await plugin_threads.run(name, call, timeout=patience.plugin_timeout)
        if isinstance(value, Awaitable | AsyncIterator):
            return await _finish_call(name, lambda: value, patience.plugin_timeout)
        return value


async def _finish_call(name: str, call: Callable[[], Any], seconds: float) -> Any:
    """What an asynchronous call gives in the end."""
    found: list[Any] = []
    try:
        async with asyncio.timeout(seconds):
            try:
                value = call()
                if isinstance(value, Awaitable):
                    value = await value
                if isinstance(value, AsyncIterator):
                    async for element in value:
                        found.append(element)  # noqa: PERF401  # what came before an error is kept
                    value = found
                return _take(value, found)
            except (Exception, SystemExit) as error:
                raise _wrap_error(name, error, found) from error
    except TimeoutError:
        # One that the function raised itself has become its fault already.
        raise ExpressionTimeout(f"“{name}” did not return within {describe_seconds(seconds)}.") from None


def _call_in_thread(name: str, function: PythonFunction, variables: Mapping[str, Any]) -> Any:
    found: list[Any] = []
    try:
        return _take(function.call(variables), found)
    except BaseException as error:
        # Whatever left the thread as it is might mean something else there: a StopIteration would never reach the task.
        raise _wrap_error(name, error, found) from error


def _take(value: Any, found: list[Any]) -> Any:
    """What a function gave; generators and the like run here, where what they raise is expected, and become lists.

    A copy: the function may keep what it gave, and change it later. ``found`` collects the elements of a generator.
    """
    if type(value) in _JSON_TYPES or isinstance(value, _WHOLE) or not isinstance(value, Iterable):
        return copy_json(value)
    found.extend(islice(value, MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        raise ValueError(f"it gave more than {MOST_VALUES:,} elements")
    return copy_json(found)


_JSON_TYPES = frozenset({bool, dict, list, str, type(None)})
"""What functions give as a rule: to know these by their type is far cheaper than to ask what they can do."""
_WHOLE = (str, bytes, Mapping, BaseModel)
"""What can be gone through and is one thing all the same."""


def _wrap_error(name: str, error: BaseException, found: list[Any]) -> ExpressionError:
    """What a function raised as an error that says who raised it, with what it ``found`` before."""
    kept: list[Any] = []
    with suppress(ValueError):  # too many parts to be copied
        kept = copy_json(found)
    return ExpressionError(f"“{name}” raised {describe_exception(error)}", found=kept)


def describe_exception(error: BaseException) -> str:
    """The class and the message of what foreign code raised, in a form that can be stored."""
    words = type(error).__name__
    with suppress(Exception):  # an error may be unable to say what it is
        words = f"{words}: {str(error)[:MAX_MESSAGE_LENGTH]}" if str(error) else words
    return str(clean_value(words).value)


def find_function(text: str, field: str, registry: Registry) -> PythonFunction:
    """The audit (field ``rule``) or function that ``python:name`` carries or that is registered under it.

    Raises ``ExpressionError`` that lists the registered names if there is none.
    """
    if isinstance(text, PluginName) and isinstance(text.entry, PythonFunction):
        return text.entry
    known = registry.audits if field == "rule" else registry.functions
    name = text.removeprefix(PREFIX)
    if name not in known:
        kind = "audit" if field == "rule" else "function"
        names = ", ".join(sorted(known)) or "none"
        raise ExpressionError(f"No {kind} is registered as “{name}”. Registered: {names}.")
    return known[name]
