"""What operators read when a provider refuses or fails; and that the API key is in nothing that it said."""

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
from flows.engine.reply import ToolReply, parse_reply
from flows.engine.simulated_model import Fault, FaultKind, Script, SimulatedModel
from tests.engine.executions import make_request

KEY = "sk-proj-1234567890abcdefSECRET"
SIGNS = "a+key/with=signs.of_all<kinds>&more"


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
        (402, {}, ModelErrorCode.FORBIDDEN, "no credit"),
        (498, {}, ModelErrorCode.RATE_LIMITED, "no room in this service tier"),
        (403, {"error": {"message": "Country not supported"}}, ModelErrorCode.FORBIDDEN, "Country not supported"),
        (408, {}, ModelErrorCode.TIMEOUT, "(408)"),
        (409, {}, ModelErrorCode.SERVER_ERROR, "(409)"),
        (413, {}, ModelErrorCode.BAD_REQUEST, "too large"),
        (400, {"error": {"message": "Invalid schema: temperature"}}, ModelErrorCode.BAD_REQUEST, "the step's schema"),
        (422, {"detail": [{"loc": ["tools"]}]}, ModelErrorCode.BAD_REQUEST, "It said: “[{'loc': ['tools']}]”"),
        (404, {"error": "model 'x' not found"}, ModelErrorCode.NOT_FOUND, "The model “gpt-4o-mini” does not exist"),
        (400, {"error": UNKNOWN_TO_A_PROXY}, ModelErrorCode.NOT_FOUND, "or TOOLFLOW_MODEL."),
        (503, b"<html><title>503 Busy</title><p>x</html>", ModelErrorCode.SERVER_ERROR, "It said: “503 Busy”"),
        (500, b"\xff\xfe", ModelErrorCode.SERVER_ERROR, "(500)"),
        (301, {}, ModelErrorCode.NOT_CONFIGURED, "redirects to https://elsewhere.test/v1 (301). Set OPENAI_BASE_URL"),
        (200, b"[" * 100_000, ModelErrorCode.UNREADABLE, "JSON object"),
        (200, {"error": {"code": 429, "message": "Busy"}}, ModelErrorCode.RATE_LIMITED, "It said: “Busy”"),
        (200, {"status": "failed", "error": {"code": "invalid_prompt"}}, ModelErrorCode.BAD_REQUEST, "(400)"),
        (429, {"error": {"code": "insufficient_quota"}}, ModelErrorCode.FORBIDDEN, ""),
        (500, {"error": {"message": "very " * 1_000}}, ModelErrorCode.SERVER_ERROR, "very"),
    ],
)
async def test_each_status_has_its_own_meaning(status: int, body: Any, code: ModelErrorCode, words: str) -> None:
    error = await fail(answer_with(status, body, location="https://elsewhere.test/v1", x_request_id="req-7"))
    assert (error.code, error.request_id) == (code, "req-7")
    assert words in error.message and len(error.message) < 800


FORCED_TOOLS = "To use function tools, use /v1/responses or set reasoning_effort to 'none'."


@pytest.mark.parametrize(
    ("body", "status", "error", "remedy"),
    [
        ({"messages": []}, 400, {"message": FORCED_TOOLS}, "effort to “none”"),
        ({"messages": []}, 404, {"message": "This is only supported in v1/responses."}, "TOOLFLOW_API"),
        ({"input": "{}"}, 404, {"message": "Not Found"}, "No Responses API found at api.openai.com"),
        ({"messages": []}, 404, {"message": "Not Found"}, "No chat completions API found at api.openai.com"),
        ({"messages": []}, 400, {"param": "reasoning.effort", "message": "No."}, "TOOLFLOW_REASONING_EFFORT"),
        ({"messages": []}, 400, {"message": "temperature is not supported"}, "TOOLFLOW_TEMPERATURE"),
        ({"messages": []}, 400, {"param": "max_tokens", "message": "No."}, "TOOLFLOW_MAX_TOKENS"),
        ({"messages": []}, 400, {"param": "service_tier", "message": "No."}, "TOOLFLOW_SERVICE_TIER"),
        ({"messages": []}, 400, {"param": "tool_choice", "message": "No."}, "Name another model"),
    ],
)
async def test_a_setting_or_an_api_that_is_refused_names_the_remedy(
    body: dict[str, Any], status: int, error: dict[str, Any], remedy: str
) -> None:
    said = await fail(answer_with(status, {"error": error}), {"model": "gpt-6-sol", **body})
    assert remedy in said.message
    assert not said.code.is_retryable


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


async def test_retry_after_is_passed_on_where_it_helps() -> None:
    app = SimulatedModel(script=Script({"make": [Fault(FaultKind.RATE_LIMITED, retry_after=2.5)]}))
    assert (await fail(simulated_client(app))).retry_after == 2.5
    assert (await fail(answer_with(503, {}, retry_after="7"))).retry_after == 7
    without_credit = await fail(answer_with(429, {"error": {"code": "insufficient_quota"}}, retry_after="5"))
    assert (without_credit.retry_after, without_credit.code.is_retryable) == (None, False)


class TestKeys:
    @staticmethod
    def make_body(**message: Any) -> dict[str, Any]:
        return {"id": "1", "model": "m", "choices": [{"finish_reason": "stop", "message": message}]}

    @classmethod
    def call(cls, arguments: str, name: str = "make") -> dict[str, Any]:
        return cls.make_body(tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}])

    @staticmethod
    async def ask(body: Any, key: str = KEY, **headers: str) -> Any:
        client = answer_with(200, body, api_key=key, **headers)
        return await client.complete(make_request(), idempotency_key="run-1-1", timeout=30)

    async def read(self, body: Any, key: str = KEY) -> ToolReply:
        return parse_reply((await self.ask(body, key)).body, tool_name="make")

    @pytest.mark.parametrize("written", [KEY, SIGNS, SIGNS.replace("/", "\\/")])
    async def test_a_call_of_the_tool_has_none_in_its_arguments(self, written: str) -> None:
        reply = await self.read(
            self.call(f'{{"text": "It is {written}.", "{written}": 1}}'), KEY if written == KEY else SIGNS
        )
        assert reply.arguments == {"text": "It is [key].", "[key]": 1}
        # A key that is no secret may be written about: servers on one’s own machine are given any word.
        assert (await self.read(self.call('{"text": "ollama"}'), "ollama")).arguments == {"text": "ollama"}

    @pytest.mark.parametrize("escape", [lambda sign: sign, lambda sign: f"\\u{ord(sign):04x}"])
    async def test_nor_has_the_answer_itself_however_json_writes_it(self, escape: Any) -> None:
        written = "".join(sign if sign.isalnum() else escape(sign) for sign in SIGNS)
        text = json.dumps(self.make_body(content="It is KEY.")).replace("KEY", written)
        answer = await self.ask(text.encode(), SIGNS)
        assert answer.body["choices"][0]["message"]["content"] == "It is [key]."
        error = json.dumps({"error": {"message": "It is KEY."}}).replace("KEY", written)
        assert "It is [key]." in (await fail(answer_with(401, error.encode(), api_key=SIGNS))).message

    async def test_an_unusable_answer_is_kept_without_it(self) -> None:
        bodies = (
            self.make_body(content=KEY),
            self.make_body(refusal=f"I don’t say {KEY}."),
            self.call(f'{{"text": "{KEY}"'),
            self.call("{}", name=KEY),
        )
        for body in bodies:
            reply = await self.read(body)
            assert reply.arguments is None and KEY not in repr(reply) and "[key]" in repr(reply)

    async def test_names_that_the_provider_gives_have_none(self) -> None:
        found = await self.ask({**self.call("{}"), "id": KEY, "model": f"m {KEY}"}, x_request_id=f"req {KEY}")
        reply = parse_reply(found.body, tool_name="make")
        assert (reply.response_id, reply.model, found.request_id) == ("[key]", "m [key]", "req [key]")

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
    async def test_errors_have_none_wherever_it_was_said(self, said: str) -> None:
        headers = {"x_request_id": KEY, "content_type": f"text/{KEY}"}
        for status, body in ((401, {"error": {"message": said}}), (500, said.encode())):
            error = await fail(answer_with(status, body, **headers))
            assert [secret for secret in (KEY, KEY[:12], "cdef", "abcdef") if secret in error.message] == []
            assert error.request_id == "[key]"
