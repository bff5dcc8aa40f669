"""Reading a provider's answer: the arguments of the tool call, or precise issues that say why there are none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.history import UNREPORTED_USAGE, Issue, Severity, TokenUsage
from flows.engine.json_values import clean_value, describe_type, parse_object, shorten
from flows.engine.providers import Api

MAX_RAW_LENGTH = 64 * 1024
"""Characters of an unusable answer that are kept."""

_MAX_TOKENS = 2**31 - 1
_MAX_NAME_LENGTH = 200
_MAX_QUOTE_LENGTH = 300
_NEAR = 30
"""Characters shown before and after the place where JSON is broken."""
_CUT_BY = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Why a response is incomplete, in the words of chat completions."""


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What one response says.

    ``arguments`` is the object that the tool was called with, None where there is none to use; then ``issues`` says
    why and ``raw`` is the text that came instead, if any. ``arguments`` and ``raw`` are as the provider sent them:
    NUL and lone surrogates are still in them. ``usage`` is what the provider billed either way, without its cost.
    """

    arguments: dict[str, Any] | None
    raw: str | None
    issues: tuple[Issue, ...]
    usage: TokenUsage
    model: str | None
    response_id: str | None
    finish_reason: str | None
    service_tier: str | None = None
    """The tier that served the call."""


class _UnusableError(Exception):
    """There are no arguments: the code and the description of the issue, and the text that came instead."""

    def __init__(self, code: str, description: str, raw: str | None = None) -> None:
        self.code, self.description, self.raw = code, description, raw


@dataclass(frozen=True, slots=True)
class _Answer:
    """The parts of a response of either API that matter, as they came."""

    calls: Any
    """The calls whole, for the record."""
    functions: list[Mapping[str, Any]]
    """What was called: ``name`` and ``arguments`` of each call."""
    content: Any
    """Text in place of a call."""
    refusal: Any
    finish_reason: Any
    """In the words of chat completions."""
    usage: TokenUsage
    fault: tuple[str, str] | None
    """The code and the description of an issue, where there is no answer in the response."""


def parse_reply(body: Any, *, tool_name: str, api: Api = Api.CHAT) -> ToolReply:
    """Read the response ``body`` to a request by ``api`` that forced a call of the tool ``tool_name``.

    Never raises, whatever ``body`` is: what can't be used becomes a critical issue.
    """
    found = _as_mapping(body)
    answer = _read_response(found) if api is Api.RESPONSES else _read_completion(found)
    arguments: dict[str, Any] | None = None
    raw: str | None = None
    issues: tuple[Issue, ...] = ()
    try:
        arguments = _parse_answer(answer, tool_name)
    except _UnusableError as error:
        raw = error.raw
        if raw is not None and len(raw) > MAX_RAW_LENGTH:
            mark = f"… (cut here; {len(raw):,} characters came)"
            raw = raw[: MAX_RAW_LENGTH - len(mark)] + mark
        issues = (Issue(code=error.code, severity=Severity.CRITICAL, description=error.description),)
    return ToolReply(
        arguments=arguments,
        raw=raw,
        issues=issues,
        usage=answer.usage,
        model=_parse_name(found.get("model")),
        response_id=_parse_name(found.get("id")),
        finish_reason=_parse_name(answer.finish_reason),
        service_tier=_parse_name(found.get("service_tier")),
    )


def _as_mapping(value: Any) -> Mapping[str, Any]:
    # What JSON gives is a dict; asking for that first is far cheaper.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parse_usage(usage: Any, prompt_name: str, completion_name: str) -> TokenUsage:
    """The tokens that a response reports; cached and reasoning ones are parts, at most the whole."""
    found = _as_mapping(usage)
    prompt, completion = (_parse_count(found.get(f"{name}_tokens")) for name in (prompt_name, completion_name))
    if prompt is None or completion is None:
        return UNREPORTED_USAGE
    cached = _as_mapping(found.get(f"{prompt_name}_tokens_details")).get("cached_tokens")
    reasoning = _as_mapping(found.get(f"{completion_name}_tokens_details")).get("reasoning_tokens")
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


# ---------------------------------------------------------------------------------------------------------------
# Chat completions


def _read_completion(found: Mapping[str, Any]) -> _Answer:
    choices = found.get("choices")
    choice = _as_mapping(next(iter(_as_list(choices)), None))
    message = _as_mapping(choice.get("message"))
    calls = message.get("tool_calls") or []
    return _Answer(
        calls=calls,
        functions=[_as_mapping(_as_mapping(call).get("function")) for call in _as_list(calls)],
        content=message.get("content"),
        refusal=message.get("refusal"),
        finish_reason=choice.get("finish_reason"),
        usage=_parse_usage(found.get("usage"), "prompt", "completion"),
        fault=_find_chat_fault(choices, choice, calls),
    )


def _find_chat_fault(choices: Any, choice: Mapping[str, Any], calls: Any) -> tuple[str, str] | None:
    if not isinstance(choices, list):
        return "unreadable_reply", "The response is not a chat completion: it has no list of choices."
    if not choices:
        return "empty_choices", "The response has no choices: the model gave no answer."
    if not isinstance(choice.get("message"), Mapping):
        return "unreadable_reply", "The response is not a chat completion: its first choice has no message."
    if not isinstance(calls, list):
        return "unreadable_reply", "The response is not a chat completion: “tool_calls” is not a list."
    return None


# ---------------------------------------------------------------------------------------------------------------
# Responses


def _read_response(found: Mapping[str, Any]) -> _Answer:
    items = [_as_mapping(item) for item in _as_list(found.get("output"))]
    calls = [item for item in items if item.get("type") == "function_call"]
    messages = [item for item in items if item.get("type") == "message"]
    parts = [_as_mapping(part) for item in messages for part in _as_list(item.get("content"))]
    return _Answer(
        calls=calls,
        functions=calls,
        content=_join_texts(parts, "text"),
        refusal=_join_texts(parts, "refusal"),
        finish_reason=_find_reason(found, has_calls=bool(calls)),
        usage=_parse_usage(found.get("usage"), "input", "output"),
        fault=_find_response_fault(found, has_answer=bool(calls or messages)),
    )


def _find_reason(found: Mapping[str, Any], *, has_calls: bool) -> Any:
    status = found.get("status")
    if status == "incomplete":
        reason = _as_mapping(found.get("incomplete_details")).get("reason")
        return _CUT_BY.get(reason, reason) if isinstance(reason, str) else "length"
    if status in (None, "completed"):
        return "tool_calls" if has_calls else "stop"
    return status


def _find_response_fault(found: Mapping[str, Any], *, has_answer: bool) -> tuple[str, str] | None:
    if not isinstance(found.get("output"), list):
        return "unreadable_reply", "The response is not from the Responses API: it has no list “output”."
    status = found.get("status")
    if status not in (None, "completed", "incomplete"):
        return "unreadable_reply", f"The response is not complete: its status is “{_quote(str(status))}”."
    if not has_answer:
        return "empty_choices", "The response has no output: the model gave no answer."
    return None


def _join_texts(parts: list[Mapping[str, Any]], name: str) -> str | None:
    return "".join(text for part in parts if isinstance(text := part.get(name), str)) or None


# ---------------------------------------------------------------------------------------------------------------
# What of it can be used


def _parse_answer(answer: _Answer, tool_name: str) -> dict[str, Any]:
    """The arguments of the call: first what the provider says about it counts, then what is there."""
    raw = _find_text(answer)
    if answer.finish_reason == "length":
        after = f" after {answer.usage.completion} completion tokens" if answer.usage.completion else ""
        description = (
            f"The answer was cut off{after} (finish_reason “length”), so it is incomplete. Answer more "
            "briefly, or raise the step's max tokens."
        )
        raise _UnusableError("truncated", description, raw)
    if answer.finish_reason == "content_filter":
        description = (
            "The provider's content filter withheld the answer (finish_reason “content_filter”). Use neutral wording."
        )
        raise _UnusableError("content_filter", description, raw)
    if isinstance(answer.refusal, str) and answer.refusal.strip():
        description = f"The model refused to answer: “{_quote(answer.refusal)}”"
        raise _UnusableError("refusal", description, answer.refusal)
    if answer.fault is not None:
        raise _UnusableError(*answer.fault, raw)
    functions, content = answer.functions, answer.content
    if not functions:
        said = f", got text: “{_quote(content)}”" if isinstance(content, str) and content.strip() else ", got nothing."
        raise _UnusableError("no_tool_call", f"Expected a call of the tool `{tool_name}`{said}", raw)
    names = [_parse_name(function.get("name")) for function in functions]
    if len(functions) > 1:
        description = (
            f"Expected one call of the tool `{tool_name}`, got {len(functions)} calls: "
            f"{_quote(', '.join(f'`{name}`' for name in names))}. Put everything into one call."
        )
        raise _UnusableError("several_tool_calls", description, raw)
    if names[0] != tool_name:
        got = f"a call of `{names[0]}`" if names[0] else "a call without a tool name"
        raise _UnusableError("wrong_tool", f"Expected a call of the tool `{tool_name}`, got {got}.", raw)
    return _parse_arguments(functions[0].get("arguments"), tool_name)


def _parse_arguments(arguments: Any, tool_name: str) -> dict[str, Any]:
    whose = f"The arguments of `{tool_name}`"
    if isinstance(arguments, Mapping):
        # Some compatible servers send the object itself; as text it passes the same checks.
        arguments = _render_json(arguments)
    elif not isinstance(arguments, str):
        description = f"{whose} must be a JSON object, got {describe_type(arguments)}."
        raise _UnusableError("arguments_not_object", description)
    try:
        return parse_object(arguments)
    except ValueError as error:
        sentence = str(error)
    near = ""
    try:
        value = json.loads(arguments)
        if not isinstance(value, dict):
            description = f"{whose} must be a JSON object, got {describe_type(value)}."
            raise _UnusableError("arguments_not_object", description, arguments)
    except json.JSONDecodeError as error:
        # Models find text, not columns.
        near = arguments[max(0, error.pos - _NEAR) : error.pos + _NEAR].strip()
    except (ValueError, RecursionError):
        pass  # the sentence says it
    place = f" It is near “{_quote(near)}”." if near else ""
    raise _UnusableError("malformed_arguments", f"{whose} are not valid JSON. {sentence}{place}", arguments)


def _render_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"(not JSON: {error})"


def _find_text(answer: _Answer) -> str | None:
    """The text that came, for the record: the arguments of the only call, all calls as JSON, else the content."""
    if len(answer.functions) == 1 and isinstance(arguments := answer.functions[0].get("arguments"), str):
        return arguments
    if answer.calls:
        return _render_json(answer.calls)
    return answer.content if isinstance(answer.content, str) and answer.content else None


def _quote(text: str) -> str:
    """``text`` on one line, short, and safe to store, for use inside a sentence."""
    if len(text) <= _MAX_QUOTE_LENGTH and text.isascii() and text.isprintable():
        return text
    line = " ".join(text[: 4 * _MAX_QUOTE_LENGTH].split())
    return str(clean_value(shorten(line, _MAX_QUOTE_LENGTH)).value)


def _parse_name(value: Any) -> str | None:
    return _quote(value)[:_MAX_NAME_LENGTH] if isinstance(value, str) and value.strip() else None
