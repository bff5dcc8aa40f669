"""A flow whose steps are asked at different providers, each over a real connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from flows.engine.errors import SpecError
from flows.engine.openai_client import OpenAIClient, simulated_client
from flows.engine.providers import Api, ModelReply, Provider
from flows.engine.running import run_flow
from flows.engine.simulated_model import SimulatedModel
from tests.engine.builders import make_flow, make_step
from tests.engine.executions import execute
from tests.engine.model_server import ModelServer
from tests.engine.test_call_gate import Gate

INPUT = {"topic": "tea"}
FLOW = make_flow(make_step(1, model="gpt-4.1"), make_step(2, model="house:gpt-4.1-mini"))


class Listener:
    """A simulated model that keeps the headers it is sent."""

    def __init__(self, key: str) -> None:
        self.model = SimulatedModel(api_keys={key})
        self.headers: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await self.model(scope, receive, send)


class OwnClient:
    """A client of the library's user, which names no provider."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self._client = simulated_client(SimulatedModel())

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        self.requests.append(request)
        return await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)

    async def close(self) -> None:
        await self._client.close()


@pytest.fixture
def house() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


async def test_each_step_reaches_its_own_provider_with_its_own_key_and_headers(
    model_server: ModelServer, house: ModelServer
) -> None:
    first, second = Listener("key-1"), Listener("key-2")
    model_server.app, house.app = first, second
    client = OpenAIClient(api_key="key-1", base_url=model_server.base_url)
    provider = Provider("house", house.base_url, "key-2", Api.RESPONSES, {"X-Team": "tea"})
    other = OpenAIClient.for_provider(provider)
    try:
        result = await run_flow(FLOW, INPUT, client=client, clients={"house": other})
    finally:
        await client.close()
        await other.close()
    assert result.passed
    assert [(call.body["model"], call.status) for call in first.model.calls] == [("gpt-4.1", 200)]
    assert [(call.body["model"], call.status) for call in second.model.calls] == [("gpt-4.1-mini", 200)]
    assert "input" in second.model.calls[0].body
    assert [headers.get("x-team") for headers in (*first.headers, *second.headers)] == [None, "tea"]
    assert [step.attempts[0].model for step in result.steps] == [None, "gpt-4.1", "house:gpt-4.1-mini"]
    # Neither address is one that the price list knows.
    assert [step.attempts[0].usage.unpriced for step in result.steps] == [0, 1, 1]


async def test_limits_and_prices_know_the_provider() -> None:
    asked: list[tuple[str, str]] = []

    def price(model: str, usage: Any, *, provider: Provider, service_tier: str | None) -> Any:
        asked.append((provider.name, model))
        return usage

    gate, own, house = Gate(), OwnClient(), OwnClient()
    await execute(FLOW, client=own, clients={"house": house}, gate=gate, price=price)
    assert [request["model"] for request in gate.requests] == ["gpt-4.1", "house:gpt-4.1-mini"]
    assert asked == [("", "gpt-4.1"), ("house", "gpt-4.1-mini")]
    assert ["messages" in request for request in (*own.requests, *house.requests)] == [True, True]


async def test_a_client_without_a_key_is_found_before_a_call() -> None:
    keyless = OpenAIClient(api_key=None)
    with pytest.raises(SpecError, match="Set OPENAI_API_KEY"):
        await run_flow(FLOW, INPUT, client=keyless, clients={"house": keyless})
