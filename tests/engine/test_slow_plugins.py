"""Plug-ins that take too long or never return: their call is given up, and nothing and nobody waits for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from flows.engine.errors import ExpressionError
from flows.engine.json_values import clean_value
from flows.engine.plugin_calls import MAX_ABANDONED, DaemonThreads, copy_json
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec
from tests.engine.audit_parts import assert_broken, run_python
from tests.engine.builders import make_flow, make_step
from tests.engine.executions import LONG, execute, outcomes, simulate

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stuck() -> Iterator[Callable[..., Any]]:
    """A function that does not return before the test has ended."""
    end = threading.Event()
    yield end.wait
    end.set()


async def run_audited(audit: Callable[..., Any], **options: Any) -> Any:
    """The only attempt of a run whose output is held against a Python audit, which may take 0.05 seconds."""
    registry = Registry()
    registry.audit("check")(audit)
    step = make_step(1, audits=(AuditSpec(name="Check", rule="python:check"),), max_retries=0)
    end = await execute(make_flow(step), simulate(tool_1=[LONG]), registry=registry, plugin_timeout=0.05, **options)
    (attempt,) = end.history.attempts(1)
    return attempt


class TestAudits:
    async def test_one_that_never_returns_is_an_audit_error_and_the_output_is_kept(self, stuck: Any) -> None:
        attempt = await run_audited(lambda output: stuck())
        (issue,) = attempt.issues
        assert issue.code == "audit_error"
        assert issue.description == (
            "The audit “Check” could not be evaluated: “python:check” did not return within 0.05 seconds."
        )
        assert (attempt.outcome.value, attempt.output) == ("failed", LONG)

    @pytest.mark.parametrize("kind", ["coroutine", "generator", "given by a plain function"])
    async def test_neither_does_one_that_waits_for_ever(self, kind: str) -> None:
        async def wait(output: Any) -> Any:
            await asyncio.Event().wait()

        async def generate(output: Any) -> Any:
            yield "One."
            await asyncio.Event().wait()

        def give(output: Any) -> Any:
            return wait(output)

        kinds = {"coroutine": wait, "generator": generate, "given by a plain function": give}
        attempt = await run_audited(kinds[kind])
        assert "did not return within 0.05 seconds" in attempt.issues[0].description

    async def test_a_timeout_of_its_own_is_told_as_its_own(self) -> None:
        async def check(output: Any) -> None:
            raise TimeoutError("directory")

        assert "raised TimeoutError: directory" in (await run_audited(check)).issues[0].description

    async def test_a_function_that_never_returns_ends_the_run_with_a_sentence(self, stuck: Any) -> None:
        registry = Registry()
        registry.function("give")(stuck)
        step = make_step(1, input_expression="python:give")
        end = await execute(make_flow(step), registry=registry, plugin_timeout=0.05)
        assert end.finish is not None
        assert end.finish.sentence == (
            "Step 1 “Step 1”, input_expression: “python:give” did not return within 0.05 seconds."
        )

    async def test_the_run_goes_on_with_its_next_attempt(self, stuck: Any) -> None:
        registry, calls = Registry(), count(1)
        registry.audit("check")(lambda output: stuck() if next(calls) == 1 else True)
        step = make_step(1, audits=(AuditSpec(name="Check", rule="python:check"),))
        end = await execute(make_flow(step), simulate(tool_1=[LONG]), registry=registry, plugin_timeout=0.05)
        assert outcomes(end.history) == ["failed", "passed"]

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()], ids=repr)
    async def test_one_that_raises_what_means_something_to_the_worker_does_not_reach_it(
        self, error: BaseException
    ) -> None:
        def check(output: Any) -> None:
            raise error

        assert_broken(await run_python(check), f"raised {type(error).__name__}")


class TestThreads:
    async def test_a_stuck_call_takes_no_place_from_others(self, stuck: Any) -> None:
        threads = DaemonThreads(max_threads=1)
        for _ in range(3):
            with pytest.raises(ExpressionError, match="“slow” did not return within"):
                await threads.run("slow", stuck, timeout=0.01)
            assert await threads.run("quick", lambda: 7, timeout=60) == 7
        assert threads.abandoned == 3

    async def test_what_waits_for_a_thread_has_its_time_still_before_it(self) -> None:
        threads, go = DaemonThreads(max_threads=1), threading.Event()
        first = asyncio.ensure_future(threads.run("first", go.wait, timeout=60))
        second = asyncio.ensure_future(threads.run("second", lambda: 2, timeout=0.01))
        asyncio.get_running_loop().call_later(0.05, go.set)
        assert await asyncio.gather(first, second) == [True, 2]

    async def test_a_call_that_nobody_waits_for_is_not_made(self) -> None:
        threads, go, made = DaemonThreads(max_threads=1), threading.Event(), []
        first = asyncio.ensure_future(threads.run("first", go.wait, timeout=60))
        second = asyncio.ensure_future(threads.run("second", lambda: made.append(2), timeout=60))
        third = asyncio.ensure_future(threads.run("third", lambda: 3, timeout=60))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        go.set()
        assert await third == 3
        assert (await first, second.cancelled(), made) == (True, True, [])
        assert threads.abandoned == 0

    async def test_a_cancelled_run_leaves_its_stuck_call_behind(self, stuck: Any) -> None:
        threads, begun = DaemonThreads(max_threads=1), asyncio.Event()
        loop = asyncio.get_running_loop()

        def call() -> None:
            loop.call_soon_threadsafe(begun.set)
            stuck()

        task = asyncio.ensure_future(threads.run("slow", call, timeout=60))
        await asyncio.wait_for(begun.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await threads.run("quick", lambda: 7, timeout=60) == 7

    async def test_a_function_that_gets_stuck_again_and_again_is_not_called_any_more_until_it_returns(self) -> None:
        threads, end = DaemonThreads(), threading.Event()
        for _ in range(MAX_ABANDONED):
            with pytest.raises(ExpressionError, match="did not return"):
                await threads.run("slow", end.wait, timeout=0.001)
        with pytest.raises(ExpressionError, match="“slow” is not called: 8 earlier calls of it on this worker"):
            await threads.run("slow", end.wait, timeout=60)
        assert await threads.run("other", lambda: 7, timeout=60) == 7
        end.set()
        async with asyncio.timeout(30):
            while threads.abandoned:
                await threads.run("other", lambda: 7, timeout=60)
        assert await threads.run("slow", end.wait, timeout=60)

    async def test_calls_see_the_context_of_their_run(self) -> None:
        run: ContextVar[int] = ContextVar("run")
        run.set(42)
        assert await DaemonThreads().run("get", run.get, timeout=60) == 42


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


class TestWhatNeverEnds:
    @staticmethod
    def nest(kind: type[Any]) -> Any:
        """A value of few objects that stands for 2 to the power of 60."""
        value: Any = "tea"
        for _ in range(60):
            value = kind([value, value])
        return value

    async def test_an_endless_generator_is_an_audit_error(self) -> None:
        assert_broken(await run_python(lambda output: count()), "it gave more than 1,000,000 elements")

    async def test_so_is_a_finding_that_refers_to_its_parts_many_times_over(self) -> None:
        assert_broken(await run_python(lambda output: {"found": self.nest(list)}), "more than 1,000,000 parts")
        assert_broken(await run_python(lambda output: {"found": self.nest(tuple)}), "more than 1,000,000 values")

    def test_parts_that_stand_in_several_places_are_copied_for_each(self) -> None:
        part = {"text": "tea"}
        copy = copy_json([part, {"again": part}])
        assert copy == [part, {"again": part}]
        copy[0]["text"] = "coffee"
        assert (copy[1], part) == ({"again": {"text": "tea"}}, {"text": "tea"})

    def test_as_many_values_as_are_allowed_are_taken(self) -> None:
        value = [[0] * 1_000 for _ in range(998)]
        assert copy_json(value) == value
        assert clean_value((value,)).value == [value]
        with pytest.raises(ValueError, match="more than 1,000,000"):
            copy_json([*value, *value])
