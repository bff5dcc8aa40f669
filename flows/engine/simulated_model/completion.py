"""What the simulated model reads in a request, and the body of its answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
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

_SECTION = re.compile(f"^{re.escape(CURRENT_STEP_HEADING)}$", re.MULTILINE)
_ATTEMPT = re.compile("^" + r"(\d{1,9})".join(map(re.escape, ATTEMPT_HEADING.split("{number}"))) + "$", re.MULTILINE)
_KEY_NUMBER = re.compile(r"-(\d{1,9})$")


@dataclass(frozen=True)
class RequestView:
    """A request that passed the check, and the key that it was sent with."""

    body: dict[str, Any]
    idempotency_key: str | None

    @cached_property
    def functions(self) -> list[Mapping[str, Any]]:
        """The functions of all tools."""
        return [tool.get("function", tool) for tool in self.body.get("tools") or ()]

    @cached_property
    def function(self) -> Mapping[str, Any] | None:
        """The function that the answer calls: the forced one, else the first; None where text is asked for."""
        choice = self.body.get("tool_choice")
        wanted = choice.get("function", choice)["name"] if isinstance(choice, dict) else None
        named = [one for one in self.functions if wanted in (None, one["name"])]
        return named[0] if named and choice != "none" else None

    @property
    def tool_name(self) -> str | None:
        return None if self.function is None else str(self.function["name"])

    @cached_property
    def _messages(self) -> list[tuple[str, str]]:
        return [(message["role"], _read_text(message)) for message in list_messages(self.body)]

    @cached_property
    def system_message(self) -> str:
        return "\n\n".join(text for role, text in self._messages if role in ("system", "developer"))

    @cached_property
    def input(self) -> Any:
        """The last user message, as JSON where it is JSON."""
        text = next((text for role, text in reversed(self._messages) if role == "user"), "")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text

    @cached_property
    def _section(self) -> re.Match[str] | None:
        # The last one: a step's own message may hold such a line as well, and stands before it.
        return next(reversed(list(_SECTION.finditer(self.system_message))), None)

    @cached_property
    def attempts_shown(self) -> int:
        """How many earlier outputs there are, by the highest number that the system message shows; 0 on a first try."""
        if self._section is None:
            return 0
        numbers = _ATTEMPT.findall(self.system_message, self._section.end())
        return max(map(int, numbers), default=0)

    @property
    def attempt_number(self) -> int | None:
        """The number of this attempt, where the idempotency key ends with it (``<run>-<step>-<number>``)."""
        found = _KEY_NUMBER.search(self.idempotency_key or "")
        return int(found[1]) if found else None

    def count_prompt(self) -> tuple[int, int]:
        """The tokens of the prompt, and how many were cached: an earlier try had what stands before its attempts."""
        tools = len(json.dumps(self.body.get("tools") or ""))
        prompt = tools + sum(len(text) for _, text in self._messages)
        repeated = 0 if self._section is None else tools + self._section.start()
        return _count_tokens(prompt), _count_tokens(repeated) // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS

    @property
    def reasons(self) -> bool:
        """Whether the model thinks before it answers."""
        effort = find_effort(self.body) or find_family(self.body["model"]).default_effort
        return effort not in ("", ReasoningEffort.NONE)


def _read_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _count_tokens(characters: int) -> int:
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


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
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    name = view.tool_name
    reasoning = 64 * int(3 * draw_fraction("reasoning", digest)) if view.reasons else 0
    is_forced = isinstance(view.body.get("tool_choice"), dict)
    called = _Answer("stop" if is_forced else "tool_calls", reasoning, name, text)
    match fault:
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
    is_text = name is None or fault is FaultKind.NO_TOOL
    return _Answer("stop", reasoning, text=_TEXT) if is_text else called


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
        "system_fingerprint": "simulated",
    }


def _build_response(view: RequestView, answer: _Answer, digest: str, *, is_empty: bool) -> dict[str, Any]:
    reason = {"length": "max_output_tokens"}.get(answer.finish_reason, answer.finish_reason)
    is_cut = answer.finish_reason in ("length", "content_filter")
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


def _build_usage(view: RequestView, answer: _Answer, prompt_name: str, completion_name: str) -> dict[str, Any]:
    prompt, cached = view.count_prompt()
    return {
        f"{prompt_name}_tokens": prompt,
        f"{completion_name}_tokens": answer.tokens,
        "total_tokens": prompt + answer.tokens,
        f"{prompt_name}_tokens_details": {"cached_tokens": cached},
        f"{completion_name}_tokens_details": {"reasoning_tokens": answer.reasoning},
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
