"""What the simulated model reads in a request, and the body of its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flows.engine.model_api import find_api, find_effort, find_max_tokens, list_messages
from flows.engine.model_families import ReasoningEffort, find_family
from flows.engine.prompt import ATTEMPT_HEADING, CURRENT_STEP_HEADING
from flows.engine.providers import Api
from flows.engine.simulated_model.script import FaultKind, draw_fraction

CHARACTERS_PER_TOKEN = 4
CACHE_BLOCK_TOKENS = 128
"""Providers cache prompts in blocks of this many tokens."""

_CREATED = 1_767_225_600
"""The start of 2026: the answer to a request is the same whenever it is asked for."""
_REFUSAL = "I'm sorry, but I can't help with that request."
_TEXT = "Here is what I would suggest, in plain words instead of a call."

_ATTEMPT = re.compile("^" + r"(\d{1,9})".join(map(re.escape, ATTEMPT_HEADING.split("{number}"))) + "$", re.MULTILINE)
_KEY_NUMBER = re.compile(r"-(\d{1,9})$")


@dataclass(frozen=True, slots=True)
class RequestView:
    """What a request asks for."""

    body: dict[str, Any]
    functions: list[Mapping[str, Any]]
    """The functions of all tools."""
    function: Mapping[str, Any] | None
    """The function that the answer calls: the forced one, else the first; None where text is asked for."""
    input: Any
    """The last user message, as JSON where it is JSON."""
    attempts_shown: int
    """How many earlier outputs there are, by the highest number that the system message shows; 0 on a first try."""
    attempt_number: int | None
    """The number of this attempt, where the idempotency key ends with it (``<run>-<step>-<number>``)."""
    run: str
    """What the idempotency key names before step and attempt."""
    prompt_tokens: int
    cached_tokens: int
    """Tokens that an earlier try had too: they are before the attempts that are shown."""


def parse_request(body: dict[str, Any], key: str | None) -> RequestView:
    """Read a request that was sent with the idempotency key ``key``."""
    functions = [tool.get("function", tool) for tool in body.get("tools") or ()]
    choice = body.get("tool_choice")
    wanted = choice.get("function", choice)["name"] if isinstance(choice, dict) else None
    named = [] if choice == "none" else [one for one in functions if wanted in (None, one["name"])]
    messages = [(message["role"], str(message.get("content") or "")) for message in list_messages(body)]
    system = "\n\n".join(text for role, text in messages if role in ("system", "developer"))
    # The last one: a step's own message may hold such a line as well, and is before it.
    before, heading, attempts = f"\n{system}\n".rpartition(f"\n{CURRENT_STEP_HEADING}\n")
    number = _KEY_NUMBER.search(key or "")
    tools = len(json.dumps(body.get("tools") or ""))
    repeated = _count_tokens(tools + len(before)) if heading else 0
    return RequestView(
        body=body,
        functions=functions,
        function=named[0] if named else None,
        input=_parse_json(next((text for role, text in reversed(messages) if role == "user"), "")),
        attempts_shown=max(map(int, _ATTEMPT.findall(attempts)), default=0) if heading else 0,
        attempt_number=int(number[1]) if number else None,
        run=(key or "").rsplit("-", 2)[0],
        prompt_tokens=_count_tokens(tools + sum(len(text) for _, text in messages)),
        cached_tokens=repeated // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS,
    )


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _count_tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


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
    def tokens(self) -> int:
        return _count_tokens(len(self.text or self.refusal or "")) + self.reasoning


def build_answer(
    view: RequestView, arguments: Mapping[str, Any], *, fault: FaultKind | None, digest: str
) -> dict[str, Any]:
    """The response body to a request whose answer is ``arguments``, spoilt by ``fault`` if there is one.

    An answer longer than the request's token limit is cut off there, as a real one would be. ``digest`` identifies
    the request.
    """
    answer = _cut_off(_decide_answer(view, arguments, fault, digest), find_max_tokens(view.body))
    build = _build_response if find_api(view.body) is Api.RESPONSES else _build_completion
    tier = view.body.get("service_tier")
    body = build(view, answer, digest, is_empty=fault is FaultKind.EMPTY_CHOICES)
    return {**body, "model": view.body["model"], "service_tier": tier if tier in ("flex", "priority") else "default"}


def _decide_answer(view: RequestView, arguments: Mapping[str, Any], fault: FaultKind | None, digest: str) -> _Answer:
    effort = find_effort(view.body) or find_family(view.body["model"]).default_effort
    reasoning = 0 if effort in ("", ReasoningEffort.NONE) else 64 * int(3 * draw_fraction("reasoning", digest))
    if fault is FaultKind.REFUSAL:
        return _Answer("stop", reasoning, refusal=_REFUSAL)
    if fault is FaultKind.CONTENT_FILTER:
        return _Answer("content_filter", reasoning)
    if view.function is None or fault is FaultKind.NO_TOOL:
        return _Answer("stop", reasoning, text=_TEXT)
    name, text = str(view.function["name"]), json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    is_forced = isinstance(view.body.get("tool_choice"), dict)
    called = _Answer("stop" if is_forced else "tool_calls", reasoning, name, text)
    match fault:
        case FaultKind.MALFORMED:
            return replace(called, text=text[: max(1, len(text) * 3 // 4)])
        case FaultKind.NOT_OBJECT:
            return replace(called, text=json.dumps(list(arguments.values()), ensure_ascii=False))
        case FaultKind.TRUNCATED:
            return replace(called, text=text[: len(text) // 2], finish_reason="length")
        case FaultKind.WRONG_TOOL:
            others = (str(function["name"]) for function in view.functions if function["name"] != name)
            return replace(called, tool=next(others, f"other_{name}"[:64]))
    return called


def _cut_off(answer: _Answer, limit: int | None) -> _Answer:
    if limit is None or answer.tokens <= limit:
        return answer
    # Thinking comes first and counts; what is left of the limit is said.
    reasoning = min(answer.reasoning, limit)
    characters = (limit - reasoning) * CHARACTERS_PER_TOKEN
    refusal = answer.refusal and answer.refusal[:characters]
    return replace(answer, finish_reason="length", reasoning=reasoning, text=answer.text[:characters], refusal=refusal)


def _build_completion(view: RequestView, answer: _Answer, digest: str, *, is_empty: bool) -> dict[str, Any]:
    content = answer.text or None if answer.tool is None else None
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": answer.refusal}
    if answer.tool is not None:
        call = {"name": answer.tool, "arguments": answer.text}
        message["tool_calls"] = [{"id": f"call_sim_{digest[:16]}", "type": "function", "function": call}]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
    return {
        "id": f"chatcmpl-sim-{digest[:24]}",
        "object": "chat.completion",
        "created": _CREATED,
        "choices": [] if is_empty else [choice],
        "usage": _build_usage(view, answer, "prompt", "completion"),
    }


def _build_response(view: RequestView, answer: _Answer, digest: str, *, is_empty: bool) -> dict[str, Any]:
    is_cut = answer.finish_reason in ("length", "content_filter")
    reason = "max_output_tokens" if answer.finish_reason == "length" else answer.finish_reason
    status = "incomplete" if is_cut else "completed"
    return {
        "id": f"resp_sim_{digest[:24]}",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if is_cut else None,
        "output": [] if is_empty else _build_items(answer, digest, status),
        "parallel_tool_calls": False,
        "tool_choice": view.body.get("tool_choice", "auto"),
        "tools": view.body.get("tools", []),
        "usage": _build_usage(view, answer, "input", "output"),
    }


def _build_items(answer: _Answer, digest: str, status: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        items.append({"id": f"rs_sim_{digest[:16]}", "type": "reasoning", "summary": []})
    if answer.tool is not None:
        name = {"call_id": f"call_sim_{digest[:16]}", "name": answer.tool, "arguments": answer.text}
        items.append({"id": f"fc_sim_{digest[:16]}", "type": "function_call", "status": status, **name})
    elif answer.text or answer.refusal:
        part: dict[str, Any] = {"type": "output_text", "text": answer.text, "annotations": []}
        if answer.refusal:
            part = {"type": "refusal", "refusal": answer.refusal}
        message = {"type": "message", "role": "assistant", "status": status, "content": [part]}
        items.append({"id": f"msg_sim_{digest[:16]}", **message})
    return items


def _build_usage(view: RequestView, answer: _Answer, prompt_name: str, completion_name: str) -> dict[str, Any]:
    return {
        f"{prompt_name}_tokens": view.prompt_tokens,
        f"{completion_name}_tokens": answer.tokens,
        "total_tokens": view.prompt_tokens + answer.tokens,
        f"{prompt_name}_tokens_details": {"cached_tokens": view.cached_tokens},
        f"{completion_name}_tokens_details": {"reasoning_tokens": answer.reasoning},
    }
