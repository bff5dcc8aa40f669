"""One forced, strict tool call by either API of OpenAI: its body written and found again, its answer read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.history import UNREPORTED_USAGE, TokenUsage
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


# ---------------------------------------------------------------------------------------------------------------
# Answers

_MAX_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The parts of one response that matter, as they came: nothing here is checked."""

    model: Any = None
    response_id: Any = None
    finish_reason: Any = None
    """In the words of chat completions."""
    service_tier: Any = None
    usage: TokenUsage = UNREPORTED_USAGE
    functions: tuple[Mapping[str, Any], ...] = ()
    """What was called: ``name`` and ``arguments`` of each call."""
    calls: Any = None
    """The calls whole, for the record."""
    content: Any = None
    """Text in place of a call."""
    refusal: Any = None
    fault: tuple[str, str] | None = None
    """The code and the description of an issue, where there is no answer in the response."""


def _parse_usage(usage: Any, prompt_name: str, completion_name: str) -> TokenUsage:
    """The tokens that a response reports; ``UNREPORTED_USAGE`` where it reports none or what can't be true.

    Cached and reasoning tokens are parts: more than the whole is taken to mean the whole.
    """
    found = as_mapping(usage)
    prompt, completion = (_parse_count(found.get(f"{name}_tokens")) for name in (prompt_name, completion_name))
    if prompt is None or completion is None:
        return UNREPORTED_USAGE
    cached = as_mapping(found.get(f"{prompt_name}_tokens_details")).get("cached_tokens")
    reasoning = as_mapping(found.get(f"{completion_name}_tokens_details")).get("reasoning_tokens")
    return TokenUsage(
        prompt=prompt,
        completion=completion,
        total=max(_parse_count(found.get("total_tokens")) or 0, prompt + completion),
        cached=min(_parse_count(cached) or 0, prompt),
        reasoning=min(_parse_count(reasoning) or 0, completion),
    )


def _parse_count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS
    return value if is_count else None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is an object, else an empty one."""
    # What JSON gives is a dict; asking for that first is far cheaper.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


# ---------------------------------------------------------------------------------------------------------------
# Chat completions


def parse_completion(body: Any) -> ModelAnswer:
    """The answer in a response body. Never raises."""
    found = as_mapping(body)
    choices = found.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    choice = as_mapping(first)
    message = as_mapping(choice.get("message"))
    calls = message.get("tool_calls") or []
    fault = _find_chat_fault(choices, choice, calls)
    listed = calls if isinstance(calls, list) else []
    return ModelAnswer(
        model=found.get("model"),
        response_id=found.get("id"),
        finish_reason=choice.get("finish_reason"),
        service_tier=found.get("service_tier"),
        usage=_parse_usage(found.get("usage"), "prompt", "completion"),
        functions=tuple(as_mapping(as_mapping(call).get("function")) for call in listed),
        calls=calls,
        content=message.get("content"),
        refusal=message.get("refusal"),
        fault=fault,
    )


def _find_chat_fault(choices: Any, choice: Mapping[str, Any], calls: Any) -> tuple[str, str] | None:
    if not isinstance(choices, list):
        return "unreadable_reply", "The response is no chat completion: it has no list of choices."
    if not choices:
        return "empty_choices", "The response has no choices: the model gave no answer at all."
    if not isinstance(choice.get("message"), Mapping):
        return "unreadable_reply", "The response is no chat completion: its first choice has no message."
    if not isinstance(calls, list):
        return "unreadable_reply", "The response is no chat completion: “tool_calls” is no list."
    return None


# ---------------------------------------------------------------------------------------------------------------
# Responses

_CUT_BY = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Why a response is incomplete, in the words of chat completions."""


def parse_response(body: Any) -> ModelAnswer:
    """The answer in a response body. Never raises."""
    found = as_mapping(body)
    output = found.get("output")
    items = [as_mapping(item) for item in output] if isinstance(output, list) else []
    calls = [item for item in items if item.get("type") == "function_call"]
    parts = [as_mapping(part) for item in items if item.get("type") == "message" for part in _list_parts(item)]
    return ModelAnswer(
        model=found.get("model"),
        response_id=found.get("id"),
        finish_reason=_find_reason(found, calls),
        service_tier=found.get("service_tier"),
        usage=_parse_usage(found.get("usage"), "input", "output"),
        functions=tuple(calls),
        calls=calls,
        content=_join_texts(parts, "text"),
        refusal=_join_texts(parts, "refusal"),
        fault=_find_response_fault(found, items),
    )


def _find_reason(found: Mapping[str, Any], calls: list[Mapping[str, Any]]) -> str | None:
    status = found.get("status")
    if status == "incomplete":
        reason = as_mapping(found.get("incomplete_details")).get("reason")
        return _CUT_BY.get(reason, reason) if isinstance(reason, str) else "length"
    if status in (None, "completed"):
        return "tool_calls" if calls else "stop"
    return status if isinstance(status, str) else None


def _find_response_fault(found: Mapping[str, Any], items: list[Mapping[str, Any]]) -> tuple[str, str] | None:
    if not isinstance(found.get("output"), list):
        return "unreadable_reply", "The response is none of the Responses API: it has no list “output”."
    status = found.get("status")
    if status not in (None, "completed", "incomplete"):
        return "unreadable_reply", f"The response is not complete: its status is “{str(status)[:100]}”."
    if not any(item.get("type") in ("function_call", "message") for item in items):
        return "empty_choices", "The response has no output: the model gave no answer at all."
    return None


def _list_parts(item: Mapping[str, Any]) -> list[Any]:
    content = item.get("content")
    return content if isinstance(content, list) else []


def _join_texts(parts: list[Mapping[str, Any]], name: str) -> str | None:
    texts = [text for part in parts if isinstance(text := part.get(name), str)]
    return "".join(texts) or None
