"""The body of an answer, and what faults make of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from flows.engine.simulated_model.chance import draw_fraction
from flows.engine.simulated_model.request_check import is_reasoning_model
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


def build_completion(
    view: RequestView, arguments: Mapping[str, Any], *, fault: FaultKind | None, digest: str
) -> dict[str, Any]:
    """The response body to a request whose answer is ``arguments``, spoilt by ``fault`` if there is one.

    An answer longer than the request's token limit is cut off there, as a real one would be. ``digest`` identifies
    the request.
    """
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    name = view.tool_name
    finish_reason = "stop" if view.is_forced or name is None else "tool_calls"
    content: str | None = None
    refusal: str | None = None
    if fault is FaultKind.MALFORMED:
        text = text[: max(1, len(text) * 3 // 4)]
    elif fault is FaultKind.NOT_OBJECT:
        text = json.dumps(list(arguments.values()), ensure_ascii=False)
    elif fault is FaultKind.TRUNCATED:
        text, finish_reason = text[: len(text) // 2], "length"
    elif fault is FaultKind.WRONG_TOOL:
        others = [tool["function"]["name"] for tool in view.body.get("tools") or ()]
        name = next((other for other in others if other != name), f"other_{name}"[:64])
    elif fault is FaultKind.NO_TOOL:
        name, content = None, _TEXT
    elif fault is FaultKind.REFUSAL:
        name, refusal = None, _REFUSAL
    elif fault is FaultKind.CONTENT_FILTER:
        name, finish_reason = None, "content_filter"
    elif name is None:
        content = _TEXT
    reasoning = 64 * int(3 * draw_fraction("reasoning", digest)) if is_reasoning_model(view.model) else 0
    said = text if name is not None else content or refusal or ""
    if view.max_tokens is not None and count_tokens(len(said)) + reasoning > view.max_tokens:
        # Thinking comes first and counts; what is left of the limit is said.
        reasoning = min(reasoning, view.max_tokens)
        said = said[: (view.max_tokens - reasoning) * CHARACTERS_A_TOKEN]
        finish_reason = "length"
        text, content = (said, content) if name is not None else (text, said)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal}
    if name is not None:
        call = {"name": name, "arguments": text}
        message["tool_calls"] = [{"id": f"call_sim_{digest[:16]}", "type": "function", "function": call}]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    return {
        "id": f"chatcmpl-sim-{digest[:24]}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": view.model,
        "choices": [] if fault is FaultKind.EMPTY_CHOICES else [choice],
        "usage": _count_usage(view, count_tokens(len(said)), reasoning),
        "service_tier": "default",
        "system_fingerprint": "simulated",
    }


def _count_usage(view: RequestView, said: int, reasoning: int) -> dict[str, Any]:
    prompt = count_tokens(view.prompt_characters)
    cached = count_tokens(view.repeated_characters) // CACHED_BLOCK * CACHED_BLOCK
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said + reasoning,
        "total_tokens": prompt + said + reasoning,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
    }
