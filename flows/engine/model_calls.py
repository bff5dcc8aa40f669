"""How the steps of a flow call their models: provider, API and settings, and whether that is possible."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.errors import ModelError, ModelErrorCode, Problem
from flows.engine.history import AttemptError
from flows.engine.json_values import clean_value
from flows.engine.model_api import find_api
from flows.engine.model_families import ForcedTools, ModelFamily, ReasoningEffort, TemperatureRule
from flows.engine.plugin_calls import describe_exception
from flows.engine.providers import Api, ModelClient, Provider, Providers, UnsupportedCallError
from flows.engine.reply import ToolReply, parse_reply
from flows.engine.spec import FlowSpec, ModelSettings, StepSpec

logger = logging.getLogger(__name__)

_NO_EFFORT = "does not support a reasoning effort. Remove it."
_NO_TEMPERATURE = "does not support a temperature. Remove it."
_ONLY_WITH_NONE = (
    "supports a temperature only with the reasoning effort “none”. Remove the temperature, or set the effort to “none”."
)
_CODES = {TimeoutError: ModelErrorCode.TIMEOUT, ConnectionError: ModelErrorCode.CONNECTION}


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
    api, sent = _choose_api(provider, family, effort)
    return CallPlan(provider, name, family, api, sent)


def _choose_api(
    provider: Provider, family: ModelFamily, effort: ReasoningEffort | None
) -> tuple[Api, ReasoningEffort | None]:
    """The API for a forced tool call with this effort, and the effort to send."""
    if provider.api is Api.RESPONSES:
        return Api.RESPONSES, effort
    has_responses = provider.api is Api.AUTO and provider.is_openai
    match family.chat_tools:
        case ForcedTools.ALWAYS:
            return Api.CHAT, effort
        case ForcedTools.WITHOUT_EFFORT if effort in (None, ReasoningEffort.NONE):
            # Unset means “none” here.
            return Api.CHAT, None
        case ForcedTools.WITH_EFFORT_NONE if effort == ReasoningEffort.NONE or (effort is None and not has_responses):
            return Api.CHAT, ReasoningEffort.NONE
    if has_responses:
        return Api.RESPONSES, effort
    is_about_effort = family.chat_tools is not ForcedTools.NEVER
    when = f" with the reasoning effort “{effort}”" if is_about_effort else ""
    other = "set the effort to “none”" if is_about_effort else "name another model"
    raise UnsupportedCallError(
        f"Models of the family {family.name} take tool calls{when} only on the Responses API. "
        f"Set {provider.name_setting('API')} to “responses” if {provider.place} has that API, or {other}.",
        is_about_effort=is_about_effort,
    )


def resolve_spec(spec: FlowSpec, defaults: ModelSettings, providers: Providers | None = None) -> FlowSpec:
    """A flow with its settings filled in on every model step; defaults that a model does not take are left out."""
    known = providers or Providers()
    steps = tuple(step if step.is_local else _resolve_step(step, spec, defaults, known) for step in spec.steps)
    return spec.model_copy(update={"steps": steps})


def adapt_settings(step: StepSpec, providers: Providers) -> StepSpec:
    """The step without those settings, resolved for another model, that its model does not take."""
    assert step.model is not None
    filled = {name: getattr(step, name) for name in ModelSettings.model_fields}
    blank = step.model_copy(update=dict.fromkeys(filled))
    return _resolve_step(blank, ModelSettings(model=step.model), ModelSettings(**filled), providers)


def _resolve_step(
    step: StepSpec, flow: FlowSpec | ModelSettings, defaults: ModelSettings, providers: Providers
) -> StepSpec:
    own = {name: _first(getattr(step, name), getattr(flow, name)) for name in ModelSettings.model_fields}
    filled = {name: _first(value, getattr(defaults, name)) for name, value in own.items()}

    def try_plan() -> CallPlan | None:
        try:
            return plan_call(filled["model"], filled["reasoning_effort"], providers)
        except UnsupportedCallError:
            return None

    plan = try_plan()
    effort = filled["reasoning_effort"]
    if own["reasoning_effort"] is None and effort is not None and (plan is None or effort not in plan.family.efforts):
        filled["reasoning_effort"] = None
        plan = try_plan()
    is_risky = plan and (not plan.takes_temperature or plan.family.temperature is TemperatureRule.IF_SET)
    if own["temperature"] is None and is_risky:
        filled["temperature"] = None
    return step.model_copy(update=filled)


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value


def check_model_calls(spec: FlowSpec, defaults: ModelSettings | None, providers: Providers | None) -> list[Problem]:
    """What keeps the steps of a flow from calling their models, at the field whose value is not possible.

    A model from ``defaults`` is reported at the flow's field. Without ``providers`` only the families of models are
    checked, as at OpenAI's own server.
    """
    found: dict[str, Problem] = {}
    for index, step in enumerate(spec.steps):
        if step.is_local:
            continue
        problems = list(_check_step(index, spec, defaults, providers))
        if step.last_model is not None:
            problems += _check_last_model(index, spec, defaults, providers)
        for problem in problems:
            # A value of the flow is reported once, for the first step that it does not suit.
            found.setdefault(problem.path, problem)
    return list(found.values())


def _check_step(
    index: int, spec: FlowSpec, defaults: ModelSettings | None, providers: Providers | None
) -> Iterator[Problem]:
    step = spec.steps[index]
    model = step.model or spec.model or (defaults.model if defaults else None)
    if model is None:
        return
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
            choice = (
                f"supports these reasoning efforts: {', '.join(family.efforts)}. Choose one of them, or leave it unset."
            )
            yield place("reasoning_effort", f"“{model}” {choice if family.efforts else _NO_EFFORT}")
            return
        resolved = _resolve_step(step, spec, defaults or ModelSettings(model=model), known)
        plan = plan_call(model, resolved.reasoning_effort, known)
        has_temperature = step.temperature is not None or spec.temperature is not None
        if has_temperature and not plan.takes_temperature:
            with_none = family.temperature is TemperatureRule.WITHOUT_REASONING
            yield place("temperature", f"“{model}” {_ONLY_WITH_NONE if with_none else _NO_TEMPERATURE}")
    except UnsupportedCallError as error:
        if providers is not None:
            yield place("reasoning_effort" if error.is_about_effort else "model", str(error))


def _check_last_model(
    index: int, spec: FlowSpec, defaults: ModelSettings | None, providers: Providers | None
) -> Iterator[Problem]:
    """What keeps a step from asking its last model, all of it at that field."""
    steps = list(spec.steps)
    steps[index] = steps[index].model_copy(update={"model": steps[index].last_model})
    asked = spec.model_copy(update={"steps": tuple(steps)})
    for problem in _check_step(index, asked, defaults, providers):
        yield Problem(f"/steps/{index}/last_model", problem.message)


async def send_request(
    client: ModelClient,
    request: Mapping[str, Any],
    *,
    tool_name: str,
    idempotency_key: str,
    timeout: float,
    logs_errors: bool = True,
) -> ToolReply | AttemptError:
    """The reply of a model, or why there is none; without ``logs_errors`` no words are logged that may quote it."""
    try:
        reply = await client.complete(request, idempotency_key=idempotency_key, timeout=timeout)
        return parse_reply(reply.body, tool_name=tool_name, api=find_api(request))
    except ModelError as error:
        return AttemptError(
            code=error.code,
            message=clean_value(error.message).value,
            status=error.status,
            retry_after=error.retry_after,
        )
    except Exception as error:  # Clients are user code; paid attempts must be kept.
        logger.error("The model client failed.", exc_info=error if logs_errors else None)
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), ModelErrorCode.CLIENT_ERROR)
        return AttemptError(code=code, message=f"The model client raised {describe_exception(error)}")
