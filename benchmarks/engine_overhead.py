"""What the engine costs for one attempt, beside what a bare ``openai`` call costs.

Three things are measured in turns, as CPU time of this process, and the median of all rounds is shown:

- *planner, prompt, validation, audits*: ``next_action``, ``build_request`` and ``judge_output`` for every attempt of a
  run of the colour-theme example;
- *whole engine*: ``Execution.execute`` of the same run, which adds the inputs of steps, reading replies, and building
  the history, with a model client that answers from memory;
- *bare openai call*: ``AsyncOpenAI.chat.completions.create`` with the same requests, answered from memory below its
  HTTP layer.

Looking up what the tokens cost is left out: that is the price list's time, and no part of the engine.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from typing import Any

import httpx2
from openai import AsyncOpenAI

from benchmarks.figures import Figure, print_table
from benchmarks.setting import Setting
from flows.engine import plugins as plugin_module
from flows.engine.evaluation import step_variables
from flows.engine.execution import Execution
from flows.engine.history import History
from flows.engine.judging import judge_output
from flows.engine.openai_client import simulated_client
from flows.engine.planner import next_action
from flows.engine.pricing import leave_free
from flows.engine.prompt import build_request
from flows.engine.providers import ModelReply
from flows.engine.running import run_flow
from flows.engine.simulated_model import SimulatedModel
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import prepare_spec
from flows.examples import load_documents, load_sample_input
from flows.examples.scripts import example_script

FLOW = "colour-theme"
ROUNDS = 30
RUNS_A_ROUND = 10
TARGET = 0.3
"""Milliseconds of CPU for one attempt."""


class MemoryClient:
    """Gives back the bodies that a simulated model gave to the same requests."""

    def __init__(self) -> None:
        self.bodies: dict[str, Mapping[str, Any]] = {}
        self.requests: list[Mapping[str, Any]] = []

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        return ModelReply(self.bodies[idempotency_key.split("-", 2)[2]])

    async def close(self) -> None:
        """Nothing to give back."""


class RecordingClient:
    """Asks the simulated model and remembers what was asked and answered."""

    def __init__(self, memory: MemoryClient) -> None:
        self._memory = memory
        self._client = simulated_client(SimulatedModel(script=example_script()))

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        reply = await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)
        self._memory.bodies[idempotency_key.split("-", 2)[2]] = reply.body
        self._memory.requests.append(request)
        return reply

    async def close(self) -> None:
        await self._client.close()


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figure that has a target."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    plugin_module.load_plugins(["flows.examples.plugins"])
    registry = plugin_module.registry
    flow = FlowSpec.from_document(load_documents()[FLOW])
    sample = load_sample_input(FLOW)
    memory = MemoryClient()
    recording = RecordingClient(memory)
    await run_flow(flow, sample, client=recording)
    await recording.close()
    spec = prepare_spec(flow, registry=registry, defaults=ModelSettings(model="gpt-5-mini"))
    execution = Execution(spec=spec, client=memory, registry=registry, price=leave_free)
    bare = make_bare_client(memory)
    finished = (await execution.execute(History.begin(sample, run_id="run"))).history
    attempts = list(finished)[1:]
    prefixes = [History.from_attempts(list(finished)[: count + 1], run_id="run") for count in range(len(attempts))]

    async def decide_and_judge() -> None:
        for history, attempt in zip(prefixes, attempts, strict=True):
            next_action(spec, history)
            build_request(spec, history, attempt.step, attempt.input)
            variables = step_variables(spec, history, attempt.step)
            await judge_output(spec.step(attempt.step), attempt.output, variables, registry)

    async def execute() -> None:
        await execution.execute(History.begin(sample, run_id="run"))

    async def call() -> None:
        for request in memory.requests:
            await bare.chat.completions.create(**request)

    times: dict[str, list[float]] = {"core": [], "engine": [], "call": []}
    for _ in range(ROUNDS):
        for name, work in (("core", decide_and_judge), ("engine", execute), ("call", call)):
            started = time.process_time()
            for _ in range(RUNS_A_ROUND):
                await work()
            times[name].append((time.process_time() - started) / (RUNS_A_ROUND * len(attempts)) * 1000)
    core, engine, bare_call = (statistics.median(values) for values in times.values())
    rows = [
        ("planner, prompt, validation, audits", f"{core:.3f}", f"{core / bare_call:.2f}"),
        ("whole engine", f"{engine:.3f}", f"{engine / bare_call:.2f}"),
        ("bare openai call, answered from memory", f"{bare_call:.3f}", "1"),
    ]
    print_table(
        f"Engine, {FLOW}: {len(attempts)} attempts a run, {ROUNDS} rounds, medians",
        ("part", "CPU ms an attempt", "× bare"),
        rows,
    )
    return [Figure("Planner, prompt, validation and audits of an attempt", core, "ms", at_most=TARGET)]


def make_bare_client(memory: MemoryClient) -> AsyncOpenAI:
    """The plain client, answered from memory below its HTTP layer."""
    answers = [json.dumps(body).encode() for body in memory.bodies.values()]
    served = 0

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal served
        served += 1
        return httpx2.Response(
            200, content=answers[served % len(answers)], headers={"content-type": "application/json"}
        )

    return AsyncOpenAI(
        api_key="none",
        base_url="http://127.0.0.1/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)),
    )
