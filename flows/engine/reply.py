"""Reading a provider's answer: the arguments of the tool call, or precise issues that say why there are none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.issues import Issue, Severity
from flows.engine.json_value import clean_value, describe_type, parse_object
from flows.engine.usage import UNREPORTED_USAGE, TokenUsage

LONGEST_RAW = 64 * 1024
"""Characters of an unusable answer that are kept."""

_LONGEST_NAME = 200
_LONGEST_QUOTE = 300
_NEAR = 30
"""Characters shown before and after the place where JSON is broken."""
_MOST_TOKENS = 2**31 - 1
_PLACE = re.compile(r"^Line (\d+), column (\d+): ")


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


@dataclass(frozen=True, slots=True)
class _Unusable:
    code: str
    description: str
    raw: str | None = None


def read_reply(body: Any, *, tool_name: str) -> ToolReply:
    """Read the response ``body`` to a request that forced a call of the tool ``tool_name``.

    Never raises, whatever ``body`` is: what can't be used becomes a critical issue.
    """
    found = _as_mapping(body)
    usage = read_usage(found.get("usage"))
    choice = _first_mapping(found.get("choices"))
    finish_reason = _read_name(choice.get("finish_reason"))
    outcome = _read_body(body, tool_name, finish_reason, usage)
    arguments: dict[str, Any] | None = None
    raw: str | None = None
    issues: tuple[Issue, ...] = ()
    if isinstance(outcome, _Unusable):
        raw = _cut_raw(outcome.raw)
        issues = (Issue(code=outcome.code, severity=Severity.CRITICAL, description=outcome.description),)
    else:
        arguments = outcome
    return ToolReply(
        arguments=arguments,
        raw=raw,
        issues=issues,
        usage=usage,
        model=_read_name(found.get("model")),
        response_id=_read_name(found.get("id")),
        finish_reason=finish_reason,
    )


def read_usage(usage: Any) -> TokenUsage:
    """The tokens that a response reports; ``UNREPORTED_USAGE`` where it reports none or what can't be true.

    Cached and reasoning tokens are parts: more than the whole is taken to mean the whole.
    """
    found = _as_mapping(usage)
    prompt = _read_count(found.get("prompt_tokens"))
    completion = _read_count(found.get("completion_tokens"))
    if prompt is None or completion is None:
        return UNREPORTED_USAGE
    total = _read_count(found.get("total_tokens"))
    cached = _read_count(_as_mapping(found.get("prompt_tokens_details")).get("cached_tokens"))
    reasoning = _read_count(_as_mapping(found.get("completion_tokens_details")).get("reasoning_tokens"))
    return TokenUsage(
        prompt=prompt,
        completion=completion,
        total=max(total or 0, prompt + completion),
        cached=min(cached or 0, prompt),
        reasoning=min(reasoning or 0, completion),
    )


def _read_body(body: Any, tool_name: str, finish_reason: str | None, usage: TokenUsage) -> dict[str, Any] | _Unusable:
    """The arguments of the call, or why there are none: first what the provider says about it, then what is there."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list):
        return _Unusable("unreadable_reply", "The response is no chat completion: it has no list of choices.")
    if not choices:
        return _Unusable("empty_choices", "The response has no choices: the model gave no answer at all.")
    message = _as_mapping(choices[0]).get("message")
    if not isinstance(message, Mapping):
        return _Unusable("unreadable_reply", "The response is no chat completion: its first choice has no message.")
    calls = message.get("tool_calls") or []
    content = message.get("content")
    raw = _find_text(calls, content)
    if finish_reason == "length":
        return _Unusable("truncated", _describe_cut(usage), raw)
    if finish_reason == "content_filter":
        return _Unusable(
            "content_filter",
            "The provider's content filter withheld the answer (finish_reason “content_filter”). "
            "Keep to wording that is beyond doubt.",
            raw,
        )
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal.strip():
        return _Unusable("refusal", f"The model refused to answer: “{_quote(refusal)}”", refusal)
    if not isinstance(calls, list):
        return _Unusable("unreadable_reply", "The response is no chat completion: “tool_calls” is no list.", raw)
    return _read_calls(calls, content, raw, tool_name)


def _read_calls(calls: list[Any], content: Any, raw: str | None, tool_name: str) -> dict[str, Any] | _Unusable:
    if not calls:
        said = f", got text: “{_quote(content)}”" if isinstance(content, str) and content.strip() else ", got nothing."
        return _Unusable("no_tool_call", f"Expected a call of the tool `{tool_name}`{said}", raw)
    functions = [_as_mapping(_as_mapping(call).get("function")) for call in calls]
    names = [_read_name(function.get("name")) for function in functions]
    if len(calls) > 1:
        return _Unusable(
            "several_tool_calls",
            f"Expected one call of the tool `{tool_name}`, got {len(calls)} calls: "
            f"{_quote(', '.join(f'`{name}`' for name in names))}. Put everything into one call.",
            raw,
        )
    if names[0] != tool_name:
        got = f"a call of `{names[0]}`" if names[0] else "a call that names no tool"
        return _Unusable("wrong_tool", f"Expected a call of the tool `{tool_name}`, got {got}.", raw)
    return _read_arguments(functions[0].get("arguments"), tool_name)


def _read_arguments(arguments: Any, tool_name: str) -> dict[str, Any] | _Unusable:
    whose = f"The arguments of `{tool_name}`"
    if isinstance(arguments, Mapping):
        # Some compatible servers send the object itself; as text it passes the same checks.
        arguments = _write_json(arguments)
    elif not isinstance(arguments, str):
        return _Unusable("arguments_not_object", f"{whose} must be a JSON object, got {describe_type(arguments)}.")
    try:
        return parse_object(arguments)
    except ValueError as error:
        sentence = str(error)
    if (value := _parse_anything(arguments)) is not None and not isinstance(value[0], dict):
        description = f"{whose} must be a JSON object, got {describe_type(value[0])}."
        return _Unusable("arguments_not_object", description, arguments)
    description = f"{whose} are not valid JSON. {sentence}{_show_place(arguments, sentence)}"
    return _Unusable("malformed_arguments", description, arguments)


def _parse_anything(text: str) -> tuple[Any] | None:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None


def _write_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"(not JSON: {error})"


def _show_place(text: str, sentence: str) -> str:
    """What stands around the place that ``sentence`` names, if it names one: models find text, not columns."""
    found = _PLACE.match(sentence)
    if found is None:
        return ""
    lines = text.split("\n", int(found[1]))
    position = sum(len(line) + 1 for line in lines[: int(found[1]) - 1]) + int(found[2]) - 1
    near = text[max(0, position - _NEAR) : position + _NEAR].strip()
    return f" It is near “{_quote(near)}”." if near else ""


def _describe_cut(usage: TokenUsage) -> str:
    after = f" after {usage.completion} completion tokens" if usage.reported and usage.completion else ""
    return (
        f"The answer was cut off{after} (finish_reason “length”), so that it is incomplete. "
        "Answer more briefly, or raise the step's max tokens."
    )


def _find_text(calls: Any, content: Any) -> str | None:
    """The text that came, for the record: the arguments of the only call, all calls as JSON, else the content."""
    if isinstance(calls, list) and len(calls) == 1:
        arguments = _as_mapping(_as_mapping(calls[0]).get("function")).get("arguments")
        if isinstance(arguments, str):
            return arguments
    if calls:
        return _write_json(calls)
    return content if isinstance(content, str) and content else None


def _cut_raw(raw: str | None) -> str | None:
    if raw is None or len(raw) <= LONGEST_RAW:
        return raw
    mark = f"… (cut here; {len(raw):,} characters came)"
    return raw[: LONGEST_RAW - len(mark)] + mark


def _quote(text: str) -> str:
    """``text`` on one line, short, and safe to store, for use inside a sentence."""
    if len(text) <= _LONGEST_QUOTE and text.isascii() and text.isprintable():
        return text
    line = " ".join(text[: 4 * _LONGEST_QUOTE].split())
    line = line if len(line) <= _LONGEST_QUOTE else line[: _LONGEST_QUOTE - 1] + "…"
    return str(clean_value(line).value)


def _read_name(value: Any) -> str | None:
    return _quote(value)[:_LONGEST_NAME] if isinstance(value, str) and value.strip() else None


def _read_count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if is_count else None


def _as_mapping(value: Any) -> Mapping[str, Any]:
    # What JSON gives is a dict; asking for that first is far cheaper.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def _first_mapping(value: Any) -> Mapping[str, Any]:
    return _as_mapping(value[0]) if isinstance(value, list) and value else {}
