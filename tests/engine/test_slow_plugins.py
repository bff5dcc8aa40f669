"""Plug-ins that take too long or never return: their call is given up, and nothing and nobody waits for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.engine import plugin_calls
from flows.engine.errors import ExpressionError
from flows.engine.plugins import PythonFunction, Registry
from flows.engine.spec import AuditSpec
from tests.engine.builders import make_flow, make_step
from tests.engine.executions import LONG, execute, simulate

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stuck() -> Iterator[Callable[..., Any]]:
    """A function that does not return before the test has ended."""
    end = threading.Event()
    yield end.wait
    end.set()


async def call(name: str, function: Callable[[], Any], *, timeout: float = 60) -> Any:
    return await plugin_calls.call_function(name, PythonFunction(name, function), {}, timeout=timeout)


async def run_audited(audit: Callable[..., Any], **options: Any) -> Any:
    """The only attempt of a run whose output is held against a Python audit, which may take 0.05 seconds."""
    registry = Registry()
    registry.audit("check")(audit)
    step = make_step(1, audits=(AuditSpec(name="Check", rule="python:check"),), max_retries=0)
    end = await execute(make_flow(step), simulate(tool_1=[LONG]), registry=registry, plugin_timeout=0.05, **options)
    (attempt,) = end.history.attempts(1)
    return attempt


async def wait(output: Any) -> Any:
    await asyncio.Event().wait()


async def generate(output: Any) -> Any:
    yield "One."
    await asyncio.Event().wait()


def give(output: Any) -> Any:
    return wait(output)


class TestAudits:
    @pytest.mark.parametrize("kind", [None, wait, generate, give], ids=["thread", "coroutine", "generator", "given"])
    async def test_one_that_never_returns_is_an_audit_error_and_the_output_is_kept(self, kind: Any, stuck: Any) -> None:
        attempt = await run_audited(kind or (lambda output: stuck()))
        (issue,) = [issue for issue in attempt.issues if issue.code == "audit_error"]
        assert issue.description.endswith("“python:check” did not return within 0.05 seconds.")
        assert (attempt.outcome.value, attempt.output) == ("failed", LONG)


class TestThreads:
    @pytest.fixture(autouse=True)
    def one_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plugin_calls, "MAX_THREADS", 1)

    async def test_a_cancelled_run_leaves_its_stuck_call_behind(self, stuck: Any) -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def begin() -> None:
            loop.call_soon_threadsafe(begun.set)
            stuck()

        task = asyncio.ensure_future(call("slow", begin))
        await asyncio.wait_for(begun.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await call("quick", lambda: 7) == 7

    async def test_a_function_that_gets_stuck_again_and_again_is_not_called_any_more_until_it_returns(self) -> None:
        end = threading.Event()
        for _ in range(plugin_calls.MAX_ABANDONED):
            with pytest.raises(ExpressionError, match="did not return"):
                await call("often", end.wait, timeout=0.001)
        with pytest.raises(ExpressionError, match="“often” is not called: 8 earlier calls of it on this worker"):
            await call("often", end.wait)
        assert await call("other", lambda: 7) == 7
        end.set()
        async with asyncio.timeout(30):
            for thread in [one for one in threading.enumerate() if one.name == "call"]:
                await asyncio.to_thread(thread.join)
        assert await call("often", end.wait)


EXITS = """
import asyncio, os, sys, threading
from flows.engine import AuditSpec, FlowSpec, Registry, StepSpec, run_flow_sync
from flows.engine.openai_client import simulated_client
from flows.engine.simulated_model import SimulatedModel

registry = Registry()
registry.function("quick")(lambda input: {"text": "Tea."})
registry.audit("stuck")(lambda output: threading.Event().wait())

def run(**audits):
    step = StepSpec(name="Give", compute="python:quick", max_retries=0, **audits)
    flow = FlowSpec(name="example", steps=[step])
    client = simulated_client(SimulatedModel())
    return run_flow_sync(flow, {}, client=client, registry=registry, plugin_timeout=0.05).status.value

print(run(), run(audits=[AuditSpec(name="Stuck", rule="python:stuck")]), run(), flush=True)
if os.fork() == 0:
    print(run(), flush=True)
else:
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_a_process_with_a_stuck_plug_in_forks_and_exits_like_any_other() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", EXITS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.split() == ["succeeded", "failed", "succeeded", "succeeded", "0"]
