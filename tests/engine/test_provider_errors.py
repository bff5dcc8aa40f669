"""What operators are told when a provider refuses or fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.openai_client import OpenAIClient, simulated_client
from flows.engine.provider_errors import MAX_RETRY_AFTER, parse_retry_after
from flows.engine.providers import ModelClient
from flows.engine.simulated_model import Fault, FaultKind, Script, SimulatedModel
from tests.engine.simulated_requests import make_request

KEY = "sk-proj-1234567890abcdefSECRET"


def answer_with(status: int, body: Any = None, *, api_key: str = KEY, **headers: str) -> OpenAIClient:
    """A client of a provider that always answers the same."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(request: httpx2.Request) -> httpx2.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.Response(status, content=content, headers={"content-type": "application/json", **names})

    transport = httpx2.MockTransport(answer)
    return OpenAIClient(api_key=api_key, http_client=httpx2.AsyncClient(transport=transport))


async def fail(client: ModelClient, request: dict[str, Any] | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await client.complete(request or make_request(), idempotency_key="run-1-1", timeout=30)
    return caught.value


UNKNOWN_TO_A_PROXY = "/chat/completions: Invalid model name passed in model=gpt-4o-mini."


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (403, {"error": {"message": "Country not supported"}}, ModelErrorCode.FORBIDDEN, "does not let this API key"),
        (408, {}, ModelErrorCode.TIMEOUT, "gave up waiting"),
        (409, {}, ModelErrorCode.SERVER_ERROR, "at the moment (409)"),
        (413, {}, ModelErrorCode.BAD_REQUEST, "too large for the provider"),
        (422, {"detail": [{"loc": ["tools"]}]}, ModelErrorCode.BAD_REQUEST, "It said: “[{'loc': ['tools']}]”"),
        (418, "teapot", ModelErrorCode.BAD_REQUEST, "It said: “teapot”"),
        (404, {"error": "model 'x' not found"}, ModelErrorCode.NOT_FOUND, "The model “gpt-4o-mini” does not exist"),
        (400, {"error": {"message": UNKNOWN_TO_A_PROXY, "code": "400"}}, ModelErrorCode.NOT_FOUND, "not use it (400)"),
        (400, {"error": {"message": {"error": UNKNOWN_TO_A_PROXY}}}, ModelErrorCode.NOT_FOUND, "or TOOLFLOW_MODEL."),
        (503, b"<html><title>503 Busy</title><p>x</html>", ModelErrorCode.SERVER_ERROR, "It said: “503 Busy”"),
        (502, b"<p>Bad <b>gateway</b></p>", ModelErrorCode.SERVER_ERROR, "It said: “Bad gateway”"),
        (500, b"\xff\xfe", ModelErrorCode.SERVER_ERROR, "an error of its own (500)"),
        (301, {}, ModelErrorCode.NOT_CONFIGURED, "redirects to https://elsewhere.test/v1 (301). Set OPENAI_BASE_URL"),
        (200, [1], ModelErrorCode.UNREADABLE, "no JSON object (application/json)"),
        (200, b"[" * 100_000, ModelErrorCode.UNREADABLE, "no JSON object"),
        (200, {"error": {"code": 429, "message": "Busy"}}, ModelErrorCode.RATE_LIMITED, "It said: “Busy”"),
        (200, {"error": {"code": "x", "message": "Upstream"}}, ModelErrorCode.SERVER_ERROR, "It said: “Upstream”"),
    ],
)
async def test_each_status_has_its_own_meaning(status: int, body: Any, code: ModelErrorCode, words: str) -> None:
    error = await fail(answer_with(status, body, location="https://elsewhere.test/v1", x_request_id="req-7"))
    assert error.code is code
    assert words in error.message
    assert error.request_id == "req-7"


FORCED_TOOLS = (
    "Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions. "
    "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
)
ONLY_RESPONSES = "This model is only supported in v1/responses and not in v1/chat/completions."
CHAT, RESPONSES = {"messages": []}, {"input": "{}"}


@pytest.mark.parametrize(
    ("request_body", "status", "error", "remedies"),
    [
        (CHAT, 400, {"param": "reasoning_effort", "message": FORCED_TOOLS}, ["TOOLFLOW_API", "effort to “none”"]),
        (CHAT, 400, {"message": f"litellm.BadRequestError: {FORCED_TOOLS}"}, ["TOOLFLOW_API", "effort to “none”"]),
        (CHAT, 404, {"message": ONLY_RESPONSES}, ["TOOLFLOW_API"]),
        (
            CHAT,
            400,
            {"param": "reasoning_effort", "message": "No."},
            ["effort of the step", "TOOLFLOW_REASONING_EFFORT"],
        ),
        (RESPONSES, 400, {"param": "reasoning.effort", "message": "No."}, ["TOOLFLOW_REASONING_EFFORT"]),
        (CHAT, 400, {"param": "temperature", "message": "No."}, ["temperature of the step", "TOOLFLOW_TEMPERATURE"]),
        (CHAT, 400, {"message": "temperature is not supported"}, ["TOOLFLOW_TEMPERATURE"]),
        (CHAT, 400, {"param": "max_tokens", "message": "No."}, ["token limit of the step", "TOOLFLOW_MAX_TOKENS"]),
        (CHAT, 400, {"param": "service_tier", "message": "No."}, ["service tier of the step", "TOOLFLOW_SERVICE_TIER"]),
        (CHAT, 400, {"param": "tool_choice", "message": "No."}, ["Name another model"]),
        (CHAT, 400, {"message": "Invalid schema for function 'set_temperature'"}, ["Change the step's schema"]),
        (CHAT, 404, {"message": "This is not a chat model."}, ["TOOLFLOW_API"]),
        (CHAT, 400, {"param": "tools[0]", "message": "'temperature' is no type"}, ["Change the step's schema"]),
        (RESPONSES, 404, {"message": "Not Found"}, ["no Responses API at api.openai.com", "TOOLFLOW_API"]),
        (CHAT, 404, {"message": "Not Found"}, ["no chat completions API at api.openai.com", "OPENAI_BASE_URL"]),
    ],
)
async def test_what_a_setting_or_an_api_is_refused_for_names_the_remedy(
    request_body: dict[str, Any], status: int, error: dict[str, Any], remedies: list[str]
) -> None:
    said = await fail(answer_with(status, {"error": error}), {"model": "gpt-6-sol", **request_body})
    assert [remedy for remedy in remedies if remedy not in said.message] == []
    assert not said.code.is_retryable


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("server_error", ModelErrorCode.SERVER_ERROR),
        ("rate_limit_exceeded", ModelErrorCode.RATE_LIMITED),
        ("invalid_prompt", ModelErrorCode.BAD_REQUEST),
    ],
)
async def test_a_failed_response_is_an_error_of_the_provider(code: str, expected: ModelErrorCode) -> None:
    body = {"object": "response", "status": "failed", "output": [], "error": {"code": code, "message": "It broke."}}
    error = await fail(answer_with(200, body), {"model": "gpt-6-sol", **RESPONSES})
    assert error.code is expected
    assert "It said: “It broke.”" in error.message


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_hard_limit_reached"])
async def test_an_account_without_credit_is_not_tried_again(code: str) -> None:
    error = await fail(answer_with(429, {"error": {"code": code, "message": "Quota."}}, retry_after="5"))
    assert error.code is ModelErrorCode.FORBIDDEN
    assert not error.code.is_retryable
    assert error.retry_after is None
    assert "Add credit" in error.message


@pytest.mark.parametrize(
    "said",
    [
        f"Incorrect key {KEY}.",
        "Incorrect key sk-proj-****cdef.",
        "You sent Authorization: Bearer abcdef.",
        "x" * 490 + f" {KEY}",
        "<p>" + KEY,
    ],
)
async def test_no_key_is_ever_repeated(said: str) -> None:
    error = await fail(answer_with(401, {"error": {"message": said}}))
    for secret in (KEY, KEY[:12], "cdef", "abcdef"):
        assert secret not in error.message


async def test_a_key_of_any_form_is_not_repeated() -> None:
    body = {"error": {"message": "Who is hunter2-hunter2?"}}
    error = await fail(answer_with(401, body, api_key="hunter2-hunter2"))
    assert error.message.endswith("It said: “Who is [key]?”")


async def test_a_long_message_of_the_provider_is_cut() -> None:
    error = await fail(answer_with(500, {"error": {"message": "very " * 1_000}}))
    assert len(error.message) < 600
    assert error.message.endswith("…”")


async def test_retry_after_is_passed_on() -> None:
    app = SimulatedModel(script=Script({"make": [Fault(FaultKind.RATE_LIMITED, retry_after=2.5)]}))
    assert (await fail(simulated_client(app))).retry_after == 2.5
    assert (await fail(answer_with(503, {}, retry_after="7"))).retry_after == 7
    assert (await fail(answer_with(500, {}))).retry_after is None


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0.0),
        ({"retry-after": "1e9"}, MAX_RETRY_AFTER),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after({"date": format_datetime(NOW, usegmt=True), **headers}) == seconds


def test_a_date_to_retry_after_is_counted_from_now_where_the_response_has_none() -> None:
    moment = datetime.now(UTC) + timedelta(days=300)
    assert parse_retry_after({"retry-after": format_datetime(moment, usegmt=True)}) == MAX_RETRY_AFTER
