"""The body of an answer, and what faults make of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flows.engine.providers import Api
from flows.engine.simulated_model.chance import draw_fraction
from flows.engine.simulated_model.request_check import does_reason
from flows.engine.simulated_model.request_view import RequestView
from flows.engine.simulated_model.script import FaultKind

CHARACTERS_A_TOKEN = 4
CACHED_BLOCK = 128
"""Providers cache prompts in blocks of this many tokens."""

_CREATED = 1_767_225_600
"""The start of 2026: the answer to a request is the same whenever it is asked for."""
_REFUSAL = "I'm sorry, but I can't help with that request."
_TEXT = "Here is what I would suggest, in plain words instead of a call."


def count_tokens(characters: int) -> int:
    """About how many tokens a text of that length has."""
    return math.ceil(characters / CHARACTERS_A_TOKEN)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the model says, whichever API carries it."""

    finish_reason: str
    """In the words of chat completions."""
    reasoning: int
    tool: str | None = None
    text: str = ""
    """The arguments of the call; without a tool, the plain text."""
    refusal: str | None = None

    @property
    def completion(self) -> int:
        return count_tokens(len(self.text or self.refusal or "")) + self.reasoning


def build_answer(
    view: RequestView, arguments: Mapping[str, Any], *, fault: FaultKind | None, digest: str
) -> dict[str, Any]:
    """The response body to a request whose answer is ``arguments``, spoilt by ``fault`` if there is one.

    An answer longer than the request's token limit is cut off there, as a real one would be. ``digest`` identifies
    the request.
    """
    answer = _cut_off(_decide_answer(view, arguments, fault, digest), view.max_tokens)
    build = _build_response if view.api is Api.RESPONSES else _build_completion
    return build(view, answer, digest, is_empty=fault is FaultKind.EMPTY_CHOICES)


def _decide_answer(
    view: RequestView, arguments: Mapping[str, Any], fault: FaultKind | None, digest: str
) -> _Answer:  # fmt: skip
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    name = view.tool_name
    reasoning = 64 * int(3 * draw_fraction("reasoning", digest)) if does_reason(view.model, view.effort) else 0
    plain = _Answer("stop", reasoning, text=_TEXT)
    called = _Answer("stop" if view.is_forced else "tool_calls", reasoning, name, text)
    match fault:
        case FaultKind.NO_TOOL:
            return plain
        case FaultKind.REFUSAL:
            return _Answer("stop", reasoning, refusal=_REFUSAL)
        case FaultKind.CONTENT_FILTER:
            return _Answer("content_filter", reasoning)
        case FaultKind.MALFORMED:
            return replace(called, text=text[: max(1, len(text) * 3 // 4)])
        case FaultKind.NOT_OBJECT:
            return replace(called, text=json.dumps(list(arguments.values()), ensure_ascii=False))
        case FaultKind.TRUNCATED:
            return replace(called, text=text[: len(text) // 2], finish_reason="length")
        case FaultKind.WRONG_TOOL:
            others = (str(function["name"]) for function in view.functions if function["name"] != name)
            return replace(called, tool=next(others, f"other_{name}"[:64]))
    return plain if name is None else called


def _cut_off(answer: _Answer, limit: int | None) -> _Answer:
    if limit is None or answer.completion <= limit:
        return answer
    # Thinking comes first and counts; what is left of the limit is said.
    reasoning = min(answer.reasoning, limit)
    characters = (limit - reasoning) * CHARACTERS_A_TOKEN
    refusal = answer.refusal and answer.refusal[:characters]
    return replace(answer, finish_reason="length", reasoning=reasoning, text=answer.text[:characters], refusal=refusal)


def _build_completion(view: RequestView, answer: _Answer, digest: str, *, is_empty: bool) -> dict[str, Any]:
    content = answer.text or None if answer.tool is None else None
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": answer.refusal}
    if answer.tool is not None:
        call = {"name": answer.tool, "arguments": answer.text}
        message["tool_calls"] = [{"id": f"call_sim_{digest[:16]}", "type": "function", "function": call}]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
    prompt, cached = _count_prompt(view)
    return {
        "id": f"chatcmpl-sim-{digest[:24]}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": view.model,
        "choices": [] if is_empty else [choice],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": answer.completion,
            "total_tokens": prompt + answer.completion,
            "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": answer.reasoning, "audio_tokens": 0},
        },
        "service_tier": view.service_tier,
        "system_fingerprint": "simulated",
    }


def _build_response(view: RequestView, answer: _Answer, digest: str, *, is_empty: bool) -> dict[str, Any]:
    reason = {"length": "max_output_tokens"}.get(answer.finish_reason, answer.finish_reason)
    is_cut = answer.finish_reason in ("length", "content_filter")
    status = "incomplete" if is_cut else "completed"
    prompt, cached = _count_prompt(view)
    return {
        "id": f"resp_sim_{digest[:24]}",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if is_cut else None,
        "model": view.model,
        "output": [] if is_empty else _build_items(answer, digest, status),
        "parallel_tool_calls": False,
        "tool_choice": view.body.get("tool_choice", "auto"),
        "tools": view.body.get("tools", []),
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": answer.completion,
            "output_tokens_details": {"reasoning_tokens": answer.reasoning},
            "total_tokens": prompt + answer.completion,
        },
        "service_tier": view.service_tier,
    }


def _build_items(answer: _Answer, digest: str, status: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        items.append({"id": f"rs_sim_{digest[:16]}", "type": "reasoning", "summary": []})
    if answer.tool is not None:
        name = {"call_id": f"call_sim_{digest[:16]}", "name": answer.tool, "arguments": answer.text}
        items.append({"id": f"fc_sim_{digest[:16]}", "type": "function_call", "status": status, **name})
    elif answer.text or answer.refusal:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        if answer.refusal:
            part = {"type": "refusal", "refusal": answer.refusal}
        message = {"type": "message", "role": "assistant", "status": status, "content": [part]}
        items.append({"id": f"msg_sim_{digest[:16]}", **message})
    return items


def _count_prompt(view: RequestView) -> tuple[int, int]:
    """The tokens of the prompt, and how many of them were cached."""
    prompt = count_tokens(view.prompt_characters)
    return prompt, count_tokens(view.repeated_characters) // CACHED_BLOCK * CACHED_BLOCK
