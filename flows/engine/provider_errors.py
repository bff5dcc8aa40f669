"""What a provider's refusals and broken connections mean, explained to the operator who has to fix them."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.json_values import shorten
from flows.engine.model_api import find_api
from flows.engine.providers import Api, Provider

MAX_QUOTE_LENGTH = 500
"""Characters of the provider's own message that are passed on."""
MAX_RETRY_AFTER = 24 * 3600.0
"""Seconds. A provider that asks for more is taken to mean a day."""

_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_MEANINGS = {
    403: (
        ModelErrorCode.FORBIDDEN,
        "The provider does not let this API key make the call (403). Check what its project may use or change it.",
    ),
    408: (ModelErrorCode.TIMEOUT, "The provider gave up waiting for the request (408)."),
    409: (ModelErrorCode.SERVER_ERROR, "The provider could not take the request at the moment (409)."),
    413: (
        ModelErrorCode.BAD_REQUEST,
        "The request is too large for the provider (413). Shorten the step's input or include fewer results.",
    ),
    425: (ModelErrorCode.SERVER_ERROR, "The provider could not take the request at the moment (425)."),
    429: (ModelErrorCode.RATE_LIMITED, "The provider's rate limit is reached (429)."),
}
_SETTINGS = (
    (re.compile(r"reasoning[._ ]effort"), "reasoning effort", "TOOLFLOW_REASONING_EFFORT"),
    (re.compile(r"temperature"), "temperature", "TOOLFLOW_TEMPERATURE"),
    (re.compile(r"max_(?:completion_|output_)?tokens"), "token limit", "TOOLFLOW_MAX_TOKENS"),
    (re.compile(r"service[_ ]tier"), "service tier", "TOOLFLOW_SERVICE_TIER"),
)
"""The settings that some models refuse, by how providers call them."""
_REFUSES = re.compile(r"support|not allowed|unknown parameter|unrecognized|unexpected")
"""What a message without a parameter says if it is about a setting that it names."""
_TOOLS = re.compile(r"tool_choice|parallel_tool_calls|forced tool|tool use")
_WANTS_RESPONSES = re.compile(r"v1/responses|responses api|not a chat model")
_SECRET = re.compile(r"(?i)\bsk-[\w*.…-]+|\bbearer\s+\S+")
_TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")
_TAG = re.compile(r"(?s)<[a-z!/][^>]*>")


def explain_status(
    status: int, body: Any, headers: Mapping[str, str], *, request: Mapping[str, Any], provider: Provider
) -> ModelError:
    """The error that an HTTP status and its body stand for.

    ``body`` is parsed JSON, or text where it was none. The error's message never contains the provider's key nor
    anything that looks like one.
    """
    found = _parse_error(body)
    code, sentence = _find_meaning(status, found, headers, request, provider)
    if quote := quote_provider(found.message, provider.api_key):
        sentence = f"{sentence} It said: “{quote}”"
    return ModelError(
        code,
        sentence,
        status=status,
        retry_after=parse_retry_after(headers) if code.is_retryable else None,
        request_id=mask_key(headers["x-request-id"], provider.api_key) if "x-request-id" in headers else None,
    )


@dataclass(frozen=True, slots=True)
class _ProviderError:
    """What a provider says of an error; empty where it says nothing."""

    code: str = ""
    message: str = ""
    param: str = ""


def _find_meaning(
    status: int,
    error: _ProviderError,
    headers: Mapping[str, str],
    request: Mapping[str, Any],
    provider: Provider,
) -> tuple[ModelErrorCode, str]:
    if status in (400, 404, 422) and (sentence := _explain_settings(status, error, request, provider)):
        return ModelErrorCode.BAD_REQUEST, sentence
    if status == 401:
        key = provider.name_setting("API_KEY")
        return (
            ModelErrorCode.UNAUTHORIZED,
            f"The provider refused the API key (401). Check {key} and restart the worker.",
        )
    # Proxies such as LiteLLM answer 400 to a model that they don't know.
    is_unknown_model = error.code == "model_not_found" or "invalid model name" in error.message.lower()
    if (status == 400 and is_unknown_model) or (
        status == 404 and (is_unknown_model or "model" in error.message.lower())
    ):
        sentence = (
            f"The model “{request.get('model')}” does not exist or this key may not use it ({status}). "
            "Change the model of the step, the flow, or TOOLFLOW_MODEL."
        )
        return ModelErrorCode.NOT_FOUND, sentence
    if status == 404:
        return ModelErrorCode.NOT_FOUND, _explain_missing(request, provider)
    if status == 429 and error.code in _NO_CREDIT:
        # Waiting brings no credit, so that this one must not be retryable.
        sentence = (
            f"The account of this API key has no credit left (429 {error.code}). "
            "Add credit or raise its limit with the provider."
        )
        return ModelErrorCode.FORBIDDEN, sentence
    if 300 <= status < 400:
        # The address may repeat the key: in its query, or in front.
        target = quote_provider(headers.get("location", "another address").partition("?")[0], provider.api_key)
        sentence = (
            f"{provider.place} redirects to {target} ({status}). "
            f"Set {provider.name_setting('BASE_URL')} to the address that it redirects to."
        )
        return ModelErrorCode.NOT_CONFIGURED, sentence
    return _MEANINGS.get(status) or _find_class_meaning(status)


def _explain_settings(status: int, error: _ProviderError, request: Mapping[str, Any], provider: Provider) -> str | None:
    """The sentence for a request that was refused because of one of its settings or its API; None for others."""
    words = f"{error.param} {error.message}".lower()
    if find_api(request) is Api.CHAT and _WANTS_RESPONSES.search(words):
        return (
            f"“{request.get('model')}” takes this call only on the Responses API ({status}). "
            f"Set {provider.name_setting('API')} to “responses”, set the reasoning effort to “none” if the model takes "
            "that, or name another model."
        )
    if status == 404 or not (error.param or _REFUSES.search(words)):
        return None
    named = error.param.lower() or words
    if _TOOLS.search(named):
        return f"“{request.get('model')}” refuses a call of one given tool ({status}). Name another model."
    for pattern, name, variable in _SETTINGS:
        if pattern.search(named):
            return (
                f"The provider refused the {name} ({status}). "
                f"Change or remove the {name} of the step, the flow, or {variable}."
            )
    return None


def _explain_missing(request: Mapping[str, Any], provider: Provider) -> str:
    url = provider.name_setting("BASE_URL")
    if find_api(request) is Api.RESPONSES:
        return (
            f"There is no Responses API at {provider.place} (404). Set {provider.name_setting('API')} to “chat”, "
            f"or check {url}: it usually ends with /v1."
        )
    return f"There is no chat completions API at {provider.place} (404). Check {url}: it usually ends with /v1."


def _find_class_meaning(status: int) -> tuple[ModelErrorCode, str]:
    if 400 <= status < 500:
        return (
            ModelErrorCode.BAD_REQUEST,
            f"The provider refused the request ({status}). Change the step's schema, settings or input as it says.",
        )
    return ModelErrorCode.SERVER_ERROR, f"The provider had an error of its own ({status})."


def _parse_error(body: Any) -> _ProviderError:
    if isinstance(body, str):
        return _ProviderError(message=body)
    error = body.get("error", body) if isinstance(body, Mapping) else None
    if isinstance(error, str):
        return _ProviderError(message=error)
    if not isinstance(error, Mapping):
        return _ProviderError()
    message = error.get("message") or error.get("detail") or ""
    return _ProviderError(
        code=str(error.get("code") or error.get("type") or ""),
        message=str(message),
        param=str(error.get("param") or ""),
    )


def quote_provider(text: str, api_key: str) -> str:
    """What a provider wrote, fit to be quoted in a sentence: one line, no markup, no keys, at most 500 characters."""
    # Before it is cut, or loses what looks like markup: half a key is a secret too.
    text = mask_key(text, api_key)[:20_000]
    if found := _TITLE.search(text):
        text = found[1]
    return shorten(_SECRET.sub("[key]", " ".join(_TAG.sub(" ", text).split())), MAX_QUOTE_LENGTH)


def mask_key(text: str, api_key: str) -> str:
    """The text with ``[key]`` in place of the key, also as JSON writes it."""
    if not api_key:
        return text
    for form in (api_key, json.dumps(api_key)[1:-1], api_key.replace("/", "\\/")):
        text = text.replace(form, "[key]")
    return text


def mask_key_within(value: Any, api_key: str) -> Any:
    """A JSON value with the key masked in all its texts and names, in JSON that is a text in it too."""
    if isinstance(value, list):
        return [mask_key_within(item, api_key) for item in value]
    if isinstance(value, dict):
        return {mask_key(name, api_key): mask_key_within(item, api_key) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    text = mask_key(value, api_key)
    if "\\" not in text:
        return text
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return text
    masked = mask_key_within(inner, api_key)
    return text if masked == inner else json.dumps(masked, ensure_ascii=False)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a response asks to wait, from ``retry-after-ms`` or ``Retry-After`` (seconds or a date).

    A date is counted from the response's own ``Date`` where it has one, so that clocks need not agree. None where
    no valid time is given.
    """
    for value, unit in ((headers.get("retry-after-ms"), 0.001), (headers.get("retry-after"), 1.0)):
        try:
            seconds = float(value or "") * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return min(seconds, MAX_RETRY_AFTER)
    moment = _parse_date(headers.get("retry-after"))
    if moment is None:
        return None
    now = _parse_date(headers.get("date"))
    return min(max(0.0, moment - (time.time() if now is None else now)), MAX_RETRY_AFTER)


def _parse_date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
