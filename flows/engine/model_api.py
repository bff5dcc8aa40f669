"""One forced, strict tool call by either API of OpenAI: its body, and where its parts are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flows.engine.providers import Api

if TYPE_CHECKING:
    from flows.engine.model_calls import CallPlan
    from flows.engine.spec import StepSpec

MESSAGE_FIELDS = ("messages", "instructions", "input")
"""The fields of a body, of either API, that hold its messages."""


def render_request(plan: CallPlan, step: StepSpec, *, system_message: str, user_message: str) -> dict[str, Any]:
    """The body of a call of ``step``, which is frozen and resolved. An empty system message is left out."""
    function = {
        "name": step.tool_name,
        "description": step.description,
        "strict": True,
        "parameters": step.output_schema,
    }
    render = _render_responses if plan.api is Api.RESPONSES else _render_chat
    body = render(plan, step.max_tokens, function, system_message, user_message)
    if plan.family.takes_parallel_tool_calls:
        body["parallel_tool_calls"] = False
    if step.temperature is not None:
        body["temperature"] = step.temperature
    if step.service_tier is not None:
        body["service_tier"] = str(step.service_tier)
    return body


def _render_chat(
    plan: CallPlan, max_tokens: int | None, function: Mapping[str, Any], system_message: str, user_message: str
) -> dict[str, Any]:
    system = [{"role": "system", "content": system_message}] if system_message else []
    body: dict[str, Any] = {
        "model": plan.model,
        "messages": [*system, {"role": "user", "content": user_message}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": function["name"]}},
    }
    if max_tokens is not None:
        body[plan.family.max_tokens_field] = max_tokens
    if plan.effort is not None:
        body["reasoning_effort"] = str(plan.effort)
    return body


def _render_responses(
    plan: CallPlan, max_tokens: int | None, function: Mapping[str, Any], system_message: str, user_message: str
) -> dict[str, Any]:
    body: dict[str, Any] = {"model": plan.model}
    if system_message:
        body["instructions"] = system_message
    body |= {
        "input": user_message,
        "tools": [{"type": "function", **function}],
        "tool_choice": {"type": "function", "name": function["name"]},
        # The provider is to keep no copy.
        "store": False,
    }
    if max_tokens is not None:
        body["max_output_tokens"] = max_tokens
    if plan.effort is not None:
        body["reasoning"] = {"effort": str(plan.effort)}
    return body


def find_api(body: Mapping[str, Any]) -> Api:
    """The API that a request body is written for."""
    return Api.RESPONSES if "input" in body else Api.CHAT


def list_messages(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages of a body with ``role`` and ``content``, the system message first."""
    if find_api(body) is Api.CHAT:
        return list(body.get("messages", ()))
    system = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    return [*system, {"role": "user", "content": body["input"]}]


def replace_texts(body: Mapping[str, Any], replace: Callable[[str], str]) -> dict[str, Any]:
    """The body with the text of each message replaced."""
    if find_api(body) is Api.CHAT:
        messages = [{**message, "content": replace(message["content"])} for message in body["messages"]]
        return {**body, "messages": messages}
    return {**body, **{name: replace(body[name]) for name in MESSAGE_FIELDS if name in body}}


def find_tool(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The function that a body asks for: its name, description and parameters."""
    tool: Mapping[str, Any] = next(iter(body.get("tools") or ()), {})
    function: Mapping[str, Any] = tool.get("function", tool)
    return function


def find_effort(body: Mapping[str, Any]) -> str | None:
    """The reasoning effort of a body."""
    reasoning = body.get("reasoning")
    effort: str | None = reasoning.get("effort") if isinstance(reasoning, Mapping) else body.get("reasoning_effort")
    return effort


def find_max_tokens(body: Mapping[str, Any]) -> int | None:
    """The token limit of a body, by any of its names."""
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    return next((body[name] for name in names if body.get(name)), None)
