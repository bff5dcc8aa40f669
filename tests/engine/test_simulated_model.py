"""The simulated model: what it answers, what it refuses, what it counts, and how it fails on demand."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.openai_client import OpenAIClient, simulated_client
from flows.engine.prompt import ATTEMPT_HEADING, CURRENT_STEP_HEADING
from flows.engine.reply import ToolReply, parse_reply
from flows.engine.simulated_model import Fault, FaultKind, Script, SimulatedModel, invent_value
from tests.engine.builders import INVOICE, closed
from tests.engine.executions import make_request


def show_attempts(*numbers: int, system: str = "Choose well.") -> str:
    """The system message of a retry that shows the attempts of these numbers."""
    attempts = [f"{ATTEMPT_HEADING.format(number=number)}\nOutput: {{}}\nIssues:\n- high: No." for number in numbers]
    return "\n\n".join([system, CURRENT_STEP_HEADING, *attempts])


async def ask(app: SimulatedModel, request: dict[str, Any], *, key: str = "run-1-1") -> ToolReply:
    """What the simulated model answers, in process."""
    reply = await simulated_client(app).complete(request, idempotency_key=key, timeout=10)
    return parse_reply(reply.body, tool_name="make")


def scripted(*replies: Any) -> SimulatedModel:
    return SimulatedModel(script=Script({"make": replies}))


async def test_the_same_request_gets_the_same_answer_and_another_seed_another() -> None:
    first = await ask(SimulatedModel(), make_request(INVOICE))
    jsonschema_rs.validate(INVOICE, first.arguments, validate_formats=True)
    assert first == await ask(SimulatedModel(), make_request(INVOICE), key="another-1-1")
    assert first.arguments != (await ask(SimulatedModel(seed=1), make_request(INVOICE))).arguments


async def test_the_official_client_reads_the_answer_as_a_completion() -> None:
    http_client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=SimulatedModel()))
    async with AsyncOpenAI(api_key="right", base_url="http://simulated/v1", http_client=http_client) as client:
        completion = await client.chat.completions.create(**make_request())
        text = await client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "Hi"}])
    assert completion.choices[0].message.tool_calls is not None and completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    assert text.choices[0].message.content and text.choices[0].message.tool_calls is None


@pytest.mark.parametrize(
    ("path", "key", "request_", "status"),
    [
        ("/chat/completions", "right", make_request(model="no-such-model"), 404),
        ("/chat/completion", "right", make_request(), 404),
        ("/chat/completions", "wrong-key", make_request(), 401),
        ("/chat/completions", "right", make_request(model=None), 400),
    ],
)
async def test_what_a_provider_refuses_is_refused(path: str, key: str, request_: Any, status: int) -> None:
    transport = httpx2.ASGITransport(app=SimulatedModel(api_keys={"right"}))
    async with httpx2.AsyncClient(transport=transport, headers={"Authorization": f"Bearer {key}"}) as client:
        response = await client.post(f"http://simulated-model/v1{path}", json=request_)
    assert response.status_code == status and "wrong-key" not in response.text


class TestScript:
    async def test_the_next_reply_comes_once_the_request_shows_the_one_before(self) -> None:
        app = scripted({"color": "1"}, {"color": "2"}, {"color": "3"})
        # Headings in other sections, or quoted in an output, are no attempts of the step.
        quoted = f'Output: "{CURRENT_STEP_HEADING}\\n{ATTEMPT_HEADING.format(number=1)}"'
        systems = ["Choose.", f"{ATTEMPT_HEADING.format(number=1)}\n{quoted}"]
        systems += [show_attempts(1), show_attempts(1, 2), show_attempts(2), show_attempts(1, 9)]
        found = [(await ask(app, make_request(system=system))).arguments for system in systems]
        assert found == [{"color": number} for number in "112333"]

    async def test_a_function_answers_from_request_and_input_and_its_failure_is_one_of_the_provider(self) -> None:
        def reply(request: dict[str, Any], input: Any) -> dict[str, Any]:
            return {"color": f"{input['brand']} by {request['model']}"}

        assert (await ask(scripted(reply), make_request())).arguments == {"color": "Kestrel by gpt-4o-mini"}
        with pytest.raises(ModelError, match="KeyError") as caught:
            await ask(scripted(lambda request, input: input["colour"]), make_request())
        assert caught.value.code is ModelErrorCode.SERVER_ERROR

    @pytest.mark.parametrize("keys", [("run-1-1", "run-1-2"), ("no number", "no number")])
    async def test_a_transport_fault_strikes_each_run_once_though_nothing_of_it_is_shown(self, keys: Any) -> None:
        app = scripted(Fault(FaultKind.RATE_LIMITED, retry_after=3), {"color": "red"})
        for run in ("a", "b"):
            with pytest.raises(ModelError) as caught:
                await ask(app, make_request(), key=f"{run}-{keys[0]}")
            assert caught.value.retry_after == 3
            assert (await ask(app, make_request(), key=f"{run}-{keys[1]}")).arguments == {"color": "red"}


@pytest.mark.parametrize("pattern", [r"^INV-\d{4}(-[A-Z]{2})?$", r"^[^a-z\s]{2,}$", "(", "((a{999}){999}){99}"])
def test_a_text_matches_its_pattern_unless_that_is_beyond_the_generator(pattern: str) -> None:
    for seed in range(20):
        text = invent_value({"type": "string", "pattern": pattern}, seed=str(seed))
        assert len(text) < 10_000 and (not pattern.startswith("^") or re.search(pattern, text))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"type": "array", "minItems": 2, "items": {"$ref": "#"}},
        {"type": "integer", "minimum": 5, "maximum": 1},
        {"type": "array", "items": {"const": 1}, "uniqueItems": True, "minItems": 3},
    ],
)
def test_a_schema_that_nothing_fits_ends_all_the_same(schema: dict[str, Any]) -> None:
    invent_value(schema, seed="1")


FORMATS = ("date", "date-time", "time", "email", "uuid", "uri", "ipv4", "ipv6", "hostname", "duration")
LEAVES = st.one_of(
    st.sampled_from([{"type": kind} for kind in ("string", "integer", "number", "boolean", "null")]),
    st.sampled_from([{"type": "string", "format": name} for name in FORMATS]),
    st.sampled_from([{"enum": ["a", 1, None]}, {"const": 2.5}]),
    st.integers(-1_000, 1_000).map(lambda least: {"type": "integer", "minimum": least, "maximum": least + 9}),
    st.integers(1, 20).map(lambda step: {"type": "integer", "multipleOf": step}),
    st.integers(0, 30).map(lambda length: {"type": "string", "minLength": length, "maxLength": length + 3}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["color", "email", "total", "notes"]), inner).map(lambda one: closed(**one)),
        inner.map(lambda items: {"type": "array", "items": items, "minItems": 2, "maxItems": 3}),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=8,
)


@given(schema=SCHEMAS, seed=st.integers(0, 5))
def test_whatever_the_schema_the_value_fits_it(schema: dict[str, Any], seed: int) -> None:
    jsonschema_rs.validate(schema, invent_value(schema, seed=str(seed)), validate_formats=True)


@pytest.mark.nightly
def test_the_command_serves_over_tcp_and_prints_where() -> None:
    async def call(base_url: str) -> bool:
        client = OpenAIClient(api_key="right", base_url=base_url)
        reply = await client.complete(make_request(), idempotency_key="run-1-1", timeout=30)
        await client.close()
        return parse_reply(reply.body, tool_name="make").arguments is not None

    command = [sys.executable, "-m", "flows.engine.simulated_model", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"Simulated model at (http://127\.0\.0\.1:\d+/v1)\n", process.stdout.readline())
            assert found is not None and asyncio.run(call(found[1]))
        finally:
            process.terminate()
