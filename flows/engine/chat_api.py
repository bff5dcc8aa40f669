"""Reads responses of the chat completions API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.engine.model_answer import ModelAnswer, as_mapping, read_tokens
from flows.engine.usage import TokenUsage


def read_completion(body: Any) -> ModelAnswer:
    """The answer in a response body. Never raises."""
    found = as_mapping(body)
    choices = found.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    choice = as_mapping(first)
    message = as_mapping(choice.get("message"))
    calls = message.get("tool_calls") or []
    fault = _find_fault(choices, choice, calls)
    listed = calls if isinstance(calls, list) else []
    return ModelAnswer(
        model=found.get("model"),
        response_id=found.get("id"),
        finish_reason=choice.get("finish_reason"),
        service_tier=found.get("service_tier"),
        usage=_read_usage(found.get("usage")),
        functions=tuple(as_mapping(as_mapping(call).get("function")) for call in listed),
        calls=calls,
        content=message.get("content"),
        refusal=message.get("refusal"),
        fault=fault,
    )


def _find_fault(choices: Any, choice: Mapping[str, Any], calls: Any) -> tuple[str, str] | None:
    if not isinstance(choices, list):
        return "unreadable_reply", "The response is no chat completion: it has no list of choices."
    if not choices:
        return "empty_choices", "The response has no choices: the model gave no answer at all."
    if not isinstance(choice.get("message"), Mapping):
        return "unreadable_reply", "The response is no chat completion: its first choice has no message."
    if not isinstance(calls, list):
        return "unreadable_reply", "The response is no chat completion: “tool_calls” is no list."
    return None


def _read_usage(usage: Any) -> TokenUsage:
    """The tokens that a response reports under ``usage``."""
    found = as_mapping(usage)
    return read_tokens(
        prompt=found.get("prompt_tokens"),
        completion=found.get("completion_tokens"),
        total=found.get("total_tokens"),
        cached=as_mapping(found.get("prompt_tokens_details")).get("cached_tokens"),
        reasoning=as_mapping(found.get("completion_tokens_details")).get("reasoning_tokens"),
    )
