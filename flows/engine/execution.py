"""The execution shell: performs what the planner says and hands every step of the way to a recorder.

All I/O goes through what the shell is given: model client, clock, recorder, registry of plug-ins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from flows.engine.clock import Clock, SystemClock
from flows.engine.errors import ExpressionError, ModelError
from flows.engine.evaluation import Evaluator, step_variables
from flows.engine.history import Attempt, AttemptError, History, Outcome
from flows.engine.issues import Issue, Severity
from flows.engine.json_value import clean_value
from flows.engine.judgement import clean_output, judge_output
from flows.engine.model_client import ModelClient
from flows.engine.planner import Action, Call, Compute, EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import Registry
from flows.engine.pricing import price_usage
from flows.engine.prompt import build_request
from flows.engine.reply import read_reply
from flows.engine.spec import FlowSpec
from flows.engine.step_input import MissingInputError, prepare_input
from flows.engine.usage import NO_USAGE, UNREPORTED_USAGE, TokenUsage

DEFAULT_CALL_TIMEOUT = 120.0
"""Seconds that one model call may take."""


@dataclass(frozen=True, slots=True)
class Start:
    """An attempt that begins: what it works on and exactly what is sent."""

    step: int
    number: int
    input: dict[str, Any]
    request: dict[str, Any] | None
    started_at: datetime
    plugins: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the plug-ins that made the input, by name."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened since the last record; to be stored as a whole or not at all."""

    ended: Attempt | None = None
    begun: Start | None = None
    finish: Finish | None = None


class Recorder(Protocol):
    """Keeps what happens. The next call starts only after ``record`` has returned."""

    async def record(self, progress: Progress) -> None: ...


class NullRecorder:
    """Keeps nothing: for flows that run in a script and end with it."""

    async def record(self, progress: Progress) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class ExecutionEnd:
    """Where an execution stopped: finished, or paused at the boundary of an attempt.

    ``resume_at`` is set on a pause that should last until a moment (a wait longer than the shell sits out).
    """

    history: History
    finish: Finish | None
    resume_at: datetime | None = None


Pricing = Callable[[str, TokenUsage], TokenUsage]
"""Given the model that answered and what it reports, the usage with its cost."""


def never() -> bool:
    """The answer of a shell that nobody asks to stop."""
    return False


@dataclass(frozen=True)
class Execution:
    """Runs one spec, which is frozen and resolved, from wherever a history stands to its end.

    ``call_timeout`` and ``longest_wait`` are in seconds; a wait longer than ``longest_wait`` pauses the execution
    instead. ``should_stop`` is asked at each boundary between attempts. ``price`` puts a cost to what a call used.
    """

    spec: FlowSpec
    client: ModelClient
    registry: Registry
    recorder: Recorder = field(default_factory=NullRecorder)
    clock: Clock = field(default_factory=SystemClock)
    call_timeout: float = DEFAULT_CALL_TIMEOUT
    longest_wait: float | None = None
    should_stop: Callable[[], bool] = never
    track_usage: bool = True
    price: Pricing = price_usage

    async def execute(self, history: History) -> ExecutionEnd:
        """Do what comes next until the run ends or pauses. Raises what the recorder raises."""
        ended: Attempt | None = None
        while True:
            action = next_action(self.spec, history)
            # Asked once: what ended must be stored if the answer is yes, and it may change at any time.
            stops = self.should_stop() and not isinstance(action, Finish)
            if ended is not None and (stops or isinstance(action, Wait)):
                # Nothing follows at once: what ended is stored on its own.
                await self.recorder.record(Progress(ended=ended))
                ended = None
            if isinstance(action, Wait):
                if stops or self._is_too_long(action):
                    return ExecutionEnd(history, None, action.until)
                await self.clock.sleep_until(action.until)
                if self.should_stop():
                    return ExecutionEnd(history, None, action.until)
                action = action.then
            elif stops:
                return ExecutionEnd(history, None)
            following = await self._prepare(action, history)
            if isinstance(following, Finish):
                await self.recorder.record(Progress(ended=ended, finish=following))
                return ExecutionEnd(history, following)
            await self.recorder.record(Progress(ended=ended, begun=following))
            ended = await self._perform(following, history)
            history = history.append(ended)

    def _is_too_long(self, wait: Wait) -> bool:
        if self.longest_wait is None:
            return False
        return (wait.until - self.clock.now()).total_seconds() > self.longest_wait

    async def _prepare(self, action: Action, history: History) -> Start | Finish:
        """The start of the attempt that an action means, or the end of the run if it can't start."""
        if isinstance(action, Finish):
            return action
        assert isinstance(action, (Call, Compute))
        try:
            step_input, plugins = await prepare_input(self.spec, history, action.step, self.registry)
        except ExpressionError as error:
            missing = isinstance(error, MissingInputError)
            reason = EndReason.MISSING_INPUT if missing else EndReason.EXPRESSION_ERROR
            # No attempt began, so none is to blame: the sentence names the step.
            return Finish(EndStatus.ERRORED, reason, str(error))
        request = build_request(self.spec, history, action.step, step_input) if isinstance(action, Call) else None
        return Start(action.step, action.number, step_input, request, self.clock.now(), plugins)

    async def _perform(self, start: Start, history: History) -> Attempt:
        if start.request is None:
            return await self._compute(start, history)
        try:
            reply = await self.client.complete(
                start.request,
                idempotency_key=f"{history.run_id}-{start.step}-{start.number}",
                timeout=self.call_timeout,
            )
        except ModelError as error:
            return self._end(
                start,
                outcome=Outcome.ERRORED,
                usage=UNREPORTED_USAGE if self.track_usage else NO_USAGE,
                error=AttemptError(
                    code=error.code,
                    message=clean_value(error.message).value,
                    status=error.status,
                    retry_after=error.retry_after,
                ),
            )
        step = self.spec.step(start.step)
        answer = read_reply(reply.body, tool_name=step.tool_name or "")
        meta: dict[str, Any] = {
            "usage": self._price(answer.model or start.request["model"], answer.usage),
            "model": answer.model,
            "response_id": answer.response_id,
            "finish_reason": answer.finish_reason,
        }
        if answer.arguments is None:
            return self._end(
                start, outcome=Outcome.INVALID, raw_output=clean_value(answer.raw).value, issues=answer.issues, **meta
            )
        return await self._judge(start, history, *clean_output(answer.arguments), **meta)

    async def _compute(self, start: Start, history: History) -> Attempt:
        step = self.spec.step(start.step)
        evaluator = Evaluator(step_variables(self.spec, history, start.step), self.registry)
        try:
            output, notes = clean_output(await evaluator.evaluate("compute", step.compute or ""))
        except (ExpressionError, ValueError) as error:
            issue = Issue(
                code="compute_error", severity=Severity.CRITICAL, description=f"The step could not be computed: {error}"
            )
            return self._end(start, outcome=Outcome.INVALID, issues=(issue,), plugins=evaluator.plugins)
        return await self._judge(start, history, output, notes, plugins=evaluator.plugins)

    async def _judge(
        self,
        start: Start,
        history: History,
        output: dict[str, Any],
        notes: tuple[Issue, ...],
        *,
        plugins: dict[str, str] | None = None,
        **meta: Any,
    ) -> Attempt:
        step = self.spec.step(start.step)
        judgement = await judge_output(step, output, step_variables(self.spec, history, start.step), self.registry)
        return self._end(
            start,
            outcome=judgement.outcome,
            output=judgement.output,
            raw_output=judgement.raw_output,
            issues=(*notes, *judgement.issues),
            failure_reason=judgement.failure_reason,
            plugins={**(plugins or {}), **judgement.plugins},
            **meta,
        )

    def _end(self, start: Start, *, plugins: dict[str, str] | None = None, **fields: Any) -> Attempt:
        return Attempt(
            step=start.step,
            number=start.number,
            input=start.input,
            request=start.request,
            plugins={**start.plugins, **(plugins or {})},
            started_at=start.started_at,
            ended_at=self.clock.now(),
            **fields,
        )

    def _price(self, model: str, usage: TokenUsage) -> TokenUsage:
        if not self.track_usage:
            return NO_USAGE
        return self.price(model, usage)
