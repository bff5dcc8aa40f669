"""Waits, stops and restarts: a run may be left at any boundary and goes on from what was stored."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.engine.execution import ExecutionEnd
from flows.engine.history import Attempt, History
from flows.engine.planner import Wait, next_action
from flows.engine.plugins import Registry
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec
from tests.engine.builders import NOON, FakeClock, MemoryRecorder, make_flow, make_history, make_step, seconds
from tests.engine.executions import LENGTH, LONG, SHORT, audited, cut, execute, make_execution, outcomes, simulate


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
