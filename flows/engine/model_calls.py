"""How the steps of a flow call their models: provider, API and settings, and whether that is possible."""

from __future__ import annotations

import asyncio
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


def choose_api(
    provider: Provider, family: ModelFamily, effort: ReasoningEffort | None
) -> tuple[Api, ReasoningEffort | None]:
    """The API for a forced tool call with this effort, chat completions or Responses, and the effort to send.

    Raises ``UnsupportedCallError`` if the call needs an API that the provider is not asked by.
    """
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
    remedy = f"Set {provider.name_setting('API')} to “responses” if {provider.place} has that API"
    if family.chat_tools is ForcedTools.NEVER:
        raise UnsupportedCallError(
            f"Models of the family {family.name} take tool calls only on the Responses API. "
            f"{remedy}, or name another model."
        )
    raise UnsupportedCallError(
        f"Models of the family {family.name} take tool calls with the reasoning effort “{effort}” only on the "
        f"Responses API. {remedy}, or set the effort to “none”.",
        is_about_effort=True,
    )


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


def resolve_spec(spec: FlowSpec, defaults: ModelSettings, providers: Providers | None = None) -> FlowSpec:
    """A flow with its model settings filled in on every model step: step, flow, defaults.

    A default temperature or effort that a model does not take at its provider is left out.
    """
    known = providers or Providers()
    steps = tuple(step if step.is_local else resolve_step(step, spec, defaults, known) for step in spec.steps)
    return spec.model_copy(update={"steps": steps})


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


async def send_request(
    client: ModelClient,
    request: Mapping[str, Any],
    *,
    tool_name: str,
    idempotency_key: str,
    timeout: float,
    logs_errors: bool = True,
) -> ToolReply | AttemptError:
    """The reply of a model, or why there is none, whatever the client raises. ``timeout`` is in seconds.

    What the client raises is logged; without ``logs_errors`` its words are not, since they may quote the request.
    """
    try:
        reply = await client.complete(request, idempotency_key=idempotency_key, timeout=timeout)
        return parse_reply(reply.body, tool_name=tool_name, api=find_api(request))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _describe_client_error(error, logs_errors=logs_errors)
    except Exception as error:  # noqa: BLE001  # Clients are user code; paid attempts must be kept.
        return _describe_client_error(error, logs_errors=logs_errors)


def _describe_client_error(error: BaseException, *, logs_errors: bool) -> AttemptError:
    code, words = ModelErrorCode.CLIENT_ERROR, describe_exception(error)
    if isinstance(error, ModelError):
        try:
            return AttemptError(
                code=error.code,
                message=clean_value(error.message).value,
                status=error.status,
                retry_after=error.retry_after,
            )
        except Exception as fault:  # noqa: BLE001  # its attributes may be anything
            error, words = fault, f"a malformed {words}"
    elif isinstance(error, TimeoutError):
        code = ModelErrorCode.TIMEOUT
    elif isinstance(error, ConnectionError):
        code = ModelErrorCode.CONNECTION
    logger.error("The model client failed.", exc_info=error if logs_errors else None)
    return AttemptError(code=code, message=f"The model client raised {words}")
