"""Stores runs as a drain does, without executing them: inside the process of a throwaway installation."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from django.db import transaction

from benchmarks.model_server import make_script
from flows.engine.execution import Execution, Progress
from flows.engine.history import History
from flows.engine.openai_client import simulated_client
from flows.engine.plugins import registry
from flows.engine.pricing import leave_free
from flows.engine.simulated_model import SimulatedModel
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import prepare_spec
from flows.models import Flow
from flows.providers import default_model_settings
from runs.claiming import claim_runs
from runs.models import Run
from runs.recorder import RunRecorder
from runs.submission import submit_run
from runs.worker.database_thread import DatabaseThread

AT_A_TIME = 200
LEASE = timedelta(minutes=10)


class _NotingRecorder:
    """Keeps in memory what is to be stored."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []

    async def record(self, progress: Progress) -> None:
        self.progress.append(progress)


def store_runs(flow: Flow, input: object, count: int) -> dict[str, Any]:
    """Store ``count`` runs with all their attempts; gives the attempts, seconds and CPU, and the seconds of commits."""
    with transaction.atomic():
        for _ in range(count):
            submit_run(flow=flow, input=input)
    runs = claim_runs(free=count, owner="benchmark", lease=LEASE, is_simulated=False)
    return asyncio.run(_store(runs, flow, input))


async def _store(runs: list[Run], flow: Flow, input: object) -> dict[str, Any]:
    assert flow.live_version is not None
    spec = prepare_spec(flow.live_version.flow_spec, registry=registry, defaults=default_model_settings())
    progress = await _execute_once(spec, input)
    commits: list[float] = []
    database = DatabaseThread(on_commit=lambda _writes, seconds: commits.append(seconds))
    waiting = iter(runs)

    async def work_on() -> None:
        for run in waiting:
            recorder = RunRecorder(run, spec, History.begin(run.input, run_id=str(run.pk)))
            for step in progress:
                write = recorder.prepare(step)
                recorder.confirm(write, await database.store(write))

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(work_on() for _ in range(AT_A_TIME)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await database.close()
    attempts = len(runs) * sum(step.ended is not None for step in progress)
    return {"attempts": attempts, "cpu": cpu, "wall": wall, "commits": commits}


async def _execute_once(spec: FlowSpec, input: object) -> list[Progress]:
    """What a run has to store, in order."""
    client = simulated_client(SimulatedModel(script=make_script()))
    recorder = _NotingRecorder()
    execution = Execution(spec=spec, client=client, registry=registry, recorder=recorder, price=leave_free)
    await execution.execute(History.begin(input, run_id="benchmark"))
    await client.close()
    return recorder.progress
