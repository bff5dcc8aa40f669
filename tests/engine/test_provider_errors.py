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
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx2.Response(status, content=content, headers={"content-type": "application/json", **names})
    transport = httpx2.MockTransport(lambda request: answer)
    return OpenAIClient(api_key=api_key, http_client=httpx2.AsyncClient(transport=transport))


async def fail(client: ModelClient, request: dict[str, Any] | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await client.complete(request or make_request(), idempotency_key="run-1-1", timeout=30)
    return caught.value


UNKNOWN_TO_A_PROXY = {"message": "Invalid model name passed in model=gpt-4o-mini.", "code": "400"}


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (401, {}, ModelErrorCode.UNAUTHORIZED, "Check OPENAI_API_KEY"),
        (403, {"error": {"message": "Country not supported"}}, ModelErrorCode.FORBIDDEN, "Country not supported"),
        (408, {}, ModelErrorCode.TIMEOUT, "(408)"),
        (409, {}, ModelErrorCode.SERVER_ERROR, "(409)"),
        (413, {}, ModelErrorCode.BAD_REQUEST, "too large"),
        (400, {"error": {"message": "Invalid schema: temperature"}}, ModelErrorCode.BAD_REQUEST, "the step's schema"),
        (400, {"error": {"param": "tools[0]", "message": "No."}}, ModelErrorCode.BAD_REQUEST, "the step's schema"),
        (422, {"detail": [{"loc": ["tools"]}]}, ModelErrorCode.BAD_REQUEST, "It said: “[{'loc': ['tools']}]”"),
        (418, "teapot", ModelErrorCode.BAD_REQUEST, "It said: “teapot”"),
        (404, {"error": "model 'x' not found"}, ModelErrorCode.NOT_FOUND, "The model “gpt-4o-mini” does not exist"),
        (400, {"error": UNKNOWN_TO_A_PROXY}, ModelErrorCode.NOT_FOUND, "or TOOLFLOW_MODEL."),
        (503, b"<html><title>503 Busy</title><p>x</html>", ModelErrorCode.SERVER_ERROR, "It said: “503 Busy”"),
        (502, b"<p>Bad <b>gateway</b></p>", ModelErrorCode.SERVER_ERROR, "It said: “Bad gateway”"),
        (500, b"\xff\xfe", ModelErrorCode.SERVER_ERROR, "(500)"),
        (301, {}, ModelErrorCode.NOT_CONFIGURED, "redirects to https://elsewhere.test/v1 (301). Set OPENAI_BASE_URL"),
        (200, [1], ModelErrorCode.UNREADABLE, "no JSON object (application/json)"),
        (200, b"[" * 100_000, ModelErrorCode.UNREADABLE, "no JSON object"),
        (200, {"error": {"code": 429, "message": "Busy"}}, ModelErrorCode.RATE_LIMITED, "It said: “Busy”"),
        (200, {"error": {"code": "x", "message": "Upstream"}}, ModelErrorCode.SERVER_ERROR, "It said: “Upstream”"),
        (200, {"status": "failed", "error": {"code": "invalid_prompt"}}, ModelErrorCode.BAD_REQUEST, "(400)"),
    ],
)
async def test_each_status_has_its_own_meaning(status: int, body: Any, code: ModelErrorCode, words: str) -> None:
    error = await fail(answer_with(status, body, location="https://elsewhere.test/v1", x_request_id="req-7"))
    assert error.code is code
    assert words in error.message
    assert error.request_id == "req-7"


FORCED_TOOLS = "To use function tools, use /v1/responses or set reasoning_effort to 'none'."


@pytest.mark.parametrize(
    ("body", "status", "message", "remedies"),
    [
        ({"messages": []}, 400, FORCED_TOOLS, ["TOOLFLOW_API", "effort to “none”"]),
        ({"messages": []}, 404, "This is only supported in v1/responses.", ["TOOLFLOW_API"]),
        ({"messages": []}, 404, "This is not a chat model.", ["TOOLFLOW_API"]),
        ({"input": "{}"}, 404, "Not Found", ["no Responses API at api.openai.com", "TOOLFLOW_API"]),
        ({"messages": []}, 404, "Not Found", ["no chat completions API at api.openai.com", "OPENAI_BASE_URL"]),
    ],
)
async def test_a_call_that_needs_the_other_api_names_the_setting(
    body: dict[str, Any], status: int, message: str, remedies: list[str]
) -> None:
    said = await fail(answer_with(status, {"error": {"message": message}}), {"model": "gpt-6-sol", **body})
    assert [remedy for remedy in remedies if remedy not in said.message] == []
    assert not said.code.is_retryable


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ({"param": "reasoning_effort", "message": "No."}, "TOOLFLOW_REASONING_EFFORT"),
        ({"param": "reasoning.effort", "message": "No."}, "TOOLFLOW_REASONING_EFFORT"),
        ({"message": "temperature is not supported"}, "TOOLFLOW_TEMPERATURE"),
        ({"param": "max_tokens", "message": "No."}, "TOOLFLOW_MAX_TOKENS"),
        ({"param": "service_tier", "message": "No."}, "TOOLFLOW_SERVICE_TIER"),
        ({"param": "tool_choice", "message": "No."}, "Name another model"),
    ],
)
async def test_a_setting_that_is_refused_names_the_remedy(error: dict[str, Any], remedy: str) -> None:
    said = await fail(answer_with(400, {"error": error}))
    assert (said.code, remedy in said.message) == (ModelErrorCode.BAD_REQUEST, True)


async def test_an_account_without_credit_is_not_tried_again() -> None:
    error = await fail(answer_with(429, {"error": {"code": "insufficient_quota"}}, retry_after="5"))
    assert error.code is ModelErrorCode.FORBIDDEN
    assert not error.code.is_retryable
    assert error.retry_after is None


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


async def test_a_long_message_of_the_provider_is_cut() -> None:
    assert len((await fail(answer_with(500, {"error": {"message": "very " * 1_000}}))).message) < 600


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
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after({"date": format_datetime(NOW, usegmt=True), **headers}) == seconds
