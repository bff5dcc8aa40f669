"""A contract in English, Greek and Arabic, reviewed in six steps: what pages must show right in every script.

``python -m tests.multilingual_flow`` makes eight runs of it in the installation of the environment.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.engine.model_server import ModelServer
from tests.multilingual_flow.replies import RUNS, build_input, build_script

FLOW_FILE = Path(__file__).with_name("flow.yaml")


def make_runs(provider: ModelServer, *, count: int = len(RUNS)) -> list[int]:
    """Publish the flow, and take ``count`` runs of it to their end, answered by ``provider``; gives their numbers."""
    from flows.engine.simulated_model import SimulatedModel
    from flows.flow_file import parse_flow
    from flows.publishing import publish_flow
    from runs.submission import submit_run
    from runs.worker.event_loop import Drain

    flow = publish_flow(spec=parse_flow(FLOW_FILE.read_text())).flow
    numbers = []
    for number, kind in enumerate(RUNS[:count]):
        provider.app = SimulatedModel(script=build_script(kind), latency=(0.01, 0.2))
        numbers.append(submit_run(flow=flow, input=build_input(number)).pk)
        asyncio.run(Drain(leaves_when_idle=True).run())
    return numbers
