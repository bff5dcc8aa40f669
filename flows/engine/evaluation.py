"""The fields of a flow that hold an expression: CEL text or ``python:name``, evaluated over one set of variables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flows.engine.errors import ExpressionError
from flows.engine.expressions import FIELD_VARIABLES, Scope, parse_expression
from flows.engine.history import History
from flows.engine.plugins import PREFIX, PythonFunction, Registry
from flows.engine.spec import FlowSpec


class Variables(Mapping[str, Any]):
    """Variables by name, each built when it is first asked for: most expressions need only one of them."""

    def __init__(self, **sources: Callable[[], Any]) -> None:
        self._sources = sources
        self._values: dict[str, Any] = {}

    def extend(self, **values: Any) -> Variables:
        """These variables and more, or others of the same name. What is built already isn't built again."""
        extended = Variables(**{**self._sources, **dict.fromkeys(values, _never)})
        extended._values = {**self._values, **values}
        return extended

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._sources[name]()
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def _never() -> Any:
    raise AssertionError("an extended variable has its value from the start")


def step_variables(spec: FlowSpec, history: History, index: int) -> Variables:
    """``input``, ``steps`` and ``previous`` as step ``index`` sees them: final attempts of the steps before it."""

    def view(position: int) -> dict[str, Any]:
        final = history.final(position)
        return {
            "name": spec.step(position).name if position else "Initial input",
            "output": final.usable_output if final else None,
            "issues": [issue.model_dump(mode="json") for issue in final.issues] if final else [],
            "passed": bool(final and final.passed),
        }

    def previous() -> Any:
        final = history.final(index - 1)
        return final.usable_output if final else None

    return Variables(
        input=lambda: history.initial_input,
        steps=lambda: [view(position) for position in range(index)],
        previous=previous,
    )


class Evaluator:
    """Evaluates the fields of one attempt over the same variables and notes which plug-ins they used."""

    def __init__(self, variables: Variables, registry: Registry) -> None:
        self.variables = variables
        self.registry = registry
        self.plugins: dict[str, str] = {}
        """Fingerprints of the plug-ins used so far, by name with their prefix."""
        self._scope = Scope(variables)

    async def evaluate(self, field: str, text: str, **extra: Any) -> Any:
        """The value of ``text``, which stands in ``field`` of the spec, over the variables and ``extra``.

        Raises ``ExpressionError`` whatever goes wrong in it.
        """
        if not text.startswith(PREFIX):
            expression = parse_expression(text, variables=FIELD_VARIABLES[field])
            return await self._scope.evaluate_async(expression, **extra)
        function = find_function(text, field, self.registry)
        return await self.call(text, function, self.variables.extend(**extra))

    async def call(self, name: str, function: PythonFunction, variables: Mapping[str, Any]) -> Any:
        """Call a registered function, off the event loop unless it is a coroutine function.

        Raises ``ExpressionError`` for whatever it raises.
        """
        self.plugins[name] = function.fingerprint
        try:
            if function.is_async:
                return _exhaust(await function.call(variables))
            return await asyncio.to_thread(lambda: _exhaust(function.call(variables)))
        except Exception as error:
            raise ExpressionError(f"“{name}” raised {type(error).__name__}: {error}") from error


def _exhaust(value: Any) -> Any:
    """What a function gave; a generator runs here, where what it raises is expected, and becomes a list."""
    return list(value) if isinstance(value, Iterator) else value


def find_function(text: str, field: str, registry: Registry) -> PythonFunction:
    """The registered audit (field ``rule``) or function that ``python:name`` means.

    Raises ``ExpressionError`` that lists the registered names if there is none.
    """
    known = registry.audits if field == "rule" else registry.functions
    name = text.removeprefix(PREFIX)
    if name not in known:
        kind = "audit" if field == "rule" else "function"
        names = ", ".join(sorted(known)) or "none"
        raise ExpressionError(f"No {kind} is registered as “{name}”. Registered: {names}.")
    return known[name]
