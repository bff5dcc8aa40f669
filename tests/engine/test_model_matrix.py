"""Every model with every effort and temperature: refused on saving, or accepted by the provider."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from flows.engine.errors import SpecError
from flows.engine.openai_client import OpenAIClient
from flows.engine.providers import Provider
from flows.engine.running import run_flow
from flows.engine.spec import ModelSettings
from tests.engine.builders import TEXT_SCHEMA, make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.engine.refusing_provider import CHAT, RESPONSES, RefusingProvider
from tests.engine.simulated_requests import make_request

MODELS = (
    "gpt-4.1",
    "gpt-5-mini",
    "gpt-5.4",
    "gpt-5.5",
    "gpt-5.6-luna",
    "gpt-6-astra",
    "gpt-6-sol",
    "gpt-6.1-terra",
    "o4-mini",
    "gpt-7-unknown",
)
ON_CHAT = {"gpt-4.1", "gpt-5-mini", "gpt-5.4", "o4-mini"}
"""The others need the Responses API where no effort is set."""
EFFORTS = (None, "none", "low")
TEMPERATURES = (None, 0.2)


def ask_responses(model: str = "gpt-6-sol", **changes: Any) -> dict[str, Any]:
    """A request of the Responses API; a change to None leaves the field out."""
    request = {
        "model": model,
        "instructions": "Choose well.",
        "input": "A kestrel.",
        "tools": [{"type": "function", "name": "make", "parameters": TEXT_SCHEMA, "strict": True}],
        "tool_choice": {"type": "function", "name": "make"},
        "store": False,
    }
    return {name: value for name, value in {**request, **changes}.items() if value is not None}


def ask_chat(model: str, **changes: Any) -> dict[str, Any]:
    return make_request(model=model, **{"parallel_tool_calls": None, **changes})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, ask_chat("gpt-4.1", temperature=0.2, max_tokens=9, parallel_tool_calls=False), None),
        (CHAT, ask_chat("gpt-4.1", reasoning_effort="low"), "reasoning_effort"),
        (CHAT, ask_chat("gpt-4.1", input="x"), "input"),
        (CHAT, ask_chat("gpt-4.1", max_output_tokens=9), "max_output_tokens"),
        (CHAT, ask_chat("gpt-4.1", tool_choice={"type": "function", "function": {"name": "other"}}), "tool_choice"),
        (CHAT, ask_chat("o4-mini"), None),
        (CHAT, ask_chat("o4-mini", parallel_tool_calls=False), "parallel_tool_calls"),
        (CHAT, ask_chat("o4-mini", reasoning_effort="none"), "reasoning_effort"),
        (CHAT, ask_chat("gpt-5-mini", reasoning_effort="minimal", max_completion_tokens=9), None),
        (CHAT, ask_chat("gpt-5-mini", temperature=1.0), "temperature"),
        (CHAT, ask_chat("gpt-5.1", temperature=1.0, reasoning_effort="none"), None),
        (CHAT, ask_chat("gpt-5.1", temperature=1.0, reasoning_effort="low"), "temperature"),
        (CHAT, ask_chat("gpt-5.4", temperature=1.0), None),
        (CHAT, ask_chat("gpt-5.4", reasoning_effort="low"), "reasoning_effort"),
        (CHAT, ask_chat("gpt-5.6-sol"), "reasoning_effort"),
        (CHAT, ask_chat("gpt-5.6-sol", reasoning_effort="none", temperature=1.0), None),
        (CHAT, ask_chat("gpt-6-sol"), "reasoning_effort"),
        (CHAT, ask_chat("gpt-6-sol", reasoning_effort="none", max_tokens=9), "max_tokens"),
        (CHAT, ask_chat("gpt-6-astra"), "model"),
        (CHAT, ask_chat("gpt-5.2-pro"), "model"),
        (CHAT, ask_chat("gpt-5.1-codex-mini"), "model"),
        (CHAT, ask_chat("gpt-7"), "model"),
        (RESPONSES, ask_responses(reasoning={"effort": "max"}, max_output_tokens=9, parallel_tool_calls=False), None),
        (RESPONSES, ask_responses(temperature=0.2), "temperature"),
        (RESPONSES, ask_responses("gpt-5.5", temperature=0.2), "temperature"),
        (RESPONSES, ask_responses("gpt-5.5", temperature=0.2, reasoning={"effort": "none"}), None),
        (RESPONSES, ask_responses("gpt-6-astra", reasoning={"effort": "none"}), "reasoning.effort"),
        (RESPONSES, ask_responses("gpt-7"), None),
        (RESPONSES, ask_responses(messages=[]), "messages"),
        (RESPONSES, ask_responses(max_tokens=9), "max_tokens"),
        (RESPONSES, ask_responses(tools=ask_chat("gpt-6-sol")["tools"]), "tools.0.name"),
    ],
)
def test_the_provider_keeps_its_rules(path: str, body: dict[str, Any], param: str | None) -> None:
    provider = RefusingProvider()
    provider.answer(path, body)
    assert [served[2:] for served in provider.ledger] == [(200 if param is None else 400, param)]


REFUSED_AT_OPENAI = """\
gpt-4.1 effort none: reasoning_effort
gpt-4.1 effort none, temperature 0.2: reasoning_effort
gpt-4.1 effort low: reasoning_effort
gpt-4.1 effort low, temperature 0.2: reasoning_effort
gpt-5-mini effort unset, temperature 0.2: temperature
gpt-5-mini effort none: reasoning_effort
gpt-5-mini effort none, temperature 0.2: reasoning_effort
gpt-5-mini effort low, temperature 0.2: temperature
gpt-5.4 effort low, temperature 0.2: temperature
gpt-5.5 effort unset, temperature 0.2: temperature
gpt-5.5 effort low, temperature 0.2: temperature
gpt-5.6-luna effort unset, temperature 0.2: temperature
gpt-5.6-luna effort low, temperature 0.2: temperature
gpt-6-astra effort unset, temperature 0.2: temperature
gpt-6-astra effort none: reasoning_effort
gpt-6-astra effort none, temperature 0.2: reasoning_effort
gpt-6-astra effort low, temperature 0.2: temperature
gpt-6-sol effort unset, temperature 0.2: temperature
gpt-6-sol effort none, temperature 0.2: temperature
gpt-6-sol effort low, temperature 0.2: temperature
gpt-6.1-terra effort unset, temperature 0.2: temperature
gpt-6.1-terra effort none: reasoning_effort
gpt-6.1-terra effort none, temperature 0.2: reasoning_effort
gpt-6.1-terra effort low, temperature 0.2: temperature
o4-mini effort unset, temperature 0.2: temperature
o4-mini effort none: reasoning_effort
o4-mini effort none, temperature 0.2: reasoning_effort
o4-mini effort low, temperature 0.2: temperature
"""


REFUSED_ON_CHAT = """\
gpt-4.1 effort none: reasoning_effort
gpt-4.1 effort none, temperature 0.2: reasoning_effort
gpt-4.1 effort low: reasoning_effort
gpt-4.1 effort low, temperature 0.2: reasoning_effort
gpt-5-mini effort unset, temperature 0.2: temperature
gpt-5-mini effort none: reasoning_effort
gpt-5-mini effort none, temperature 0.2: reasoning_effort
gpt-5-mini effort low, temperature 0.2: temperature
gpt-5.4 effort low: reasoning_effort
gpt-5.4 effort low, temperature 0.2: reasoning_effort
gpt-5.5 effort low: reasoning_effort
gpt-5.5 effort low, temperature 0.2: reasoning_effort
gpt-5.6-luna effort low: reasoning_effort
gpt-5.6-luna effort low, temperature 0.2: reasoning_effort
gpt-6-astra effort unset: model
gpt-6-astra effort unset, temperature 0.2: model
gpt-6-astra effort none: reasoning_effort
gpt-6-astra effort none, temperature 0.2: reasoning_effort
gpt-6-astra effort low: model
gpt-6-astra effort low, temperature 0.2: model
gpt-6-sol effort unset, temperature 0.2: temperature
gpt-6-sol effort none, temperature 0.2: temperature
gpt-6-sol effort low: reasoning_effort
gpt-6-sol effort low, temperature 0.2: reasoning_effort
gpt-6.1-terra effort unset: model
gpt-6.1-terra effort unset, temperature 0.2: model
gpt-6.1-terra effort none: reasoning_effort
gpt-6.1-terra effort none, temperature 0.2: reasoning_effort
gpt-6.1-terra effort low: model
gpt-6.1-terra effort low, temperature 0.2: model
o4-mini effort unset, temperature 0.2: temperature
o4-mini effort none: reasoning_effort
o4-mini effort none, temperature 0.2: reasoning_effort
o4-mini effort low, temperature 0.2: temperature
"""


async def run_all(base_url: str, api: str) -> str:
    """Run a flow with every combination. Gives a line with pointers for each one that is refused before a call."""
    client = OpenAIClient(api_key="key", base_url=base_url, api=api)
    lines = []
    for model, effort, temperature in product(MODELS, EFFORTS, TEMPERATURES):
        step = make_step(model=model, reasoning_effort=effort, temperature=temperature, max_tokens=500)
        try:
            await run_flow(make_flow(step), {"topic": "tea"}, client=client)
        except SpecError as error:
            pointers = " ".join(problem.path.removeprefix("/steps/0/") for problem in error.problems)
            warm = "" if temperature is None else f", temperature {temperature}"
            lines.append(f"{model} effort {effort or 'unset'}{warm}: {pointers}\n")
    await client.close()
    return "".join(lines)


def list_refused_calls(provider: RefusingProvider) -> list[tuple[Any, ...]]:
    return [(served.body["model"], *served) for served in provider.ledger if served.status != 200]


@pytest.fixture
def at_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the server on loopback for OpenAI's own."""
    monkeypatch.setattr(Provider, "is_openai", property(lambda self: True))


@pytest.mark.usefixtures("at_openai")
@pytest.mark.parametrize("api", ["auto", "responses"])
async def test_openai_accepts_each_call_that_saving_accepts(api: str, model_server: ModelServer) -> None:
    model_server.app = provider = RefusingProvider()
    refused = await run_all(model_server.base_url, api)
    assert list_refused_calls(provider) == []
    assert refused == REFUSED_AT_OPENAI
    assert len(provider.ledger) == 60 - refused.count("\n")


@pytest.mark.parametrize("api", ["auto", "chat"])
async def test_another_server_accepts_each_call_that_saving_accepts(api: str, model_server: ModelServer) -> None:
    model_server.app = provider = RefusingProvider(is_openai=False)
    refused = await run_all(model_server.base_url, api)
    assert list_refused_calls(provider) == []
    assert refused == REFUSED_ON_CHAT
    assert {served.path for served in provider.ledger} == {CHAT}
    assert len(provider.ledger) == 60 - refused.count("\n")


@pytest.mark.usefixtures("at_openai")
@pytest.mark.parametrize(
    "defaults", [{}, {"reasoning_effort": "low", "temperature": 0.2}, {"reasoning_effort": "none"}]
)
async def test_each_model_works_on_the_api_it_needs_with_any_default_settings(
    defaults: dict[str, Any], model_server: ModelServer
) -> None:
    model_server.app = provider = RefusingProvider()
    client = OpenAIClient(api_key="key", base_url=model_server.base_url)
    for model in MODELS:
        flow = make_flow(make_step(model=model))
        settings = ModelSettings(model="gpt-4.1", max_tokens=500, **defaults)
        result = await run_flow(flow, {"topic": "tea"}, client=client, defaults=settings)
        assert result.status == "succeeded", model
        assert result.usage is not None and result.usage.total == 150 and result.usage.reasoning == 10
    await client.close()
    paths = {served.body["model"]: served.path for served in provider.ledger}
    if not defaults:
        assert paths == {model: CHAT if model in ON_CHAT else RESPONSES for model in MODELS}
    assert all(served.body["store"] is False for served in provider.ledger if served.path == RESPONSES)
