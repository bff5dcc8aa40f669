"""The gate before each call, waits, stops and restarts: a run may be left at any boundary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.call_gate import Permit, Throttled
from flows.engine.execution import ExecutionEnd, Progress
from flows.engine.history import NO_USAGE, Attempt, History, TokenUsage
from flows.engine.planner import EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import Registry
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec
from tests.engine.builders import NOON, FakeClock, MemoryRecorder, make_flow, make_history, make_step, seconds
from tests.engine.executions import LENGTH, LONG, SHORT, audited, cut, execute, make_execution, outcomes, simulate

FLOW = make_flow(audited(1), audited(2))
APP: dict[str, list[Any]] = {"tool_1": [SHORT, LONG], "tool_2": [LONG]}
USED_UP = Finish(EndStatus.ERRORED, EndReason.BUDGET_EXCEEDED, "The flow's budget is used up.")


class Gate:
    """A gate that is open unless ``waits`` says what those who wait get; it counts who is inside."""

    def __init__(self, *waits: Throttled | None, during: Callable[[], None] = lambda: None) -> None:
        self._waits = iter(waits)
        self._during = during
        self.requests: list[Mapping[str, Any]] = []
        self.inside = 0
        self.left: list[TokenUsage | None] = []

    def try_enter(self, request: Mapping[str, Any]) -> Permit | None:
        self.requests.append(request)
        self._wait: Any = next(self._waits, self)
        return self._let_in() if self._wait is self else None

    async def enter(self, request: Mapping[str, Any]) -> Permit | Throttled:
        await asyncio.sleep(0)
        self._during()
        return self._wait or self._let_in()

    def _let_in(self) -> Permit:
        self.inside += 1
        return self

    def release(self, usage: TokenUsage | None) -> None:
        self.inside -= 1
        self.left.append(usage)


class TestPermits:
    async def test_every_call_has_one_and_gives_it_back_with_what_it_used(self) -> None:
        gate = Gate()
        app, inside = simulate(**APP), []

        class Recorder(MemoryRecorder):
            async def record(self, progress: Progress) -> None:
                inside.append(gate.inside)

        end = await execute(FLOW, app, gate=gate, recorder=Recorder())
        assert gate.requests == [call.body for call in app.calls]
        assert gate.left == [attempt.usage for attempt in list(end.history)[1:]]
        # Held from before the record of the start, so that no attempt begins that may not call.
        assert inside == [1, 1, 1, 0]

    async def test_a_run_that_is_cancelled_in_mid_call_gives_it_back_and_records_nothing(self) -> None:
        gate, recorder, called = Gate(), MemoryRecorder(), asyncio.Event()

        class Client:
            async def complete(self, *args: Any, **options: Any) -> Any:
                called.set()
                await asyncio.Event().wait()

            async def close(self) -> None: ...

        task = asyncio.create_task(execute(FLOW, client=Client(), gate=gate, recorder=recorder))
        await asyncio.wait_for(called.wait(), 10)
        assert gate.inside == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (gate.inside, gate.left, recorder.describe()) == (0, [None], ["1.1 begins"])


class TestWaiting:
    async def test_a_gate_that_stays_closed_pauses_the_run_with_what_it_waits_for(self) -> None:
        closed = Throttled(NOON + seconds(40), "Waiting for the tokens a minute of gpt-4.1.")
        recorder, app = MemoryRecorder(), simulate(**APP)
        end = await execute(FLOW, app, gate=Gate(closed), recorder=recorder)
        assert (end.finish, end.resume_at, end.waits_for) == (None, closed.until, closed.sentence)
        assert (app.call_count, recorder.records) == (0, [])
        end = await execute(FLOW, app, end.history)
        assert end.finish is not None and end.finish.status is EndStatus.SUCCEEDED

    async def test_a_run_that_has_to_stop_meanwhile_gives_its_permit_back_unused(self) -> None:
        stopped: list[bool] = []
        gate, app, recorder = Gate(None, during=lambda: stopped.append(True)), simulate(**APP), MemoryRecorder()
        end = await execute(FLOW, app, gate=gate, recorder=recorder, should_stop=lambda: bool(stopped))
        assert (end.finish, end.resume_at, app.call_count) == (None, None, 0)
        assert (gate.inside, gate.left, recorder.records) == (0, [NO_USAGE], [])

    async def test_so_does_one_whose_time_is_up_or_whose_call_is_not_wanted_any_more(self) -> None:
        clock = FakeClock()
        gate = Gate(None, during=lambda: clock.advance(60))
        end = await execute(FLOW, gate=gate, clock=clock, deadline=NOON + seconds(30))
        assert end.finish is not None and end.finish.reason is EndReason.DEADLINE_EXCEEDED
        waited: list[bool] = []
        other = Gate(None, during=lambda: waited.append(True))
        end = await execute(FLOW, gate=other, before_call=lambda: USED_UP if waited else None)
        assert end.finish == USED_UP
        assert gate.left == other.left == [NO_USAGE]


class TestBeforeCall:
    async def test_it_ends_the_run_before_the_next_call_and_keeps_what_was_done(self) -> None:
        app, recorder, gate = simulate(**APP), MemoryRecorder(), Gate()
        end = await execute(
            FLOW, app, recorder=recorder, gate=gate, before_call=lambda: USED_UP if app.call_count else None
        )
        assert (end.finish, app.call_count, outcomes(end.history)) == (USED_UP, 1, ["failed"])
        assert recorder.describe() == ["1.1 begins", "1.1 failed, run errored"]
        assert len(gate.requests) == 1


class TestWaits:
    FLOW = make_flow(audited(1))
    BUSY = Fault(FaultKind.RATE_LIMITED, retry_after=7)

    async def test_a_transport_error_is_followed_by_sleep_until_the_moment_the_planner_names(self) -> None:
        clock, recorder = FakeClock(), MemoryRecorder()
        end = await execute(self.FLOW, simulate(tool_1=[self.BUSY, LONG]), clock=clock, recorder=recorder)
        wait = next_action(self.FLOW, cut(end.history, 1))
        assert isinstance(wait, Wait)
        assert clock.slept_until == [wait.until]
        assert NOON + seconds(7) <= wait.until <= NOON + seconds(7.7)
        assert end.history.attempts(1)[1].started_at == wait.until

    async def test_a_wait_longer_than_the_longest_pauses_with_the_moment_to_resume_at(self) -> None:
        clock, recorder = FakeClock(), MemoryRecorder()
        app = simulate(tool_1=[self.BUSY, LONG])
        end = await execute(self.FLOW, app, clock=clock, recorder=recorder, max_wait=6.9)
        wait = next_action(self.FLOW, end.history)
        assert isinstance(wait, Wait)
        assert (end.finish, end.resume_at, clock.slept_until) == (None, wait.until, [])
        assert end.waits_for == wait.sentence
        assert recorder.describe() == ["1.1 begins", "1.1 errored"]
        # When the moment has come, the run goes on from what was stored.
        end = await execute(self.FLOW, app, end.history, clock=FakeClock(wait.until), max_wait=6.9)
        assert outcomes(end.history) == ["errored", "passed"]


class TestStopping:
    FLOW = make_flow(audited(1), audited(2))

    @pytest.mark.parametrize("sleeps", [0, 1], ids=["before", "during"])
    async def test_a_stop_beside_a_wait_hands_back_with_the_moment_to_resume_at(self, sleeps: int) -> None:
        app, clock = simulate(tool_1=[Fault(FaultKind.SERVER_ERROR), LONG]), FakeClock()
        stop = lambda: (app.call_count, len(clock.slept_until)) == (1, sleeps)  # noqa: E731  # read where it is used
        end = await execute(self.FLOW, app, clock=clock, should_stop=stop)
        wait = next_action(self.FLOW, end.history)
        assert isinstance(wait, Wait)
        assert (end.finish, end.resume_at, clock.slept_until) == (None, wait.until, [wait.until] * sleeps)

    @given(answers=st.lists(st.booleans(), max_size=12))
    async def test_whenever_the_answer_changes_no_ended_attempt_is_lost_and_the_end_is_the_same(
        self, answers: list[bool]
    ) -> None:
        script: dict[str, list[Any]] = {"tool_1": [Fault(FaultKind.SERVER_ERROR), SHORT, LONG], "tool_2": [LONG]}
        whole = await execute(self.FLOW, simulate(**script))
        app, recorder, clock = simulate(**script), MemoryRecorder(), FakeClock()
        sequence = iter(answers)
        history, end = make_history(), None
        while end is None or end.finish is None:
            execution = make_execution(
                self.FLOW, app, recorder=recorder, clock=clock, should_stop=lambda: next(sequence, False)
            )
            end = await execution.execute(history)
            history = end.history
            assert recorder.attempts == [*history][1:]
        assert (end.history, end.finish) == (whole.history, whole.finish)


def store(history: History) -> History:
    """A history that was stored and loaded."""
    rows = [attempt.model_dump_json() for attempt in history]
    return History.from_attempts(map(Attempt.model_validate_json, rows), run_id=history.run_id)


class TestResuming:
    @staticmethod
    def make_registry() -> Registry:
        registry = Registry()

        @registry.function("count")
        async def count(steps: Any, previous: Any) -> Any:
            return {"words": len(previous["text"].split()), "issues": len(steps[1]["issues"])}

        @registry.audit("dull")
        def find_dull(output: Any) -> Any:
            output["text"] = output["text"].upper()
            if "TEA TEA" in output["text"]:
                yield {"description": "Dull.", "severity": "medium", "repeated": "tea"}

        return registry

    FLOW = make_flow(
        make_step(1, audits=(LENGTH, AuditSpec(name="Dull", rule="python:dull")), output_sanitizer="value"),
        make_step(2, compute="python:count", audits=(AuditSpec(name="Words", rule="output.words > 2"),)),
        make_step(3, include_results=[1], input_expression="{'words': steps[2].output.words}", audits=(LENGTH,)),
        make_step(4, max_retries=1, stop_on_failure=False, audits=(LENGTH,)),
        make_step(5),
    )
    SCRIPT: dict[str, list[Any]] = {
        "tool_1": [
            Fault(FaultKind.RATE_LIMITED, retry_after=7),
            SHORT,
            Fault(FaultKind.MALFORMED),
            {"text": "Tea tea tea."},
        ],
        "tool_3": [Fault(FaultKind.SERVER_ERROR), Fault(FaultKind.RESET), LONG],
        "tool_4": [SHORT],
        "tool_5": [{"text": "a\0b\ud800"}],
    }

    async def run(self, history: History, clock: FakeClock | None = None, app: Any = None) -> ExecutionEnd:
        app = app or simulate(**self.SCRIPT)
        return await execute(self.FLOW, app, history, registry=self.make_registry(), clock=clock or FakeClock())

    async def test_from_any_point_of_a_stored_history_the_end_is_the_same(self) -> None:
        whole = await self.run(make_history())
        attempts = [*whole.history]
        words = "1 errored, 1 failed, 1 invalid, 1 passed, 2 passed, 3 errored, 3 errored, 3 passed, 4 failed, 4 failed"
        assert ", ".join(f"{a.step} {a.outcome.value}" for a in attempts[1:]) == f"{words}, 5 passed"
        for count in range(len(attempts)):
            stored = store(cut(whole.history, count))
            app, clock = simulate(**self.SCRIPT), FakeClock(attempts[count].ended_at or NOON)
            resumed = await self.run(stored, clock, app)
            assert resumed.history == whole.history, f"resumed after {count} attempts"
            assert resumed.finish == whole.finish
            # No stored attempt is called again; the one of step 2 is none of a model.
            assert app.call_count == sum(attempt.step != 2 for attempt in attempts[count + 1 :])
