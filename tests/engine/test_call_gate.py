"""The gate before each call, and ``before_call``: what waits has not begun, and every permit is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from flows.engine.call_gate import Permit, Throttled
from flows.engine.execution import Progress
from flows.engine.history import NO_USAGE, TokenUsage
from flows.engine.planner import EndReason, EndStatus, Finish
from tests.engine.builders import NOON, FakeClock, MemoryRecorder, make_flow, seconds
from tests.engine.executions import LONG, SHORT, audited, execute, outcomes, simulate

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

    async def test_a_record_that_fails_gives_it_back_unused(self) -> None:
        gate = Gate()

        class Recorder(MemoryRecorder):
            async def record(self, progress: Progress) -> None:
                raise OSError("disk full")

        app = simulate(**APP)
        with pytest.raises(OSError, match="disk full"):
            await execute(FLOW, app, gate=gate, recorder=Recorder())
        assert (app.call_count, gate.inside, gate.left) == (0, 0, [NO_USAGE])


class TestWaiting:
    async def test_what_ended_is_stored_first_and_what_waits_has_not_begun(self) -> None:
        recorder, seen = MemoryRecorder(), []
        clock = FakeClock()

        def wait() -> None:
            seen.append(recorder.describe())
            clock.advance(5)

        gate = Gate(None, None, during=wait)
        end = await execute(FLOW, simulate(**APP), gate=gate, recorder=recorder, clock=clock)
        assert seen == [[], ["1.1 begins", "1.1 failed"]]
        first, second = end.history.attempts(1)
        assert (first.started_at, second.started_at) == (NOON + seconds(5), NOON + seconds(10))
        assert end.finish is not None and end.finish.status is EndStatus.SUCCEEDED

    async def test_a_gate_that_stays_closed_pauses_the_run_with_what_it_waits_for(self) -> None:
        closed = Throttled(NOON + seconds(40), "Waiting for the tokens a minute of gpt-4.1.")
        recorder, app = MemoryRecorder(), simulate(**APP)
        end = await execute(FLOW, app, gate=Gate(closed), recorder=recorder)
        assert (end.finish, end.resume_at, end.waits_for) == (None, closed.until, closed.sentence)
        assert (app.call_count, recorder.records) == (0, [])
        end = await execute(FLOW, app, end.history)
        assert end.finish is not None and end.finish.status is EndStatus.SUCCEEDED

    async def test_a_run_that_was_told_to_stop_meanwhile_gives_its_permit_back_unused(self) -> None:
        told: list[bool] = []
        gate, app, recorder = Gate(None, during=lambda: told.append(True)), simulate(**APP), MemoryRecorder()
        end = await execute(FLOW, app, gate=gate, recorder=recorder, should_stop=lambda: bool(told))
        assert (end.finish, end.resume_at, app.call_count) == (None, None, 0)
        assert (gate.inside, gate.left, recorder.records) == (0, [NO_USAGE], [])

    async def test_so_does_one_whose_time_is_up_or_whose_call_is_not_wanted_any_more(self) -> None:
        clock = FakeClock()
        gate = Gate(None, during=lambda: clock.advance(60))
        end = await execute(FLOW, gate=gate, clock=clock, deadline=NOON + seconds(30))
        assert end.finish is not None and end.finish.reason is EndReason.DEADLINE_EXCEEDED
        told: list[bool] = []
        other = Gate(None, during=lambda: told.append(True))
        end = await execute(FLOW, gate=other, before_call=lambda: USED_UP if told else None)
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
