"""What an attempt of a step would begin with, made by the engine itself: the exact request, or the computed output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flows.engine.errors import ExpressionError
from flows.engine.evaluation import Evaluator, step_variables
from flows.engine.issues import Issue
from flows.engine.judgement import clean_output
from flows.engine.plugins import Registry
from flows.engine.prompt import build_request
from flows.engine.providers import UnsupportedCallError
from flows.engine.spec import FlowSpec
from flows.engine.step_input import prepare_input
from flows.providers import build_providers
from runs.try_out.basis import Basis
from runs.try_out.patience import begin_patience


@dataclass(frozen=True, slots=True)
class Preview:
    """What an attempt begins with. Where there is nothing, ``problem`` says why."""

    request: dict[str, Any] | None = None
    """The body that a model step would send."""
    output: dict[str, Any] | None = None
    """What a local step computes, not sanitized yet."""
    notes: tuple[Issue, ...] = ()
    """What had to be changed in ``output`` so that it can be stored."""
    problem: str = ""


async def preview_attempt(spec: FlowSpec, basis: Basis, index: int, registry: Registry) -> Preview:
    """What the next attempt of step ``index`` begins with. ``spec`` is frozen and resolved. Calls no model.

    Never raises for what is wrong with the step.
    """
    step = spec.step(index)
    try:
        # Without the step's own attempts: theirs is the input that an earlier definition made.
        value, _ = await prepare_input(spec, basis.before, index, registry, begin_patience())
    except ExpressionError as error:
        return Preview(problem=str(error))
    if step.compute is not None:
        variables = step_variables(spec, basis.before, index).extend(previous=value)
        evaluator = Evaluator(variables, registry, begin_patience())
        try:
            output, notes = clean_output(await evaluator.evaluate("compute", step.compute))
        except (ExpressionError, ValueError) as error:
            return Preview(problem=f"The step could not be computed: {error}")
        return Preview(output=output, notes=notes)
    if step.tool_name is None or step.output_schema is None:
        return Preview(problem="The request can't be built yet: it needs a tool name and an output schema.")
    try:
        return Preview(request=build_request(spec, basis.history, index, value, providers=build_providers()))
    except UnsupportedCallError as error:
        return Preview(problem=f"The request can't be built: {error}")
