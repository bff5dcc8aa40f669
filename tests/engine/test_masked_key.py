"""The API key is masked in whatever a provider says, also where it is said in an answer that can be used."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from flows.engine.errors import ModelError
from flows.engine.openai_client import OpenAIClient
from flows.engine.providers import ModelReply
from flows.engine.reply import parse_reply
from tests.engine.simulated_requests import make_request

KEYS = ["sk-proj-1234567890abcdefSECRET", "a+key/with=signs.of_all<kinds>&more"]

Ask = Callable[[str], Awaitable[ModelReply]]


class Echo:
    """A provider that says what it is told to say."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = ""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(self.status, content=self.body.encode(), headers=self.headers)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def ask(echo: Echo) -> AsyncIterator[Ask]:
    """Gives what is made of the provider's answer."""
    clients = []

    async def ask(key: str) -> ModelReply:
        http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(echo))
        clients.append(OpenAIClient(api_key=key, base_url="http://127.0.0.1/v1", http_client=http_client))
        return await clients[-1].complete(make_request(), idempotency_key="run-1-1", timeout=30)

    yield ask
    for client in clients:
        await client.close()


def make_body(*, arguments: str | None = None, name: str = "make", **message: Any) -> dict[str, Any]:
    if arguments is not None:
        message["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
    return {"id": "1", "model": "m", "choices": [{"finish_reason": "stop", "message": message}]}


def escape(sign: str, form: str = "%04x") -> str:
    return f"\\u{form % ord(sign)}"


def spell(key: str) -> list[str]:
    """The ways in which JSON writes a key: encoders escape slashes, or all that is no letter; any sign may be."""
    hexes = ["".join(sign if sign.isalnum() else escape(sign, form) for sign in key) for form in ("%04x", "%04X")]
    letters = [escape(key[0]) + key[1:], "".join(map(escape, key))]
    return [key, key.replace("/", "\\/"), *hexes, *letters]


WAYS = len(spell("key"))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("way", range(WAYS))
async def test_a_call_of_the_tool_has_no_key_in_its_arguments(echo: Echo, ask: Ask, key: str, way: int) -> None:
    spelled = spell(key)[way]
    echo.body = json.dumps(make_body(arguments=f'{{"text": "It is {spelled}.", "{spelled}": 1}}'))
    reply = parse_reply((await ask(key)).body, tool_name="make")
    assert reply.arguments == {"text": "It is [key].", "[key]": 1}


@pytest.mark.parametrize("way", range(WAYS))
async def test_nor_in_the_answer_itself(echo: Echo, ask: Ask, way: int) -> None:
    key = KEYS[1]
    echo.body = json.dumps(make_body(content="It is KEY.")).replace("KEY", spell(key)[way])
    assert (await ask(key)).body["choices"][0]["message"]["content"] == "It is [key]."


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("way", range(WAYS))
async def test_nor_in_json_that_lies_in_its_arguments(echo: Echo, ask: Ask, key: str, way: int) -> None:
    inner = f'{{"said": "A \\\\ {spell(key)[way]}"}}'
    echo.body = json.dumps(make_body(arguments=json.dumps({"text": inner})))
    reply = parse_reply((await ask(key)).body, tool_name="make")
    assert reply.arguments is not None and json.loads(reply.arguments["text"]) == {"said": "A \\ [key]"}


@pytest.mark.parametrize(
    "message",
    [
        {"content": "KEY"},
        {"refusal": "I don’t tell KEY."},
        {"arguments": '{"text": "KEY"'},
        {"arguments": "{}", "name": "KEY"},
    ],
)
async def test_an_unusable_answer_is_kept_without_it(echo: Echo, ask: Ask, message: Any) -> None:
    echo.body = json.dumps(make_body(**message)).replace("KEY", KEYS[0])
    reply = parse_reply((await ask(KEYS[0])).body, tool_name="make")
    assert reply.arguments is None and KEYS[0] not in repr(reply) and "[key]" in repr(reply)


async def test_names_that_the_provider_gives_have_none(echo: Echo, ask: Ask) -> None:
    echo.body = json.dumps({**make_body(arguments="{}"), "id": KEYS[0], "model": f"m {KEYS[0]}"})
    echo.headers = {"x-request-id": f"req {KEYS[0]}"}
    found = await ask(KEYS[0])
    reply = parse_reply(found.body, tool_name="make")
    assert (reply.response_id, reply.model, found.request_id) == ("[key]", "m [key]", "req [key]")


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("way", range(2))
async def test_errors_have_none_wherever_it_was_said(echo: Echo, ask: Ask, status: int, way: int) -> None:
    echo.status, echo.body = status, f"Not JSON: {spell(KEYS[1])[way]}"
    echo.headers = {"x-request-id": KEYS[1], "content-type": f"text/{KEYS[1]}"}
    with pytest.raises(ModelError) as raised:
        await ask(KEYS[1])
    assert raised.value.request_id == "[key]"
    assert "with/signs" not in raised.value.message and "Not JSON: [key]" in raised.value.message


@pytest.mark.parametrize("way", range(WAYS))
async def test_nor_does_the_sentence_of_a_refusal(echo: Echo, ask: Ask, way: int) -> None:
    echo.status, echo.body = 401, '{"error": {"message": "Wrong: KEY!"}}'.replace("KEY", spell(KEYS[1])[way])
    with pytest.raises(ModelError, match=r"Wrong: \[key\]!"):
        await ask(KEYS[1])


async def test_a_key_that_is_no_secret_may_be_written_about(echo: Echo, ask: Ask) -> None:
    # Servers on one’s own machine are given any word.
    echo.body = json.dumps(make_body(arguments='{"text": "ollama runs models"}'))
    reply = parse_reply((await ask("ollama")).body, tool_name="make")
    assert reply.arguments == {"text": "ollama runs models"}
