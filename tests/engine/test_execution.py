"""The execution shell: what is done, in which order, and what is kept of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

from flows.engine.errors import ModelErrorCode
from flows.engine.execution import Progress
from flows.engine.history import Outcome, Severity
from flows.engine.openai_client import simulated_client
from flows.engine.planner import EndReason, EndStatus
from flows.engine.plugins import Registry
from flows.engine.providers import ModelReply
from flows.engine.simulated_model import Fault, FaultKind, Script, SimulatedModel
from flows.engine.spec import DEFAULT_RETRY_WINDOW, AuditSpec
from tests.engine.builders import (
    NOON,
    FakeClock,
    MemoryRecorder,
    make_attempt,
    make_flow,
    make_history,
    make_step,
    seconds,
)
from tests.engine.executions import LONG, SHORT, audited, execute, make_execution, outcomes, simulate


class TestRecords:
    FLOW = make_flow(audited(1), audited(2))
    APP = {"tool_1": [SHORT, LONG], "tool_2": [LONG]}

    async def test_an_attempts_end_and_the_next_start_are_one_record(self) -> None:
        recorder = MemoryRecorder()
        end = await execute(self.FLOW, simulate(**self.APP), recorder=recorder)
        assert recorder.describe() == [
            "1.1 begins",
            "1.1 failed, 1.2 begins",
            "1.2 passed, 2.1 begins",
            "2.1 passed, run succeeded",
        ]
        assert end.finish is not None and end.finish.status is EndStatus.SUCCEEDED
        assert recorder.attempts == [*end.history][1:]

    async def test_a_call_is_made_only_after_its_start_was_recorded(self) -> None:
        app = simulate(**self.APP)
        calls_before: list[int] = []

        class Recorder(MemoryRecorder):
            async def record(self, progress: Progress) -> None:
                await asyncio.sleep(0)
                calls_before.append(app.call_count)

        await execute(self.FLOW, app, recorder=Recorder())
        assert calls_before == [0, 1, 2, 3]

    async def test_a_start_says_what_it_works_on_and_exactly_what_is_sent(self) -> None:
        app, recorder = simulate(**self.APP), MemoryRecorder()
        await execute(self.FLOW, app, recorder=recorder)
        starts = [progress.begun for progress in recorder.records if progress.begun is not None]
        assert [start.input for start in starts] == [{"topic": "tea"}, {"topic": "tea"}, LONG]
        assert [start.request for start in starts] == [call.body for call in app.calls]

    async def test_an_attempt_keeps_its_request_input_times_and_what_the_provider_said(self) -> None:
        app = simulate(**self.APP)
        end = await execute(self.FLOW, app)
        attempt = end.history.attempts(1)[1]
        assert attempt.request == app.calls[1].body
        assert (attempt.input, attempt.output, attempt.raw_output) == ({"topic": "tea"}, LONG, None)
        assert (attempt.model, attempt.finish_reason) == ("gpt-4.1", "stop")
        assert attempt.response_id
        assert (attempt.started_at, attempt.ended_at) == (NOON, NOON)

    @pytest.mark.parametrize("failing", [0, 1, 2, 3])
    async def test_what_the_recorder_raises_comes_out_and_nothing_more_is_called(self, failing: int) -> None:
        app = simulate(**self.APP)

        class LostError(Exception):
            pass

        class Recorder(MemoryRecorder):
            async def record(self, progress: Progress) -> None:
                if len(self.records) == failing:
                    raise LostError
                await super().record(progress)

        with pytest.raises(LostError):
            await execute(self.FLOW, app, recorder=Recorder())
        assert app.call_count == failing


class TestSlowPlugins:
    """What is paid for is recorded before anything that may take long."""

    @pytest.fixture
    def recorder(self) -> MemoryRecorder:
        return MemoryRecorder()

    @pytest.fixture
    def seen(self) -> list[list[str]]:
        """What was recorded whenever a plug-in was called."""
        return []

    @pytest.fixture
    def registry(self, recorder: MemoryRecorder, seen: list[list[str]]) -> Registry:
        def note(value: Any) -> Any:
            seen.append(recorder.describe())
            return value

        registry = Registry()
        registry.function("pick")(lambda previous: {**note(previous)})
        registry.function("tidy")(note)
        registry.function("decide")(lambda issues: note(True))
        registry.audit("check")(lambda output: note(True))
        return registry

    @pytest.mark.parametrize("fields", [{"input_expression": "python:pick"}, {"input_sanitizer": "python:tidy"}])
    async def test_an_attempt_before_the_next_input_is_made(
        self, recorder: MemoryRecorder, registry: Registry, seen: list[list[str]], fields: dict[str, str]
    ) -> None:
        await execute(make_flow(make_step(1), make_step(2, **fields)), registry=registry, recorder=recorder)
        assert seen == [["1.1 begins", "1.1 passed"]]
        assert recorder.describe()[2:] == ["2.1 begins", "2.1 passed, run succeeded"]

    async def test_so_it_is_where_cel_needs_a_process_of_its_own(self, recorder: MemoryRecorder) -> None:
        text = "{'n': size(input.all.filter(a, input.all.exists(b, a == b + 1)))}"
        flow = make_flow(make_step(1), make_step(2, input_expression=text))
        await execute(flow, history=make_history(input={"all": list(range(1_500))}), recorder=recorder)
        assert recorder.describe() == ["1.1 begins", "1.1 passed", "2.1 begins", "2.1 passed, run succeeded"]

    @pytest.mark.parametrize(
        "fields",
        [
            {"output_sanitizer": "python:tidy"},
            {"pass_expression": "python:decide"},
            {"audits": (AuditSpec(name="Check", rule="python:check"),)},
        ],
        ids=["sanitizer", "pass rule", "audit"],
    )
    async def test_a_reply_before_it_is_judged(
        self, recorder: MemoryRecorder, registry: Registry, seen: list[list[str]], fields: dict[str, Any]
    ) -> None:
        app = simulate(tool_1=[LONG])
        flow = make_flow(make_step(1, **fields))
        whole = await execute(flow, app, registry=registry, recorder=recorder)
        assert seen == [["1.1 begins", "1.1 received"]]
        assert recorder.describe() == ["1.1 begins", "1.1 received", "1.1 passed, run succeeded"]

        # As if the worker had died in the plug-in.
        received = recorder.records[1].received
        resumed = await make_execution(flow, app, registry=registry).execute(make_history(), received)
        assert (resumed.history, resumed.finish) == (whole.history, whole.finish)
        assert app.call_count == 1

    async def test_a_reply_that_cannot_be_used_is_not_kept_apart(
        self, recorder: MemoryRecorder, registry: Registry, seen: list[list[str]]
    ) -> None:
        flow = make_flow(make_step(1, audits=(AuditSpec(name="Check", rule="python:check"),), max_retries=0))
        await execute(flow, simulate(tool_1=[Fault(FaultKind.REFUSAL)]), registry=registry, recorder=recorder)
        assert (recorder.describe(), seen) == (["1.1 begins", "1.1 invalid, run failed"], [])


class TestIdempotencyKeys:
    async def test_each_attempt_has_one_of_time_run_step_and_number(self) -> None:
        app = simulate(tool_1=[SHORT, LONG], tool_2=[LONG])
        await execute(make_flow(audited(1), audited(2)), app, make_history(run_id="r7"))
        keys = [re.fullmatch(r"[0-9a-f]{11}-r7-(\d-\d)", str(call.idempotency_key)) for call in app.calls]
        assert [key and key[1] for key in keys] == ["1-1", "1-2", "2-1"]

    async def test_a_later_run_with_the_same_id_has_others(self) -> None:
        """As after an older copy of a database was put back: the number of a run is given once more."""
        app, flow = simulate(tool_1=[LONG]), make_flow(audited(1))
        for start in (NOON, NOON + seconds(1)):
            await execute(flow, app, make_history(run_id="r7"), clock=FakeClock(start))
        first, other = (call.idempotency_key for call in app.calls)
        assert first != other


class ClientThatBreaks:
    """Answers one call, and raises ``error`` or gives ``body`` at the others."""

    def __init__(self, error: BaseException | None = None, *, body: Any = None) -> None:
        self._error = error
        self._body = body
        self._client = simulated_client(SimulatedModel())
        self._calls = 0

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> Any:
        self._calls += 1
        if self._calls > 1:
            if self._error is not None:
                raise self._error
            return ModelReply(self._body)
        return await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)

    async def close(self) -> None: ...


class TestErrors:
    @pytest.mark.parametrize(
        ("model", "options", "code", "words"),
        [
            ("gpt-4.1", {"api_keys": ["another"]}, ModelErrorCode.UNAUTHORIZED, "key"),
            ("no-such-model", {}, ModelErrorCode.NOT_FOUND, "no-such-model"),
        ],
    )
    async def test_what_trying_again_cannot_mend_ends_the_run_at_once_and_earlier_attempts_stay(
        self, model: str, options: dict[str, Any], code: ModelErrorCode, words: str
    ) -> None:
        flow = make_flow(audited(1), audited(2, model=model, stop_on_failure=False), audited(3))
        app, clock = SimulatedModel(script=Script({"tool_2": [LONG]}), **options), FakeClock()
        history = make_history(make_attempt(1, output=LONG))
        end = await execute(flow, app, history, clock=clock)
        assert end.finish is not None
        assert (end.finish.status, end.finish.reason) == (EndStatus.ERRORED, EndReason.CALL_REFUSED)
        assert end.finish.sentence.startswith("Step 2 “Step 2”, attempt 1: ")
        assert words in end.finish.sentence
        assert (outcomes(end.history, 1), outcomes(end.history, 2)) == (["passed"], ["errored"])
        error = end.history.attempts(2)[0].error
        assert error is not None and error.code is code
        assert (app.call_count, clock.slept_until) == (1, [])

    async def test_whatever_a_client_raises_is_an_errored_attempt_and_earlier_ones_stay(self) -> None:
        end = await execute(make_flow(make_step(1), make_step(2)), client=ClientThatBreaks(ValueError("no route")))
        assert end.finish is not None
        assert (end.finish.status, end.finish.reason, end.finish.blocking) == (
            EndStatus.ERRORED,
            EndReason.CALL_REFUSED,
            (2, 1),
        )
        assert (outcomes(end.history, 1), outcomes(end.history, 2)) == (["passed"], ["errored"])
        error = end.history.attempts(2)[0].error
        assert error is not None and error.code is ModelErrorCode.CLIENT_ERROR
        assert error.message == "The model client raised ValueError: no route"

    @pytest.mark.parametrize(
        ("error", "code"),
        [(TimeoutError(), ModelErrorCode.TIMEOUT), (ConnectionResetError(), ModelErrorCode.CONNECTION)],
    )
    async def test_a_call_that_timed_out_or_lost_its_connection_is_repeated(
        self, error: Exception, code: ModelErrorCode
    ) -> None:
        end = await execute(make_flow(make_step(1), make_step(2)), client=ClientThatBreaks(error), clock=FakeClock())
        assert end.finish is not None and end.finish.reason is EndReason.PROVIDER_ERROR
        codes = {attempt.error and attempt.error.code for attempt in end.history.attempts(2)}
        assert (len(end.history.attempts(2)) > 1, codes) == (True, {code})

    async def test_what_ends_the_program_is_no_error_of_a_call(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            await execute(make_flow(make_step(1), make_step(2)), client=ClientThatBreaks(KeyboardInterrupt()))

    async def test_a_provider_that_stays_away_is_asked_until_the_retry_window_ends(self) -> None:
        clock = FakeClock()
        end = await execute(make_flow(audited()), simulate(tool_1=[Fault(FaultKind.SERVER_ERROR)]), clock=clock)
        assert end.finish is not None
        assert (end.finish.status, end.finish.reason) == (EndStatus.ERRORED, EndReason.PROVIDER_ERROR)
        assert set(outcomes(end.history)) == {"errored"}
        assert (clock.now() - NOON).total_seconds() == DEFAULT_RETRY_WINDOW
        assert len(clock.slept_until) < 40

    async def test_a_failing_input_expression_ends_the_run_errored_and_names_step_and_field(self) -> None:
        recorder, app = MemoryRecorder(), simulate(tool_1=[LONG])
        flow = make_flow(audited(1), audited(2, input_expression="{'a': steps[1].output.missing}"))
        end = await execute(flow, app, recorder=recorder)
        assert end.finish is not None
        assert (end.finish.status, end.finish.reason) == (EndStatus.ERRORED, EndReason.EXPRESSION_ERROR)
        assert end.finish.sentence.startswith("Step 2 “Step 2”, input_expression: ")
        assert end.finish.blocking is None
        assert recorder.describe() == ["1.1 begins", "1.1 passed, run errored"]
        assert app.call_count == 1

    async def test_so_does_a_step_without_an_input_and_whatever_the_steps_say_about_failure(self) -> None:
        flow = make_flow(audited(1, max_retries=0, stop_on_failure=False), audited(2, stop_on_failure=False))
        end = await execute(flow, simulate(tool_1=[Fault(FaultKind.REFUSAL)]))
        assert end.finish is not None
        assert (end.finish.status, end.finish.reason) == (EndStatus.ERRORED, EndReason.MISSING_INPUT)
        assert "Step 2 “Step 2” has no input" in end.finish.sentence


class TestCancelling:
    async def test_in_the_middle_of_a_call_it_comes_out_and_nothing_more_is_recorded(self) -> None:
        entered = asyncio.Event()

        async def hang(_: float) -> None:
            entered.set()
            await asyncio.Event().wait()

        app, recorder = SimulatedModel(latency=1.0, sleep=hang), MemoryRecorder()
        task = asyncio.create_task(execute(make_flow(audited()), app, recorder=recorder))
        await asyncio.wait_for(entered.wait(), timeout=10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (recorder.describe(), app.call_count) == (["1.1 begins"], 1)


class TestOutputsThatCannotBeStored:
    async def test_they_are_cleaned_before_they_are_history_and_a_low_issue_says_where(self) -> None:
        app = simulate(tool_1=[{"text": "a\0b\ud800c"}])
        end = await execute(make_flow(make_step()), app)
        (attempt,) = end.history.attempts(1)
        assert (attempt.outcome, attempt.output) == (Outcome.PASSED, {"text": "a\ufffdb\ufffdc"})
        (issue,) = attempt.issues
        assert (issue.code, issue.severity) == ("cleaned_output", Severity.LOW)
        assert issue.description.startswith("/text: ")


class TestHistoryIsTheOnlyState:
    async def test_one_execution_runs_many_histories_at_once(self) -> None:
        execution = make_execution(make_flow(audited()), simulate(tool_1=[SHORT, LONG]))
        histories = [make_history(run_id=f"r{number}") for number in range(20)]
        ends = await asyncio.gather(*(execution.execute(history) for history in histories))
        assert {tuple(outcomes(end.history)) for end in ends} == {("failed", "passed")}
