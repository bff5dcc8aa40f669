"""The work that is compared: the requests of one run of the colour-theme example, as ToolFlow sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.model_server import make_script
from flows.engine import ModelReply, plugins
from flows.engine.openai_client import simulated_client
from flows.engine.running import run_flow
from flows.engine.simulated_model import SimulatedModel
from flows.engine.spec import FlowSpec
from flows.examples import load_documents, load_sample_input

FLOW = "colour-theme"
STEPS = 3
CALLS = 4


class _NotingClient:
    """Asks the simulated model and notes what was asked."""

    def __init__(self) -> None:
        self._client = simulated_client(SimulatedModel(script=make_script()))
        self.requests: dict[str, list[Mapping[str, Any]]] = {}

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        self.requests.setdefault(request["tools"][0]["function"]["name"], []).append(request)
        return await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)

    async def close(self) -> None:
        await self._client.close()


def write_work(path: Path) -> None:
    """Write the requests of all tries of each step to ``path`` as JSON."""
    path.write_text(json.dumps(asyncio.run(_note_requests())))


async def _note_requests() -> list[list[Mapping[str, Any]]]:
    plugins.load_plugins(["flows.examples.plugins"])
    client = _NotingClient()
    result = await run_flow(FlowSpec.from_document(load_documents()[FLOW]), load_sample_input(FLOW), client=client)
    await client.close()
    steps = list(client.requests.values())
    if not result.passed or [len(requests) for requests in steps] != [1, 2, 1]:
        raise RuntimeError(f"The work has changed its shape: {result.sentence}")
    return steps
