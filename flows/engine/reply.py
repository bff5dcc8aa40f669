"""Reading a provider's answer: the arguments of the tool call, or precise issues that say why there are none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.history import Issue, Severity, TokenUsage
from flows.engine.json_values import clean_value, describe_type, parse_object, shorten
from flows.engine.model_api import ModelAnswer, parse_completion, parse_response
from flows.engine.providers import Api

MAX_RAW_LENGTH = 64 * 1024
"""Characters of an unusable answer that are kept."""

_MAX_NAME_LENGTH = 200
_MAX_QUOTE_LENGTH = 300
_NEAR = 30
"""Characters shown before and after the place where JSON is broken."""
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
    service_tier: str | None = None
    """The tier that served the call."""


@dataclass(frozen=True, slots=True)
class _Unusable:
    code: str
    description: str
    raw: str | None = None


def parse_reply(body: Any, *, tool_name: str, api: Api = Api.CHAT) -> ToolReply:
    """Read the response ``body`` to a request by ``api`` that forced a call of the tool ``tool_name``.

    Never raises, whatever ``body`` is: what can't be used becomes a critical issue.
    """
    answer = parse_response(body) if api is Api.RESPONSES else parse_completion(body)
    outcome = _judge_answer(answer, tool_name)
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
        usage=answer.usage,
        model=_parse_name(answer.model),
        response_id=_parse_name(answer.response_id),
        finish_reason=_parse_name(answer.finish_reason),
        service_tier=_parse_name(answer.service_tier),
    )


def _judge_answer(answer: ModelAnswer, tool_name: str) -> dict[str, Any] | _Unusable:
    """The arguments of the call, or why there are none: first what the provider says about it, then what is there."""
    raw = _find_text(answer)
    if answer.finish_reason == "length":
        return _Unusable("truncated", _describe_cut(answer.usage), raw)
    if answer.finish_reason == "content_filter":
        return _Unusable(
            "content_filter",
            "The provider's content filter withheld the answer (finish_reason “content_filter”). "
            "Keep to wording that is beyond doubt.",
            raw,
        )
    if isinstance(answer.refusal, str) and answer.refusal.strip():
        return _Unusable("refusal", f"The model refused to answer: “{_quote(answer.refusal)}”", answer.refusal)
    if answer.fault is not None:
        return _Unusable(*answer.fault, raw)
    return _parse_calls(answer, raw, tool_name)


def _parse_calls(answer: ModelAnswer, raw: str | None, tool_name: str) -> dict[str, Any] | _Unusable:
    functions, content = answer.functions, answer.content
    if not functions:
        said = f", got text: “{_quote(content)}”" if isinstance(content, str) and content.strip() else ", got nothing."
        return _Unusable("no_tool_call", f"Expected a call of the tool `{tool_name}`{said}", raw)
    names = [_parse_name(function.get("name")) for function in functions]
    if len(functions) > 1:
        return _Unusable(
            "several_tool_calls",
            f"Expected one call of the tool `{tool_name}`, got {len(functions)} calls: "
            f"{_quote(', '.join(f'`{name}`' for name in names))}. Put everything into one call.",
            raw,
        )
    if names[0] != tool_name:
        got = f"a call of `{names[0]}`" if names[0] else "a call that names no tool"
        return _Unusable("wrong_tool", f"Expected a call of the tool `{tool_name}`, got {got}.", raw)
    return _parse_arguments(functions[0].get("arguments"), tool_name)


def _parse_arguments(arguments: Any, tool_name: str) -> dict[str, Any] | _Unusable:
    whose = f"The arguments of `{tool_name}`"
    if isinstance(arguments, Mapping):
        # Some compatible servers send the object itself; as text it passes the same checks.
        arguments = _render_json(arguments)
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


def _render_json(value: Any) -> str:
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


def _find_text(answer: ModelAnswer) -> str | None:
    """The text that came, for the record: the arguments of the only call, all calls as JSON, else the content."""
    if len(answer.functions) == 1 and isinstance(arguments := answer.functions[0].get("arguments"), str):
        return arguments
    if answer.calls:
        return _render_json(answer.calls)
    return answer.content if isinstance(answer.content, str) and answer.content else None


def _cut_raw(raw: str | None) -> str | None:
    if raw is None or len(raw) <= MAX_RAW_LENGTH:
        return raw
    mark = f"… (cut here; {len(raw):,} characters came)"
    return raw[: MAX_RAW_LENGTH - len(mark)] + mark


def _quote(text: str) -> str:
    """``text`` on one line, short, and safe to store, for use inside a sentence."""
    if len(text) <= _MAX_QUOTE_LENGTH and text.isascii() and text.isprintable():
        return text
    line = " ".join(text[: 4 * _MAX_QUOTE_LENGTH].split())
    return str(clean_value(shorten(line, _MAX_QUOTE_LENGTH)).value)


def _parse_name(value: Any) -> str | None:
    return _quote(value)[:_MAX_NAME_LENGTH] if isinstance(value, str) and value.strip() else None
