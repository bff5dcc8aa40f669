"""What the engine costs for one attempt, beside what a bare ``openai`` call costs: CPU time of this process.

``Execution.execute`` of a run of the colour-theme example, and the same requests by ``AsyncOpenAI``, take turns; both
are answered from memory. Prices are left out.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx2
from openai import AsyncOpenAI

from benchmarks.figures import Figure, Setting, print_table
from benchmarks.work import FLOW
from flows.engine import plugins
from flows.engine.execution import Execution
from flows.engine.history import History
from flows.engine.openai_client import simulated_client
from flows.engine.pricing import leave_free
from flows.engine.providers import ModelReply
from flows.engine.simulated_model import SimulatedModel
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import prepare_spec
from flows.examples import load_documents, load_sample_input
from flows.examples.scripts import example_script

ROUNDS = 30
RUNS_PER_ROUND = 10
TARGET = 0.6
"""Of the CPU of a bare call."""


class MemoryClient:
    """Asks the simulated model, and later gives back the bodies that it gave to the same requests."""

    def __init__(self) -> None:
        self.bodies: dict[str, Mapping[str, Any]] = {}
        self.requests: list[Mapping[str, Any]] = []
        self._client = simulated_client(SimulatedModel(script=example_script()))

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        # Behind the installation and the run: the step and the attempt.
        key = idempotency_key.split("-", 2)[2]
        if key not in self.bodies:
            reply = await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)
            self.bodies[key] = reply.body
            self.requests.append(request)
        return ModelReply(self.bodies[key])

    async def close(self) -> None:
        await self._client.close()


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figure that has a target."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    plugins.load_plugins(["flows.examples.plugins"])
    flow = FlowSpec.from_document(load_documents()[FLOW])
    spec = prepare_spec(flow, registry=plugins.registry, defaults=ModelSettings(model="gpt-5-mini"))
    memory = MemoryClient()
    execution = Execution(spec=spec, client=memory, registry=plugins.registry, price=leave_free)

    sample = load_sample_input(FLOW)

    async def execute() -> None:
        await execution.execute(History.begin(sample, run_id="run"))

    await execute()
    bare = _build_bare_client(memory)

    async def call() -> None:
        for request in memory.requests:
            await bare.chat.completions.create(**request)

    attempts = len(memory.requests)
    pairs = [(await _measure_cpu(execute, attempts), await _measure_cpu(call, attempts)) for _ in range(ROUNDS)]
    engine, bare_call = (statistics.median(values) for values in zip(*pairs, strict=True))
    rows = [
        ("whole engine", f"{engine:.3f}", f"{engine / bare_call:.2f}"),
        ("bare openai call, answered from memory", f"{bare_call:.3f}", "1"),
    ]
    title = f"Engine, {FLOW}: {attempts} attempts a run, {ROUNDS} rounds, medians"
    print_table(title, ("part", "CPU ms an attempt", "× bare"), rows)
    await memory.close()
    return [Figure("The engine, for each attempt", engine / bare_call, "× bare", at_most=TARGET)]


async def _measure_cpu(work: Callable[[], Awaitable[None]], attempts: int) -> float:
    """Milliseconds of CPU for each attempt."""
    started = time.process_time()
    for _ in range(RUNS_PER_ROUND):
        await work()
    return (time.process_time() - started) / (RUNS_PER_ROUND * attempts) * 1000


def _build_bare_client(memory: MemoryClient) -> AsyncOpenAI:
    """The plain client, answered from memory below its HTTP layer."""
    answers = [json.dumps(body).encode() for body in memory.bodies.values()]
    served = 0

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal served
        served += 1
        content = answers[served % len(answers)]
        return httpx2.Response(200, content=content, headers={"content-type": "application/json"})

    return AsyncOpenAI(
        api_key="none",
        base_url="http://127.0.0.1/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)),
    )
