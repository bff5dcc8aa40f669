"""The OpenAI client against the simulated model: in process, and over a real connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.openai_client import OpenAIClient, simulated_client
from flows.engine.providers import ModelClient
from flows.engine.reply import parse_reply
from flows.engine.simulated_model import FaultKind, Faults, SimulatedModel
from tests.engine.executions import make_request
from tests.engine.model_server import ModelServer

KEY = "sk-proj-1234567890abcdefSECRET"

REQUEST = make_request(system="Größe “zählt”.")


@pytest.fixture(params=["in process", "over TCP"])
def client(request: pytest.FixtureRequest, model_server: ModelServer) -> OpenAIClient:
    """A client of the simulated model of the server."""

    async def forward(*call: Any) -> None:
        await model_server.app(*call)

    over_tcp = OpenAIClient(api_key=KEY, base_url=model_server.base_url)
    return over_tcp if request.param == "over TCP" else simulated_client(forward)


async def send(client: ModelClient, request: dict[str, Any] | None = None, *, timeout: float = 30.0) -> Any:
    return await client.complete(request or REQUEST, idempotency_key="run-1-1", timeout=timeout)


async def fail(client: ModelClient, request: dict[str, Any] | None = None, *, timeout: float = 30.0) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await send(client, request, timeout=timeout)
    return caught.value


async def test_a_request_arrives_as_it_is_and_its_answer_comes_back_as_json(
    client: OpenAIClient, model_server: ModelServer
) -> None:
    app = model_server.app
    async with client:
        reply = await send(client)
    assert app.calls[0].body == REQUEST
    assert app.calls[0].idempotency_key == "run-1-1"
    assert parse_reply(reply.body, tool_name="make").arguments is not None
    assert reply.request_id == "req-sim-1"


async def test_calls_one_after_another_share_a_connection(model_server: ModelServer) -> None:
    ports = set()
    app = SimulatedModel()

    async def note_port(scope: Any, receive: Any, send: Any) -> None:
        ports.add(scope["client"][1])
        await app(scope, receive, send)

    model_server.app = note_port
    client = OpenAIClient(api_key=KEY, base_url=model_server.base_url)
    for _ in range(50):
        await send(client)
    await client.close()
    assert len(ports) == 1


@pytest.mark.parametrize(
    ("kind", "code", "words", "status"),
    [
        (FaultKind.RATE_LIMITED, ModelErrorCode.RATE_LIMITED, "It said: “Rate limit", 429),
        (FaultKind.SERVER_ERROR, ModelErrorCode.SERVER_ERROR, "It said: “The server", 500),
        (FaultKind.RESET, ModelErrorCode.CONNECTION, "broke before the answer was complete", None),
        (FaultKind.HTML, ModelErrorCode.UNREADABLE, "(text/html)", 200),
        (FaultKind.HANG, ModelErrorCode.TIMEOUT, "gave no complete answer within 0.5 seconds", None),
    ],
)
async def test_a_failure_is_one_call_and_an_error_that_may_be_tried_again(
    client: OpenAIClient,
    model_server: ModelServer,
    kind: FaultKind,
    code: ModelErrorCode,
    words: str,
    status: int | None,
) -> None:
    model_server.app = app = SimulatedModel(faults=Faults({kind: 1.0}))
    async with client:
        error = await fail(client, timeout=0.5)
    assert (error.code, error.status, error.code.is_retryable) == (code, status, True)
    assert words in error.message
    assert app.call_count == 1, "the client must not retry on its own"


@pytest.mark.parametrize(
    ("api_key", "base_url", "words"),
    [
        (None, None, "Set OPENAI_API_KEY (in a script: api_key=…) and"),
        ("  ", "https://api.openai.com/v1/", "No API key is set."),
        ("sk-ключ", None, "contains an invalid character"),
        (KEY, "ftp://example.com", "OPENAI_BASE_URL (in a script: base_url=…) is not a web address"),
        (KEY, "http://", "is not a web address"),
    ],
)
async def test_what_is_not_configured_is_said_before_anything_is_sent(
    api_key: str | None, base_url: str | None, words: str
) -> None:
    error = await fail(OpenAIClient(api_key=api_key, base_url=base_url))
    assert error.code is ModelErrorCode.NOT_CONFIGURED
    assert words in error.message


async def test_keys_in_the_environment_are_not_sent_to_other_servers(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model_server.app = SimulatedModel(api_keys={KEY})
    async with OpenAIClient(api_key=None, base_url=model_server.base_url) as client:
        assert (await fail(client)).code is ModelErrorCode.UNAUTHORIZED


async def test_a_server_that_is_down_is_named_and_may_be_tried_again(model_server: ModelServer) -> None:
    async with OpenAIClient(api_key=KEY, base_url=model_server.base_url) as client:
        await send(client)
        model_server.stop()
        error = await fail(client)
        assert error.code is ModelErrorCode.CONNECTION and error.code.is_retryable
        assert model_server.base_url.split("/")[2] in error.message
        model_server.start()
        await send(client)
    with pytest.raises(RuntimeError, match="closed"):
        await send(client)


@pytest.mark.parametrize("content", [float("nan"), "\ud800", object()])
async def test_a_request_that_is_no_json_is_not_sent(content: Any) -> None:
    app = SimulatedModel()
    error = await fail(simulated_client(app), {**REQUEST, "messages": [{"role": "user", "content": content}]})
    assert error.code is ModelErrorCode.BAD_REQUEST
    assert "can't be written as JSON" in error.message
    assert app.call_count == 0


def test_one_client_serves_several_event_loops(model_server: ModelServer) -> None:
    client = OpenAIClient(api_key=KEY, base_url=model_server.base_url)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        for runner in (first, second, first, second):
            runner.run(send(client))
        for runner in (first, second):
            runner.run(client.close())
    assert model_server.app.call_count == 4


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connections_are_closed_with_their_event_loop(model_server: ModelServer) -> None:
    client = OpenAIClient(api_key=KEY, base_url=model_server.base_url)
    before = count_open_files()
    for _ in range(50):
        asyncio.run(send(client))
        assert count_open_files() <= before + 20
    assert model_server.app.call_count == 50
