"""What is asked of a model, whichever API carries it, and how to find it again in a stored request body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.model_families import ModelFamily, ReasoningEffort
from flows.engine.providers import Api

MESSAGE_FIELDS = ("messages", "instructions", "input")
"""The fields of a body, of either API, that hold its messages."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One forced, strict tool call. ``model`` is the name at the provider; what is None is not sent."""

    model: str
    system_message: str
    """Empty where there is none."""
    user_message: str
    tool_name: str
    tool_description: str
    parameters: dict[str, Any]
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: ReasoningEffort | None = None
    service_tier: str | None = None

    def render(self, api: Api, family: ModelFamily) -> dict[str, Any]:
        """The body to send by ``api``."""
        body = self._render_responses() if api is Api.RESPONSES else self._render_chat(family)
        if family.takes_parallel_tool_calls:
            body["parallel_tool_calls"] = False
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.service_tier is not None:
            body["service_tier"] = str(self.service_tier)
        return body

    def _render_chat(self, family: ModelFamily) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system_message}] if self.system_message else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, {"role": "user", "content": self.user_message}],
            "tools": [{"type": "function", "function": self._function}],
            "tool_choice": {"type": "function", "function": {"name": self.tool_name}},
        }
        if self.max_tokens is not None:
            body[family.max_tokens_field] = self.max_tokens
        if self.reasoning_effort is not None:
            body["reasoning_effort"] = str(self.reasoning_effort)
        return body

    def _render_responses(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if self.system_message:
            body["instructions"] = self.system_message
        body |= {
            "input": self.user_message,
            "tools": [{"type": "function", **self._function}],
            "tool_choice": {"type": "function", "name": self.tool_name},
            # The provider is to keep no copy.
            "store": False,
        }
        if self.max_tokens is not None:
            body["max_output_tokens"] = self.max_tokens
        if self.reasoning_effort is not None:
            body["reasoning"] = {"effort": str(self.reasoning_effort)}
        return body

    @property
    def _function(self) -> dict[str, Any]:
        return {
            "name": self.tool_name,
            "description": self.tool_description,
            "strict": True,
            "parameters": self.parameters,
        }


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
    texts = {name: replace(body[name]) for name in MESSAGE_FIELDS if name in body}
    return {**body, **texts}


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
