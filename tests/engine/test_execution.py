"""The execution shell: what is done, in which order, what is kept of it, and what it was billed for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

from flows.engine.errors import ModelErrorCode
from flows.engine.execution import Progress
from flows.engine.history import TokenUsage
from flows.engine.openai_client import simulated_client
from flows.engine.planner import EndReason, EndStatus
from flows.engine.plugins import Registry
from flows.engine.simulated_model import SimulatedModel
from flows.engine.spec import AuditSpec
from tests.engine.builders import NOON, FakeClock, MemoryRecorder, make_flow, make_history, make_step, seconds
from tests.engine.executions import LONG, SHORT, audited, execute, make_execution, outcomes, simulate


class TestRecords:
    FLOW = make_flow(audited(1), audited(2))
    APP = {"tool_1": [SHORT, LONG], "tool_2": [LONG]}

    async def test_attempts_keep_exactly_what_was_sent_only_after_their_start_was_recorded_and_what_came(self) -> None:
        app = simulate(**self.APP)
        calls_before: list[int] = []

        class Recorder(MemoryRecorder):
            async def record(self, progress: Progress) -> None:
                await asyncio.sleep(0)
                calls_before.append(app.call_count)
                await super().record(progress)

        recorder = Recorder()
        end = await execute(self.FLOW, app, recorder=recorder)
        assert calls_before == [0, 1, 2, 3]
        starts = [progress.begun for progress in recorder.records if progress.begun is not None]
        assert [start.input for start in starts] == [{"topic": "tea"}, {"topic": "tea"}, LONG]
        assert [start.request for start in starts] == [call.body for call in app.calls]
        attempt = end.history.attempts(1)[1]
        assert attempt.request == app.calls[1].body
        assert (attempt.input, attempt.output, attempt.raw_output) == ({"topic": "tea"}, LONG, None)
        assert (attempt.model, attempt.finish_reason, bool(attempt.response_id)) == ("gpt-4.1", "stop", True)
        assert (attempt.started_at, attempt.ended_at) == (NOON, NOON)


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


class TestIdempotencyKeys:
    async def test_each_attempt_has_one_of_time_run_step_and_number(self) -> None:
        app = simulate(tool_1=[SHORT, LONG], tool_2=[LONG])
        await execute(make_flow(audited(1), audited(2)), app, make_history(run_id="r7"))
        keys = [re.fullmatch(r"[0-9a-f]{11}-r7-(\d-\d)", str(call.idempotency_key)) for call in app.calls]
        assert [key and key[1] for key in keys] == ["1-1", "1-2", "2-1"]

    async def test_a_later_run_with_the_same_id_has_others(self) -> None:
        """As after an older copy of a database was put back: the number of a run is given again."""
        app, flow = simulate(tool_1=[LONG]), make_flow(audited(1))
        for start in (NOON, NOON + seconds(1)):
            await execute(flow, app, make_history(run_id="r7"), clock=FakeClock(start))
        first, other = (call.idempotency_key for call in app.calls)
        assert first != other


class ClientThatBreaks:
    """Answers one call, and raises ``error`` at the others."""

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self._client = simulated_client(SimulatedModel())
        self._calls = 0

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> Any:
        self._calls += 1
        if self._calls > 1:
            raise self._error
        return await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)

    async def close(self) -> None: ...


class TestErrors:
    FLOW = make_flow(make_step(1), make_step(2))

    @pytest.mark.parametrize(
        ("error", "reason", "code"),
        [
            (ValueError("no route"), EndReason.CALL_REFUSED, ModelErrorCode.CLIENT_ERROR),
            (TimeoutError(), EndReason.PROVIDER_ERROR, ModelErrorCode.TIMEOUT),
            (ConnectionResetError(), EndReason.PROVIDER_ERROR, ModelErrorCode.CONNECTION),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
    )
    async def test_what_a_client_raises_is_an_errored_attempt_repeated_if_that_may_help_and_earlier_ones_stay(
        self, error: Exception, reason: EndReason, code: ModelErrorCode
    ) -> None:
        end = await execute(self.FLOW, client=ClientThatBreaks(error))
        assert end.finish is not None
        assert (end.finish.status, end.finish.reason) == (EndStatus.ERRORED, reason)
        errors = [attempt.error for attempt in end.history.attempts(2)]
        assert (outcomes(end.history, 1), {error and error.code for error in errors}) == (["passed"], {code})
        assert (len(errors) > 1) == (reason is EndReason.PROVIDER_ERROR)

    @pytest.mark.parametrize(
        ("field", "text"),
        [("input_expression", "{'a': steps[1].output.missing}"), ("system_message", "{previous.missing}")],
    )
    async def test_a_field_that_can_not_be_made_ends_the_run_errored_and_is_named(self, field: str, text: str) -> None:
        recorder, app = MemoryRecorder(), simulate(tool_1=[LONG])
        flow = make_flow(audited(1), audited(2, stop_on_failure=False, **{field: text}))
        end = await execute(flow, app, recorder=recorder)
        assert end.finish is not None
        assert (end.finish.reason, end.finish.blocking) == (EndReason.EXPRESSION_ERROR, None)
        assert end.finish.sentence.startswith(f"Step 2 “Step 2”, {field}: ")
        assert recorder.describe() == ["1.1 begins", "1.1 passed, run errored"]
        assert app.call_count == 1


class TestUsage:
    async def test_a_price_list_that_breaks_loses_no_attempt(self, caplog: pytest.LogCaptureFixture) -> None:
        def price(model: str, usage: TokenUsage, **_: Any) -> TokenUsage:
            raise ZeroDivisionError("no such unit")

        end = await execute(make_flow(), simulate(tool_1=[LONG]), price=price)
        (attempt,) = end.history.attempts(1)
        assert (attempt.passed, attempt.usage.cost, attempt.usage.unpriced) == (True, None, 1)
        assert "no such unit" in caplog.text
