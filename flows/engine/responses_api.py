"""Reads responses of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.engine.model_answer import ModelAnswer, as_mapping, read_tokens

_CUT_BY = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Why a response is incomplete, in the words of chat completions."""


def read_response(body: Any) -> ModelAnswer:
    """The answer in a response body. Never raises."""
    found = as_mapping(body)
    output = found.get("output")
    items = [as_mapping(item) for item in output] if isinstance(output, list) else []
    calls = [item for item in items if item.get("type") == "function_call"]
    parts = [as_mapping(part) for item in items if item.get("type") == "message" for part in _list_parts(item)]
    usage = as_mapping(found.get("usage"))
    finish_reason = _find_reason(found, calls)
    return ModelAnswer(
        model=found.get("model"),
        response_id=found.get("id"),
        finish_reason=finish_reason,
        service_tier=found.get("service_tier"),
        usage=read_tokens(
            prompt=usage.get("input_tokens"),
            completion=usage.get("output_tokens"),
            total=usage.get("total_tokens"),
            cached=as_mapping(usage.get("input_tokens_details")).get("cached_tokens"),
            reasoning=as_mapping(usage.get("output_tokens_details")).get("reasoning_tokens"),
        ),
        functions=tuple(calls),
        calls=calls,
        content=_join_texts(parts, "text"),
        refusal=_join_texts(parts, "refusal"),
        fault=_find_fault(found, items),
    )


def _find_reason(found: Mapping[str, Any], calls: list[Mapping[str, Any]]) -> str | None:
    status = found.get("status")
    if status == "incomplete":
        reason = as_mapping(found.get("incomplete_details")).get("reason")
        return _CUT_BY.get(reason, reason) if isinstance(reason, str) else "length"
    if status in (None, "completed"):
        return "tool_calls" if calls else "stop"
    return status if isinstance(status, str) else None


def _find_fault(found: Mapping[str, Any], items: list[Mapping[str, Any]]) -> tuple[str, str] | None:
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
