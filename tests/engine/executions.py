"""Executions with all parts in memory and a clock moved by sleeping or by hand; and requests as they send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.engine.execution import Execution, ExecutionEnd
from flows.engine.history import History
from flows.engine.openai_client import simulated_client
from flows.engine.plugins import Registry
from flows.engine.pricing import leave_free
from flows.engine.providers import ModelClient
from flows.engine.simulated_model import Script, SimulatedModel
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from tests.engine.builders import FakeClock, MemoryRecorder, closed, make_history, make_step

SHORT, LONG = {"text": "Tea."}, {"text": "Tea is a drink."}
LENGTH = AuditSpec(name="Length", rule="size(output.text) > 5", message="'Write more than ' + output.text")


def audited(number: int = 1, **fields: Any) -> StepSpec:
    """A step that passes on ``LONG`` and fails on ``SHORT``."""
    return make_step(number, audits=(LENGTH,), **fields)


def simulate(**replies: list[Any]) -> SimulatedModel:
    """A model whose tools answer with these replies, one for each attempt."""
    return SimulatedModel(script=Script(replies))


def make_execution(flow: FlowSpec, app: Any = None, **options: Any) -> Execution:
    """An execution whose parts are all in memory; nothing is priced unless ``price`` is given."""
    parts: dict[str, Any] = {"registry": Registry(), "recorder": MemoryRecorder(), "clock": FakeClock()}
    client: ModelClient = options.pop("client", None) or simulated_client(app if app is not None else SimulatedModel())
    return Execution(spec=flow, client=client, **{"price": leave_free, **parts, **options})


async def execute(flow: FlowSpec, app: Any = None, history: History | None = None, **options: Any) -> ExecutionEnd:
    return await make_execution(flow, app, **options).execute(history or make_history())


def outcomes(history: History, step: int = 1) -> list[str]:
    return [attempt.outcome.value for attempt in history.attempts(step)]


def cut(history: History, count: int) -> History:
    """The first ``count`` attempts of a history, not counting the input."""
    return History.from_attempts(list(history)[: count + 1], run_id=history.run_id)


COLOR = closed(color={"type": "string"})


def make_request(schema: Mapping[str, Any] = COLOR, *, system: str = "Choose well.", **changes: Any) -> dict[str, Any]:
    """A request for a forced call of the tool `make`; a change to None leaves the field out."""
    function = {"name": "make", "description": "Make it.", "strict": True, "parameters": schema}
    request = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": '{"brand":"Kestrel"}'}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "make"}},
        "parallel_tool_calls": False,
    }
    return {name: value for name, value in {**request, **changes}.items() if value is not None}
