"""How the steps of a flow call their models: provider, API and settings, and whether that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.engine.errors import Problem
from flows.engine.model_families import ModelFamily, ReasoningEffort, TemperatureRule
from flows.engine.providers import Api, Provider, Providers, UnsupportedCallError, choose_api
from flows.engine.spec import FlowSpec, ModelSettings, StepSpec


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How a model is called."""

    provider: Provider
    model: str
    """Its name at the provider."""
    family: ModelFamily
    api: Api
    effort: ReasoningEffort | None
    """The reasoning effort that is sent."""

    @property
    def takes_temperature(self) -> bool:
        return self.family.takes_temperature(self.effort)


def plan_call(model: str, effort: ReasoningEffort | None, providers: Providers) -> CallPlan:
    """Decide how ``model`` or ``provider:model`` is called. Raises ``UnsupportedCallError`` if it can't be."""
    provider, name = providers.split(model)
    family = provider.find_family(name)
    api, sent = choose_api(provider, family, effort)
    return CallPlan(provider, name, family, api, sent)


def resolve_step(step: StepSpec, flow: FlowSpec, defaults: ModelSettings, providers: Providers) -> StepSpec:
    """A model step with its settings filled in: step, flow, defaults.

    A default effort or temperature that the model does not take is left out.
    """
    filled = {name: _find_setting(name, step, flow, defaults) for name in ModelSettings.model_fields}
    if (step.reasoning_effort or flow.reasoning_effort) is None and filled["reasoning_effort"] is not None:
        plan = _try_plan(filled["model"], filled["reasoning_effort"], providers)
        if plan is None or filled["reasoning_effort"] not in plan.family.efforts:
            filled["reasoning_effort"] = None
    if step.temperature is None and flow.temperature is None and filled["temperature"] is not None:
        plan = _try_plan(filled["model"], filled["reasoning_effort"], providers)
        if plan and (not plan.takes_temperature or plan.family.temperature is TemperatureRule.IF_SET):
            filled["temperature"] = None
    return step.model_copy(update=filled)


def _find_setting(name: str, *places: StepSpec | FlowSpec | ModelSettings) -> Any:
    return next((value for place in places if (value := getattr(place, name)) is not None), None)


def _try_plan(model: str, effort: ReasoningEffort | None, providers: Providers) -> CallPlan | None:
    try:
        return plan_call(model, effort, providers)
    except UnsupportedCallError:
        return None


def check_model_calls(spec: FlowSpec, defaults: ModelSettings | None, providers: Providers | None) -> list[Problem]:
    """What keeps the steps of a flow from calling their models, at the field whose value is not possible.

    A model from ``defaults`` is reported at the flow's field. Without ``providers`` only the families of models are
    checked, as at OpenAI's own server.
    """
    found: dict[str, Problem] = {}
    for index, step in enumerate(spec.steps):
        if step.is_local:
            continue
        for problem in _check_step(index, spec, defaults, providers):
            # A value of the flow is reported once, for the first step that it does not suit.
            found.setdefault(problem.path, problem)
    return list(found.values())


def _check_step(
    index: int, spec: FlowSpec, defaults: ModelSettings | None, providers: Providers | None
) -> Iterator[Problem]:
    step = spec.steps[index]
    model = step.model or spec.model
    if model is None:
        if defaults is None:
            return
        model = defaults.model
    known = providers or Providers()

    def place(field: str, message: str) -> Problem:
        if getattr(step, field) is not None:
            return Problem(f"/steps/{index}/{field}", message)
        return Problem(f"/{field}", f"Step {index + 1} “{step.name}”: {message}")

    try:
        provider, name = known.split(model)
        if providers is not None and (problem := provider.find_problem()):
            yield place("model", problem)
        effort, family = step.reasoning_effort or spec.reasoning_effort, provider.find_family(name)
        if effort is not None and effort not in family.efforts:
            yield place("reasoning_effort", _explain_effort(model, family))
            return
        resolved = resolve_step(step, spec, defaults or ModelSettings(model=model), known)
        plan = plan_call(model, resolved.reasoning_effort, known)
        has_temperature = step.temperature is not None or spec.temperature is not None
        if has_temperature and not plan.takes_temperature:
            yield place("temperature", _explain_temperature(model, family))
    except UnsupportedCallError as error:
        if providers is not None:
            yield place("reasoning_effort" if error.is_about_effort else "model", str(error))


def _explain_effort(model: str, family: ModelFamily) -> str:
    if not family.efforts:
        return f"“{model}” takes no reasoning effort. Remove it."
    efforts = ", ".join(family.efforts)
    return f"“{model}” takes these reasoning efforts: {efforts}. Choose one of them, or leave it unset."


def _explain_temperature(model: str, family: ModelFamily) -> str:
    if family.temperature is TemperatureRule.WITHOUT_REASONING:
        return (
            f"“{model}” takes a temperature only with the reasoning effort “none”. "
            "Remove the temperature, or set the effort to “none”."
        )
    return f"“{model}” takes no temperature. Remove it."
