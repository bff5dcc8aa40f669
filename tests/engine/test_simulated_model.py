"""The simulated model: what it answers, what it refuses, what it counts."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from flows.engine.openai_client import OpenAIClient
from flows.engine.reply import read_reply
from flows.engine.simulated_model import SimulatedModel
from flows.engine.simulated_model.__main__ import main
from flows.engine.simulated_model.server import open_socket
from tests.engine.simulated_requests import COLOR, INVOICE, ask, make_request, show_attempts


async def post(app: SimulatedModel, *, path: str = "/v1/chat/completions", **options: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
        headers = {"Authorization": "Bearer right", **options.pop("headers", {})}
        return await client.request(
            options.pop("method", "POST"), f"http://simulated-model{path}", headers=headers, **options
        )


async def test_the_same_request_gets_the_same_answer_and_another_seed_another() -> None:
    first = await ask(SimulatedModel(), make_request(INVOICE))
    again = await ask(SimulatedModel(), make_request(INVOICE), key="another-1-1")
    other = await ask(SimulatedModel(seed=1), make_request(INVOICE))
    assert first == again
    assert first.arguments != other.arguments


async def test_the_official_client_reads_the_answer_as_a_completion() -> None:
    http_client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=SimulatedModel()))
    async with AsyncOpenAI(api_key="right", base_url="http://simulated-model/v1", http_client=http_client) as client:
        completion = await client.chat.completions.create(**make_request())
        models = await client.models.list()
    assert completion.id.startswith("chatcmpl-sim-")
    assert completion.system_fingerprint == "simulated"
    assert completion.choices[0].message.tool_calls is not None
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    assert [model.id for model in models.data] == ["simulated"]


async def test_a_request_without_tools_gets_text() -> None:
    response = await post(SimulatedModel(), json=make_request(tools=None, tool_choice=None, parallel_tool_calls=None))
    message = response.json()["choices"][0]["message"]
    assert message["content"]
    assert "tool_calls" not in message


OPEN_SCHEMA = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
LOOSE_SCHEMA = {**COLOR, "required": []}
LIST_SCHEMA = {"type": "array", "items": {"type": "string"}}
NESTED_SCHEMA = {
    "type": "object",
    "properties": {"inner": OPEN_SCHEMA},
    "required": ["inner"],
    "additionalProperties": False,
}
OTHER_TOOL = {"type": "function", "function": {"name": "other"}}


@pytest.mark.parametrize(
    ("changes", "status", "code", "words"),
    [
        ({"model": "no-such-model"}, 404, "model_not_found", "does not exist"),
        ({"model": None}, 400, None, "must provide a model"),
        ({"tool_choice": OTHER_TOOL}, 400, "invalid_value", "'other' is not one of the tools"),
        ({"tools": None}, 400, None, "only allowed when 'tools'"),
        ({"messages": []}, 400, None, "at least one message"),
        ({"messages": [{"role": "boss", "content": ""}]}, 400, None, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, 400, None, "messages[0].content"),
        ({"temperature": 3}, 400, None, "from 0 to 2"),
        ({"max_tokens": 0}, 400, None, "1 or more"),
        ({"stream": True}, 400, "unsupported_value", "does not stream"),
        ({"max_token": 5}, 400, None, "Unrecognized request argument supplied: max_token"),
        ({"model": "gpt-5-mini", "temperature": 0.2}, 400, "unsupported_value", "'temperature' does not support 0.2"),
        (
            {"model": "o3", "max_tokens": 9, "parallel_tool_calls": None},
            400,
            "unsupported_parameter",
            "Use 'max_completion_tokens' instead",
        ),
        ({"model": "gpt-5-chat-latest", "max_tokens": 9}, 400, "unsupported_parameter", "max_completion_tokens"),
        ({"model": "o3", "parallel_tool_calls": False}, 400, "unsupported_parameter", "'parallel_tool_calls'"),
        ({"reasoning_effort": "low"}, 400, "unsupported_value", "does not support 'low'"),
        ({"model": "gpt-5.4", "reasoning_effort": "low"}, 400, None, "use /v1/responses"),
        ({"model": "gpt-6-sol"}, 400, None, "use /v1/responses"),
        ({"model": "gpt-6-astra"}, 400, None, "use /v1/responses"),
        ({"schema": OPEN_SCHEMA}, 400, "invalid_function_parameters", "'additionalProperties' is required"),
        ({"schema": LOOSE_SCHEMA}, 400, "invalid_function_parameters", "Missing 'color'"),
        ({"schema": LIST_SCHEMA}, 400, "invalid_function_parameters", "got 'type: \"array\"'"),
        ({"schema": NESTED_SCHEMA}, 400, "invalid_function_parameters", "('properties', 'inner')"),
        ({"schema": {**COLOR, "allOf": []}}, 400, "invalid_function_parameters", "'allOf' is not permitted"),
    ],
)
async def test_what_the_real_api_refuses_is_refused(
    changes: dict[str, Any], status: int, code: str | None, words: str
) -> None:
    response = await post(SimulatedModel(), json=make_request(**changes))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert words in error["message"]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "gpt-5-mini", "max_completion_tokens": 500},
        {"model": "gpt-5-mini", "temperature": 1},
        {"model": "gpt-5-chat-latest", "temperature": 0.2},
        {"temperature": 0.2, "max_tokens": 500},
        {"tool_choice": "auto"},
        {"tool_choice": "required"},
    ],
)
async def test_what_the_real_api_takes_is_taken(changes: dict[str, Any]) -> None:
    assert (await ask(SimulatedModel(), make_request(**changes))).issues == ()


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({}, None),
        ({"reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"temperature": 0.2}, "temperature"),
        ({"max_tokens": 9}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"input": None}, "input"),
        ({"tools": make_request()["tools"]}, "tools[0].name"),
        ({"tool_choice": {"type": "function", "function": {"name": "make"}}}, "tool_choice"),
    ],
)
async def test_the_responses_api_refuses_what_belongs_to_the_other_one_or_to_other_models(
    changes: dict[str, Any], param: str | None
) -> None:
    tool = {"type": "function", **make_request()["tools"][0]["function"]}
    choice = {"type": "function", "name": "make"}
    request = {"model": "gpt-6-astra", "input": "{}", "tools": [tool], "tool_choice": choice, **changes}
    response = await post(SimulatedModel(), path="/v1/responses", json=request)
    assert (response.status_code, (response.json()["error"] or {}).get("param")) == (400 if param else 200, param)


async def test_a_body_that_is_no_json_object_is_refused() -> None:
    assert (await post(SimulatedModel(), content=b"{")).status_code == 400
    assert (await post(SimulatedModel(), content=b"[" * 100_000)).status_code == 400
    assert (await post(SimulatedModel(), json=[])).status_code == 400


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong-key", "Basic right"])
async def test_a_missing_or_wrong_key_is_refused(authorization: str) -> None:
    response = await post(SimulatedModel(), json=make_request(), headers={"Authorization": authorization})
    assert response.status_code == 401
    assert "wrong-key" not in response.text


async def test_keys_and_models_can_be_given() -> None:
    app = SimulatedModel(api_keys={"right"}, models={"gpt-4o-mini"})
    assert (await post(app, json=make_request())).status_code == 200
    assert (await post(app, json=make_request(model="gpt-4o"))).status_code == 404
    assert (await post(app, json=make_request(), headers={"Authorization": "Bearer left"})).status_code == 401
    assert (await post(app, path="/v1/models", method="GET")).json()["data"][0]["id"] == "gpt-4o-mini"


async def test_an_unknown_path_is_not_found() -> None:
    response = await post(SimulatedModel(), path="/v1/chat/completion", json=make_request())
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_url")


async def test_latency_is_fixed_or_spread_and_the_same_each_time() -> None:
    async def measure(latency: Any) -> list[float]:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        app = SimulatedModel(latency=latency, sleep=sleep)
        for number in range(10):
            await ask(app, make_request(system=str(number)))
        return slept

    assert await measure(0.5) == [0.5] * 10
    assert await measure(0.0) == []
    spread = await measure((0.2, 0.8))
    assert len(set(spread)) == 10
    assert all(0.2 <= seconds <= 0.8 for seconds in spread)
    assert spread == await measure((0.2, 0.8))


@pytest.mark.parametrize("latency", [-1.0, float("inf"), float("nan"), (0.8, 0.2)])
def test_a_latency_that_makes_no_sense_is_refused(latency: Any) -> None:
    with pytest.raises(ValueError, match="seconds, 0 or more"):
        SimulatedModel(latency=latency)


async def test_usage_follows_the_length_of_the_texts() -> None:
    short = (await ask(SimulatedModel(), make_request(system="x" * 400))).usage
    long = (await ask(SimulatedModel(), make_request(system="x" * 4_400))).usage
    assert long.prompt - short.prompt == 1_000
    assert short.total == short.prompt + short.completion
    assert (short.cached, short.reasoning) == (0, 0)


async def test_a_retry_finds_what_stands_before_its_attempts_in_the_cache() -> None:
    first = (await ask(SimulatedModel(), make_request(system="x" * 4_000))).usage
    retry = (await ask(SimulatedModel(), make_request(system=show_attempts(1, system="x" * 4_000)))).usage
    assert first.cached == 0
    assert retry.cached % 128 == 0
    assert 1_000 <= retry.cached < first.prompt < retry.prompt


async def test_a_reasoning_model_reports_tokens_that_it_thought() -> None:
    usages = [
        (await ask(SimulatedModel(seed=seed), make_request(model="gpt-5-mini"))).usage.reasoning for seed in range(20)
    ]
    assert max(usages) > 0
    assert all(tokens % 64 == 0 for tokens in usages)


async def test_an_answer_beyond_the_token_limit_is_cut_off_there() -> None:
    reply = await ask(SimulatedModel(), make_request(INVOICE, max_tokens=10))
    assert [issue.code for issue in reply.issues] == ["truncated"]
    assert "after 10 completion tokens" in reply.issues[0].description
    assert reply.usage.completion == 10


async def test_calls_are_remembered_in_order_up_to_a_bound() -> None:
    app = SimulatedModel(keep_calls=2)
    for number in range(3):
        await ask(app, make_request(), key=f"run-1-{number}")
    assert app.call_count == 3
    assert [(call.number, call.idempotency_key, call.status) for call in app.calls] == [
        (2, "run-1-1", 200),
        (3, "run-1-2", 200),
    ]
    assert app.calls[0].body == make_request()


def test_answers_over_tcp_don_t_wait_for_delayed_acknowledgements() -> None:
    listener, _ = open_socket("127.0.0.1", 0)
    with listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--latency", "soon"], "“soon” is no latency"),
        (["--latency", "2-1"], "the lower bound first"),
        (["--fault", "reset"], "“reset” is no fault"),
        (["--fault", "fire=0.1"], "There is no fault “fire”"),
        (["--script", "/no/such/file"], "No such file"),
    ],
)
def test_the_command_says_in_one_sentence_what_is_wrong_with_its_options(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_the_command_serves_over_tcp_and_prints_where() -> None:
    command = [sys.executable, "-m", "flows.engine.simulated_model", "--port", "0", "--fault", "refusal=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"Simulated model at (http://127\.0\.0\.1:\d+/v1)\n", process.stdout.readline())
            assert found is not None
            codes = asyncio.run(_ask_over_tcp(found[1]))
        finally:
            process.terminate()
    assert codes == ["refusal"]


async def _ask_over_tcp(base_url: str) -> list[str]:
    client = OpenAIClient(api_key="right", base_url=base_url)
    reply = await client.complete(make_request(), idempotency_key="run-1-1", timeout=30)
    await client.close()
    return [issue.code for issue in read_reply(reply.body, tool_name="make").issues]
