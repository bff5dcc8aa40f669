"""What a provider's refusals and broken connections mean, explained to the operator who has to fix them."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
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
_MAX_LOOKED_AT = 20_000

_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_MEANINGS = {
    402: (
        ModelErrorCode.FORBIDDEN,
        "The provider has no credit for this API key (402). Add some, or use another key.",
    ),
    403: (
        ModelErrorCode.FORBIDDEN,
        "The provider does not let this API key make the call (403). Check what its project may use or change it.",
    ),
    408: (ModelErrorCode.TIMEOUT, "The provider timed out waiting for the request (408)."),
    409: (ModelErrorCode.SERVER_ERROR, "The provider could not accept the request at the moment (409)."),
    413: (
        ModelErrorCode.BAD_REQUEST,
        "The request is too large for the provider (413). Shorten the step's input or include fewer results.",
    ),
    425: (ModelErrorCode.SERVER_ERROR, "The provider could not accept the request at the moment (425)."),
    429: (ModelErrorCode.RATE_LIMITED, "The provider's rate limit is reached (429)."),
    # Groq's status, see https://console.groq.com/docs/flex-processing.
    498: (ModelErrorCode.RATE_LIMITED, "The provider has no room in this service tier at the moment (498)."),
}
_STATUS_OF_CODE = {"rate_limit_exceeded": 429, "server_error": 500, "invalid_prompt": 400}
"""What the codes of a failed response would be as the status of HTTP; others may pass if tried again."""
_SETTINGS = (
    (r"reasoning[._ ]effort", "reasoning effort", "TOOLFLOW_REASONING_EFFORT"),
    (r"temperature", "temperature", "TOOLFLOW_TEMPERATURE"),
    (r"max_(?:completion_|output_)?tokens", "token limit", "TOOLFLOW_MAX_TOKENS"),
    (r"service[_ ]tier", "service tier", "TOOLFLOW_SERVICE_TIER"),
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
    error_code, message, param = _parse_error(body)
    if 300 <= status < 400:
        # The address may repeat the key: in its query, or in front.
        target = quote_provider(headers.get("location", "another address").partition("?")[0], provider.api_key)
        setting = provider.name_setting("BASE_URL")
        code = ModelErrorCode.NOT_CONFIGURED
        sentence = f"{provider.place} redirects to {target} ({status}). Set {setting} to the address it redirects to."
    elif status == 429 and error_code in _NO_CREDIT:
        # Waiting brings no credit, so that this one must not be retryable.
        code = ModelErrorCode.FORBIDDEN
        sentence = (
            f"The account of this API key has no credit left (429 {error_code}). "
            "Add credit or raise its limit with the provider."
        )
    else:
        found = _explain_setting(status, param, f"{param} {message}".lower(), request, provider)
        found = found or _explain_missing(status, error_code, message.lower(), request, provider)
        code, sentence = found or _MEANINGS.get(status) or _explain_class(status, provider)
    if quote := quote_provider(message, provider.api_key):
        sentence = f"{sentence} It said: “{quote}”"
    return ModelError(
        code,
        sentence,
        status=status,
        retry_after=parse_retry_after(headers) if code.is_retryable else None,
        request_id=mask_key(headers.get("x-request-id"), provider.api_key),
    )


def find_wrapped_status(error: Any) -> int:
    """The HTTP status that an error in the body of a 200 stands for."""
    code = error.get("code") if isinstance(error, Mapping) else None
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return _STATUS_OF_CODE.get(str(code), 502)


def _parse_error(body: Any) -> tuple[str, str, str]:
    """Code, message and parameter of an error; empty where the provider says nothing."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return "", error if isinstance(error, str) else "", ""
    code, message = error.get("code") or error.get("type"), error.get("message") or error.get("detail")
    return str(code or ""), str(message or ""), str(error.get("param") or "").lower()


def _explain_setting(
    status: int, param: str, words: str, request: Mapping[str, Any], provider: Provider
) -> tuple[ModelErrorCode, str] | None:
    """What to do where one of the settings or the API is refused; None for other errors."""
    model = request.get("model")
    if status in (400, 404, 422) and find_api(request) is Api.CHAT and _WANTS_RESPONSES.search(words):
        return ModelErrorCode.BAD_REQUEST, (
            f"“{model}” takes this call only on the Responses API ({status}). "
            f"Set {provider.name_setting('API')} to “responses”, set the reasoning effort to “none” if the model takes "
            "that, or name another model."
        )
    named = param or (words if _REFUSES.search(words) else "")
    if status not in (400, 422):
        return None
    if _TOOLS.search(named):
        return ModelErrorCode.BAD_REQUEST, f"“{model}” refuses a call of one given tool ({status}). Name another model."
    for pattern, name, variable in _SETTINGS:
        if re.search(pattern, named):
            sentence = f"The provider refused the {name} ({status}). Change or remove the {name} of the step, the flow,"
            return ModelErrorCode.BAD_REQUEST, f"{sentence} or {variable}."
    return None


def _explain_missing(
    status: int, error_code: str, words: str, request: Mapping[str, Any], provider: Provider
) -> tuple[ModelErrorCode, str] | None:
    """What to do where a model or an API is not there; None for other errors."""
    if status not in (400, 404):
        return None
    # Proxies such as LiteLLM answer 400 to a model that they don't know.
    if error_code == "model_not_found" or "invalid model name" in words or (status == 404 and "model" in words):
        return ModelErrorCode.NOT_FOUND, (
            f"The model “{request.get('model')}” does not exist or this key may not use it ({status}). "
            "Change the model of the step, the flow, or TOOLFLOW_MODEL."
        )
    if status == 400:
        return None
    place, check = provider.place, f"check {provider.name_setting('BASE_URL')}; most such addresses end with /v1."
    if find_api(request) is Api.CHAT:
        return ModelErrorCode.NOT_FOUND, f"No chat completions API found at {place} (404). C{check[1:]}"
    sentence = f"No Responses API found at {place} (404). Set {provider.name_setting('API')} to “chat”, or {check}"
    return ModelErrorCode.NOT_FOUND, sentence


def _explain_class(status: int, provider: Provider) -> tuple[ModelErrorCode, str]:
    if status == 401:
        sentence = f"The provider refused the API key (401). Check {provider.name_setting('API_KEY')} and restart"
        return ModelErrorCode.UNAUTHORIZED, f"{sentence} the worker."
    if 400 <= status < 500:
        return (
            ModelErrorCode.BAD_REQUEST,
            f"The provider refused the request ({status}). Change the step's schema, settings or input as it says.",
        )
    return ModelErrorCode.SERVER_ERROR, f"The provider failed with an internal error ({status})."


def quote_provider(text: str, api_key: str) -> str:
    """What a provider wrote, fit to be quoted in a sentence: one line, no markup, no keys, at most 500 characters."""
    # Before it is cut, or loses what looks like markup: half a key is a secret too.
    text = mask_key(text, api_key)[:_MAX_LOOKED_AT]
    if found := _TITLE.search(text):
        text = found[1]
    return shorten(_SECRET.sub("[key]", " ".join(_TAG.sub(" ", text).split())), MAX_QUOTE_LENGTH)


def mask_key(value: Any, api_key: str) -> Any:
    """A JSON value with ``[key]`` in place of the key in all texts and names, in JSON that is a text in it too."""
    if not api_key:
        return value
    if isinstance(value, str):
        for form in (api_key, json.dumps(api_key)[1:-1], api_key.replace("/", "\\/")):
            value = value.replace(form, "[key]")
        if "\\" not in value:
            return value
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return value
        masked = mask_key(inner, api_key)
        return value if masked == inner else json.dumps(masked, ensure_ascii=False)
    if isinstance(value, list):
        return [mask_key(item, api_key) for item in value]
    if isinstance(value, dict):
        return {mask_key(name, api_key): mask_key(item, api_key) for name, item in value.items()}
    return value


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a response asks to wait, from ``retry-after-ms`` or ``Retry-After`` (seconds or a date)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < math.inf:
            return min(seconds, MAX_RETRY_AFTER)
    # From the response's own date where it has one, so that clocks need not agree.
    moment, now = _parse_date(headers.get("retry-after")), _parse_date(headers.get("date"))
    if moment is None:
        return None
    return min(max(0.0, moment - (time.time() if now is None else now)), MAX_RETRY_AFTER)


def _parse_date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
