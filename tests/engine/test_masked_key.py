"""The API key is masked in whatever a provider says, also where it is said in an answer that can be used."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from flows.engine.errors import ModelError
from flows.engine.openai_client import OpenAIClient
from flows.engine.providers import ModelReply
from flows.engine.reply import ToolReply, parse_reply
from tests.engine.simulated_requests import make_request

KEY = "sk-proj-1234567890abcdefSECRET"
SIGNS = "a+key/with=signs.of_all<kinds>&more"


async def ask(key: str, body: str, *, status: int = 200, **headers: str) -> ModelReply:
    """What is made of a provider's answer."""
    answer = httpx2.Response(
        status, content=body.encode(), headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: answer))
    async with OpenAIClient(api_key=key, base_url="http://127.0.0.1/v1", http_client=http_client) as client:
        return await client.complete(make_request(), idempotency_key="run-1-1", timeout=30)


def make_body(**message: Any) -> dict[str, Any]:
    return {"id": "1", "model": "m", "choices": [{"finish_reason": "stop", "message": message}]}


def call(arguments: str, name: str = "make") -> dict[str, Any]:
    return make_body(tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}])


async def read(key: str, body: Any) -> ToolReply:
    return parse_reply((await ask(key, json.dumps(body))).body, tool_name="make")


@pytest.mark.parametrize("written", [KEY, SIGNS, SIGNS.replace("/", "\\/")])
async def test_a_call_of_the_tool_has_no_key_in_its_arguments(written: str) -> None:
    key = KEY if written == KEY else SIGNS
    reply = await read(key, call(f'{{"text": "It is {written}.", "{written}": 1}}'))
    assert reply.arguments == {"text": "It is [key].", "[key]": 1}


@pytest.mark.parametrize("escape", [lambda sign: sign, lambda sign: f"\\u{ord(sign):04x}"])
@pytest.mark.parametrize("status", [200, 401])
async def test_nor_has_the_answer_itself_however_json_writes_it(escape: Any, status: int) -> None:
    written = "".join(sign if sign.isalnum() else escape(sign) for sign in SIGNS)
    body = make_body(content="It is KEY.") if status == 200 else {"error": {"message": "It is KEY."}}
    text = json.dumps(body).replace("KEY", written)
    if status == 200:
        assert (await ask(SIGNS, text)).body["choices"][0]["message"]["content"] == "It is [key]."
    else:
        with pytest.raises(ModelError, match=r"It is \[key\]\."):
            await ask(SIGNS, text, status=status)


@pytest.mark.parametrize(
    "body",
    [
        make_body(content=KEY),
        make_body(refusal=f"I don’t say {KEY}."),
        call(f'{{"text": "{KEY}"'),
        call("{}", name=KEY),
    ],
)
async def test_an_unusable_answer_is_kept_without_it(body: Any) -> None:
    reply = await read(KEY, body)
    assert reply.arguments is None and KEY not in repr(reply) and "[key]" in repr(reply)


async def test_names_that_the_provider_gives_have_none() -> None:
    found = await ask(KEY, json.dumps({**call("{}"), "id": KEY, "model": f"m {KEY}"}), x_request_id=f"req {KEY}")
    reply = parse_reply(found.body, tool_name="make")
    assert (reply.response_id, reply.model, found.request_id) == ("[key]", "m [key]", "req [key]")


@pytest.mark.parametrize("status", [200, 500])
async def test_errors_have_none_wherever_it_was_said(status: int) -> None:
    with pytest.raises(ModelError) as raised:
        await ask(SIGNS, f"Not JSON: {SIGNS}", status=status, x_request_id=SIGNS, content_type=f"text/{SIGNS}")
    assert raised.value.request_id == "[key]"
    assert "with/signs" not in raised.value.message and "Not JSON: [key]" in raised.value.message


async def test_a_key_that_is_no_secret_may_be_written_about() -> None:
    # Servers on one’s own machine are given any word.
    assert (await read("ollama", call('{"text": "ollama runs models"}'))).arguments == {"text": "ollama runs models"}
