"""Runs taken to their end by a real drain, in the process of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from django.db import connection

from flows.engine.simulated_model import Script, SimulatedModel
from flows.engine.spec import FlowSpec
from runs.models import Attempt, Run
from runs.worker import event_loop
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version


def drain() -> None:
    asyncio.run(event_loop.Drain(leaves_when_idle=True).run())


def run_flow(spec: FlowSpec, **fields: Any) -> Run:
    """Run a flow through the queue's table and a drain."""
    run = make_run(make_version(spec), **fields)
    drain()
    run.refresh_from_db()
    return run


def script(provider: ModelServer, **replies: list[Any]) -> None:
    provider.app = SimulatedModel(script=Script(replies))


def attempts_of(run: Run) -> list[Attempt]:
    return list(Attempt.objects.filter(step__run=run).order_by("step__index", "number").select_related("step", "usage"))


def in_another_thread(action: Callable[[], object]) -> None:
    """Do what needs the database while the model's event loop waits: Django refuses it there."""

    def act() -> None:
        action()
        connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
