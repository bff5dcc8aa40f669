"""The input of a step: what it works on, and what a model step sends as the user's message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from flows.engine.errors import ExpressionError
from flows.engine.evaluation import Evaluator, Variables, step_variables
from flows.engine.history import History
from flows.engine.json_values import clean_value, describe_type
from flows.engine.plugins import Registry
from flows.engine.spec import FlowSpec
from flows.engine.time_limits import Patience

BeforeSlow = Callable[[], Awaitable[None]]


class MissingInputError(ExpressionError):
    """A step without an ``input_expression`` follows a step that left no usable output."""


async def prepare_input(
    spec: FlowSpec,
    history: History,
    index: int,
    registry: Registry,
    patience: Patience | None = None,
    *,
    before_slow: BeforeSlow | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The input of step ``index``: its ``input_expression``, else the previous output; then its ``input_sanitizer``.

    Beside it stand the fingerprints of the plug-ins that it used, by name.

    ``patience`` says how long plug-ins may take; ``before_slow`` is awaited before anything that may take long.
    Raises ``ExpressionError`` with a sentence that names step and field, ``MissingInputError`` where nothing is there.
    """
    step = spec.step(index)
    earlier = history.attempts(index)
    if earlier and earlier[-1].input is not None and not spec.redact:
        # All tries of a step work on the same input. A redacting flow keeps none that a request can be built from.
        used = (step.input_expression, step.input_sanitizer)
        plugins = {name: fingerprint for name, fingerprint in earlier[-1].plugins.items() if name in used}
        return earlier[-1].input, plugins
    where = f"Step {index} “{step.name}”"
    evaluator = Evaluator(step_variables(spec, history, index), registry, patience, before_slow=before_slow)
    plugins = evaluator.plugins
    if step.input_expression is None:
        value = evaluator.variables["previous"]
        if value is None:
            raise MissingInputError(
                f"{where} has no input: the step before it left no usable output. "
                "Give it an input_expression, or let the step before it stop the flow on failure."
            )
    else:
        value = await _evaluate_map(evaluator, "input_expression", step.input_expression, where)
    if step.input_sanitizer is not None:
        sanitizing = Evaluator(Variables({"value": value}), registry, patience, before_slow=before_slow)
        value = await _evaluate_map(sanitizing, "input_sanitizer", step.input_sanitizer, where)
        plugins = {**plugins, **sanitizing.plugins}
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
