"""The fields of a step that hold an expression, CEL text or ``python:name``: their variables, values and the input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from flows.engine.cel_evaluation import NEEDS_PROCESS, Scope
from flows.engine.errors import ExpressionError
from flows.engine.expression_process import evaluate_in_process
from flows.engine.expressions import FIELD_VARIABLES, ITEM_VARIABLES, CompiledExpression, parse_expression
from flows.engine.history import History
from flows.engine.json_values import clean_value, describe_type
from flows.engine.plugin_calls import call_function
from flows.engine.plugins import PREFIX, PythonFunction, Registry
from flows.engine.settling import find_step_final
from flows.engine.spec import FlowSpec
from flows.engine.time_limits import TimeBudget

BeforeSlow = Callable[[], Awaitable[None]]


def step_variables(spec: FlowSpec, history: History, index: int) -> dict[str, Any]:
    """``input``, ``steps`` and ``previous`` as step ``index`` sees them: final attempts of the steps before it."""
    steps = []
    for position in range(index):
        final = find_step_final(spec, history, position)
        steps.append(
            {
                "name": spec.step(position).name if position else "Initial input",
                "output": final.usable_output if final else None,
                "issues": [issue.model_dump(mode="json") for issue in final.issues] if final else [],
                "passed": bool(final and final.passed),
            }
        )
    return {"input": history.initial_input, "steps": steps, "previous": steps[-1]["output"]}


class Evaluator:
    """Evaluates the fields of one attempt over the same variables; ``plugins`` has the fingerprints of those used.

    ``budget`` says how long that may take; ``before_slow`` is awaited before anything that may take long.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        registry: Registry,
        budget: TimeBudget | None = None,
        *,
        before_slow: BeforeSlow | None = None,
    ) -> None:
        self.variables = variables
        self.registry = registry
        self.budget = budget or TimeBudget()
        self.plugins: dict[str, str] = {}
        self._before_slow = before_slow
        self._scope = Scope(variables)

    async def evaluate(self, field: str, text: str, **extra: Any) -> Any:
        """The value of ``text``, which is in ``field`` of the spec, over the variables and ``extra``.

        Raises ``ExpressionError`` whatever goes wrong in it.
        """
        if text.startswith(PREFIX):
            function = self.registry.find_function(text, field)
            self.plugins[text] = function.fingerprint
            return await self.call(text, function, {**self.variables, **extra})
        expression = parse_expression(text, variables=FIELD_VARIABLES[field].union(extra))
        value = self._scope.evaluate(expression, extra, is_limited=not self.budget.is_killable)
        return await self._evaluate_slowly(expression, extra) if value is NEEDS_PROCESS else value

    async def ask_each(self, rule: str, items: Sequence[Any]) -> list[bool | str]:
        """What a rule in CEL says of each of the ``items``: true, false, or a sentence where it gives neither.

        Raises ``ExpressionError`` where it can't be asked at all.
        """
        expression = parse_expression(rule, variables=FIELD_VARIABLES["rule"] | ITEM_VARIABLES)
        answers = self._scope.ask_each(expression, items, is_limited=not self.budget.is_killable)
        found: list[bool | str] = answers
        return await self._evaluate_slowly(expression, {}, items) if answers is NEEDS_PROCESS else found

    async def _evaluate_slowly(
        self, expression: CompiledExpression, extra: Mapping[str, Any], items: Sequence[Any] | None = None
    ) -> Any:
        if self._before_slow is not None:
            await self._before_slow()
        async with self.budget.limit():
            return await evaluate_in_process(expression, {**self.variables, **extra}, items=items)

    async def call(self, name: str, function: PythonFunction, variables: Mapping[str, Any]) -> Any:
        """Call a function of a plug-in; see ``call_function``."""
        if self._before_slow is not None:
            await self._before_slow()
        async with self.budget.limit():
            return await call_function(name, function, variables, timeout=self.budget.plugin_timeout)


class MissingInputError(ExpressionError):
    """A step without an ``input_expression`` follows a step that left no usable output."""


async def prepare_input(
    spec: FlowSpec,
    history: History,
    index: int,
    registry: Registry,
    budget: TimeBudget | None = None,
    *,
    before_slow: BeforeSlow | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The input of step ``index``: its ``input_expression``, else the previous output; then its ``input_sanitizer``.

    Beside it are the fingerprints of the plug-ins that it used, by name. Raises ``ExpressionError`` with a sentence
    that names step and field, ``MissingInputError`` where nothing is there, and what ``before_slow`` raises.
    """
    step = spec.step(index)
    earlier = history.attempts(index)
    if earlier and earlier[-1].input is not None and not spec.redact:
        # All tries of a step work on the same input. A redacting flow keeps none that a request can be built from.
        used = (step.input_expression, step.input_sanitizer)
        return earlier[-1].input, {name: mark for name, mark in earlier[-1].plugins.items() if name in used}
    where = f"Step {index} “{step.name}”"
    before = find_step_final(spec, history, index - 1)
    value, plugins = before.usable_output if before else None, {}
    if step.input_expression is not None:
        evaluator = Evaluator(step_variables(spec, history, index), registry, budget, before_slow=before_slow)
        value = await _evaluate_map(evaluator, "input_expression", step.input_expression, where)
        plugins = evaluator.plugins
    elif value is None:
        raise MissingInputError(
            f"{where} has no input: the step before it left no usable output. "
            "Give it an input_expression, or let the step before it stop the flow on failure."
        )
    if step.input_sanitizer is not None:
        evaluator = Evaluator({"value": value}, registry, budget, before_slow=before_slow)
        value = await _evaluate_map(evaluator, "input_sanitizer", step.input_sanitizer, where)
        plugins = {**plugins, **evaluator.plugins}
    return value, plugins


async def _evaluate_map(evaluator: Evaluator, field: str, text: str, where: str) -> dict[str, Any]:
    # Errors of ``before_slow`` go on as they are, whatever their class: a recorder may raise ``ValueError``.
    try:
        found = await evaluator.evaluate(field, text)
    except ExpressionError as error:
        raise ExpressionError(f"{where}, {field}: {error}") from error
    try:
        value = clean_value(found).value
    except ValueError as error:
        raise ExpressionError(f"{where}, {field}: {error}") from error
    if not isinstance(value, dict):
        raise ExpressionError(f"{where}, {field}: it gave {describe_type(value)}; a map is needed.")
    return value
