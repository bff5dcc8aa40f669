"""What the spans of attempts tell, in the words of the semantic conventions for generative AI."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes

from flows.engine.history import Attempt
from flows.engine.model_api import find_max_tokens, find_tool, list_messages
from flows.engine.providers import Provider

OPENAI, SIMULATED = gen_ai.GenAiProviderNameValues.OPENAI.value, "simulated"

RUN, STEP, ATTEMPT = "toolflow.run", "toolflow.step", "toolflow.attempt"
FLOW, VERSION = "toolflow.flow", "toolflow.version"
STATUS, END_REASON = "toolflow.run.status", "toolflow.run.end_reason"
STEP_NAME, OUTCOME, COST = "toolflow.step.name", "toolflow.attempt.outcome", "toolflow.cost_usd"
ISSUES = "toolflow.issues"

Attributes = dict[str, str | int | float | Sequence[str]]


def describe_server(provider: Provider) -> Attributes:
    """The provider that is called."""
    if provider.is_simulated:
        return {gen_ai.GEN_AI_PROVIDER_NAME: SIMULATED}
    # A default provider that speaks OpenAI's language counts as OpenAI; the address tells which server it is.
    found: Attributes = {gen_ai.GEN_AI_PROVIDER_NAME: provider.name or OPENAI}
    parts = urlsplit(provider.base_url)
    if parts.hostname:
        found[server_attributes.SERVER_ADDRESS] = parts.hostname
        found[server_attributes.SERVER_PORT] = parts.port or (443 if parts.scheme == "https" else 80)
    return found


def describe_call(attempt: Attempt, provider: Provider) -> Attributes:
    """What the call of an attempt was and used; without what was said."""
    request = attempt.request or {}
    usage = attempt.usage
    found: Attributes = {
        **describe_server(provider),
        gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.CHAT.value,
        gen_ai.GEN_AI_OUTPUT_TYPE: gen_ai.GenAiOutputTypeValues.JSON.value,
    }
    optional: dict[str, Any] = {
        gen_ai.GEN_AI_REQUEST_MODEL: request.get("model"),
        gen_ai.GEN_AI_REQUEST_TEMPERATURE: request.get("temperature"),
        gen_ai.GEN_AI_REQUEST_MAX_TOKENS: find_max_tokens(request),
        gen_ai.GEN_AI_RESPONSE_MODEL: attempt.model and attempt.model.removeprefix(provider.qualify("")),
        gen_ai.GEN_AI_RESPONSE_ID: attempt.response_id,
        gen_ai.GEN_AI_RESPONSE_FINISH_REASONS: [attempt.finish_reason] if attempt.finish_reason else None,
        COST: float(usage.cost) if usage.cost is not None else None,
    }
    if usage.reported:
        optional |= {
            gen_ai.GEN_AI_USAGE_INPUT_TOKENS: usage.prompt,
            gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS: usage.completion,
            gen_ai.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: usage.cached,
            gen_ai.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning,
        }
    if attempt.error is not None:
        optional[error_attributes.ERROR_TYPE] = attempt.error.code.value
        optional[http_attributes.HTTP_RESPONSE_STATUS_CODE] = attempt.error.status
    return found | {name: value for name, value in optional.items() if value is not None}


def describe_content(attempt: Attempt) -> Attributes:
    """What was sent to the model and what came back, as the history keeps it."""
    request = attempt.request or {}
    found: Attributes = {
        gen_ai.GEN_AI_INPUT_MESSAGES: _write([_describe_message(message) for message in list_messages(request)]),
        gen_ai.GEN_AI_TOOL_DEFINITIONS: _write(request.get("tools", [])),
    }
    if attempt.output is not None or attempt.raw_output is not None:
        tool = find_tool(request).get("name", "")
        part = {"type": "tool_call", "name": tool, "arguments": attempt.output or attempt.raw_output}
        message = {"role": "assistant", "parts": [part], "finish_reason": attempt.finish_reason or ""}
        found[gen_ai.GEN_AI_OUTPUT_MESSAGES] = _write([message])
    return found


def count_issues(attempt: Attempt) -> Attributes:
    """How many issues of each severity an attempt has."""
    return {
        f"{ISSUES}.{severity}": count for severity, count in Counter(i.severity.value for i in attempt.issues).items()
    }


def _describe_message(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": message.get("role", ""), "parts": [{"type": "text", "content": message.get("content")}]}


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
