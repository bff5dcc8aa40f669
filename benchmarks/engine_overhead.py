"""What the engine costs for one attempt, beside what a bare ``openai`` call costs.

The engine's figure is all CPU of planner, step input, prompt, reading the reply, validation and audits for the
attempts of the colour-theme example, with a model client that answers from memory. The other figure is
``AsyncOpenAI.chat.completions.create`` with the same requests, answered from memory below its HTTP layer. Both are
measured in turns, as CPU time of this process, and the median of all rounds is shown. Looking up what the tokens cost is
left out: that is the price list's time, and no part of the engine.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

import httpx2
from openai import AsyncOpenAI

from flows.engine import plugins as plugin_module
from flows.engine.execution import Execution
from flows.engine.history import History
from flows.engine.model_client import ModelReply
from flows.engine.openai_client import simulated_client
from flows.engine.pricing import leave_free
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
        return ModelReply(self.bodies[idempotency_key.partition("-")[2]])

    async def close(self) -> None:
        """Nothing to give back."""


class RecordingClient:
    """Asks the simulated model and remembers what was asked and answered."""

    def __init__(self, memory: MemoryClient) -> None:
        self._memory = memory
        self._client = simulated_client(SimulatedModel(script=example_script()))

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        reply = await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)
        self._memory.bodies[idempotency_key.partition("-")[2]] = reply.body
        self._memory.requests.append(request)
        return reply

    async def close(self) -> None:
        await self._client.close()


async def main() -> None:
    """Measure and print the table."""
    plugin_module.load_plugins(["flows.examples.plugins"])
    flow = FlowSpec.from_document(load_documents()[FLOW])
    sample = load_sample_input(FLOW)
    memory = MemoryClient()
    recording = RecordingClient(memory)
    result = await run_flow(flow, sample, client=recording)
    await recording.close()
    attempts = sum(len(step.attempts) for step in result.steps[1:])
    registry = plugin_module.registry
    spec = prepare_spec(flow, registry=registry, defaults=ModelSettings(model="gpt-5-mini"))
    execution = Execution(spec=spec, client=memory, registry=registry, price=leave_free)

    bare = make_bare_client(memory)
    engine_times, bare_times = [], []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(RUNS_A_ROUND):
            await execution.execute(History.begin(sample, run_id="run"))
        engine_times.append((time.process_time() - started) / (RUNS_A_ROUND * attempts) * 1000)
        started = time.process_time()
        for _ in range(RUNS_A_ROUND):
            for request in memory.requests:
                await bare.chat.completions.create(**request)
        bare_times.append((time.process_time() - started) / (RUNS_A_ROUND * len(memory.requests)) * 1000)
    engine, call = statistics.median(engine_times), statistics.median(bare_times)
    sys.stdout.write(
        f"Engine overhead, {FLOW}: {attempts} attempts a run, {ROUNDS} rounds, median CPU\n"
        f"  engine, one attempt         {engine:6.3f} ms   (target: at most {TARGET} ms)\n"
        f"  bare openai call            {call:6.3f} ms\n"
        f"  engine beside a bare call   {engine / call:6.2f}\n"
    )


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
