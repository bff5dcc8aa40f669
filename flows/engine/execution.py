"""The execution shell: performs what the planner says and hands every step of the way to a recorder.

All I/O goes through what the shell is given: model client, clock, recorder, registry of plug-ins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

from flows.engine.call_gate import CallGate, OpenGate, Permit, Throttled
from flows.engine.clock import Clock, SystemClock
from flows.engine.errors import ExpressionError, ModelErrorCode
from flows.engine.evaluation import MissingInputError, prepare_input, step_variables
from flows.engine.history import (
    MARK,
    NO_USAGE,
    UNREPORTED_USAGE,
    Attempt,
    AttemptError,
    History,
    Outcome,
    TokenUsage,
)
from flows.engine.json_values import clean_value
from flows.engine.judging import Judgement, clean_output, compute_output, is_judged_in_python, judge_output
from flows.engine.model_calls import send_request
from flows.engine.planner import Action, Call, Compute, EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import Registry
from flows.engine.pricing import leave_unpriced, price_usage
from flows.engine.prompt import build_own_message, build_request
from flows.engine.providers import ModelClient, Providers, build_idempotency_key, find_providers
from flows.engine.redaction import Redactor
from flows.engine.reply import ToolReply
from flows.engine.settling import find_called_step, list_accepted
from flows.engine.spec import FlowSpec, ServiceTier
from flows.engine.time_limits import DEFAULT_PLUGIN_TIMEOUT, TimeBudget, find_deadline

logger = logging.getLogger(__name__)

DEFAULT_CALL_TIMEOUT = 120.0
"""Seconds that one model call may take."""
MIN_FLEX_CALL_TIMEOUT = 900.0
"""Seconds that a call of the tier flex may take at least, as OpenAI advises."""


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
class Received:
    """A reply that is paid for, and its attempt, which ends once the reply is judged.

    The arguments in it are not redacted: they are judged as they came. A recorder keeps them until the attempt ends.
    """

    start: Start
    reply: ToolReply
    """With the cost of its usage."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened since the last record; to be stored as a whole or not at all."""

    ended: Attempt | None = None
    begun: Start | None = None
    finish: Finish | None = None
    received: Received | None = None
    """Recorded alone, before Python functions judge a reply; the attempt ends in a later record."""


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

    ``resume_at`` is set on a pause that should last until a moment (a wait longer than the shell sits out), and
    ``waits_for`` says in a sentence what the run waits for until then.
    """

    history: History
    finish: Finish | None
    resume_at: datetime | None = None
    waits_for: str = ""


Pricing = Callable[..., TokenUsage]
"""Puts a cost to what a call used: ``price(model, usage, provider=…, service_tier=…)``, given what answered."""


class _Course:
    """The history of one execution, and its last attempt, which is stored together with what follows it.

    No attempt that is paid for waits for a plug-in or for time to pass: ``flush`` comes before all that may take long,
    ``receive`` before Python judges a reply.
    """

    def __init__(self, history: History, recorder: Recorder, redactor: Redactor) -> None:
        self.history = history
        # What is taken out never joins the history, so that the stored one is the same. Only the input is in there as
        # it is, for the steps that are still to come.
        self.redactor = redactor
        self._recorder = recorder
        self._ended: Attempt | None = None

    def end(self, attempt: Attempt) -> Attempt:
        """Append an attempt to the history, redacted."""
        self._ended = attempt = self.redactor.redact_attempt(attempt)
        self.history = self.history.append(attempt)
        return attempt

    async def record(self, *, begun: Start | None = None, finish: Finish | None = None) -> None:
        """Store what ended together with what begins or ends the run now."""
        ended, self._ended = self._ended, None
        await self._recorder.record(Progress(ended, begun and self._redact(begun), finish))

    async def flush(self) -> None:
        """Store what ended, if that is not done yet."""
        if self._ended is not None:
            await self.record()

    async def receive(self, start: Start, reply: ToolReply) -> None:
        """Store a reply before it is judged. What ended before was recorded with the start of its attempt."""
        await self._recorder.record(Progress(received=Received(self._redact(start), reply)))

    def redact_prompt(self, spec: FlowSpec, step: int) -> None:
        """Take out what placeholders put into the system message of a step from its request, too."""
        if self.redactor.is_idle:
            return
        sent = build_own_message(spec, self.history, step)
        try:
            kept = build_own_message(spec, self.redactor.redact_history(self.history), step)
        except ExpressionError:  # a pattern found the name of a key
            kept = MARK
        self.redactor = replace(self.redactor, prompt=(sent, kept))

    def _redact(self, begun: Start) -> Start:
        if self.redactor.is_idle:
            return begun
        request = self.redactor.redact_request(begun.request, begun.input)
        return replace(begun, input=self.redactor.redact_value(begun.input), request=request)


@dataclass(frozen=True, slots=True)
class _Ready:
    """An attempt that may begin, or go on with the ``reply`` that an earlier execution received for it.

    ``permit`` is that of its call, None where no call is made.
    """

    start: Start
    budget: TimeBudget
    model: str = ""
    """The model that is called, as flows name it."""
    permit: Permit | None = None
    reply: ToolReply | None = None


@dataclass(frozen=True)
class Execution:
    """Runs one spec, which is frozen and resolved, from the last entry of a history to its end.

    ``client`` makes the calls at the default provider, ``clients`` those at others, by the provider's name.
    ``call_timeout``, ``plugin_timeout`` and ``max_wait`` are in seconds; a wait longer than ``max_wait`` pauses
    the execution instead. ``deadline`` is when the run's time is up; steps may have limits of their own.
    ``should_stop`` is asked at each boundary between attempts, ``before_call`` before each attempt that calls the
    model: what it gives ends the run. Calls go through ``gate``. ``price`` puts a cost to what a call used.
    """

    spec: FlowSpec
    client: ModelClient
    registry: Registry
    clients: Mapping[str, ModelClient] = field(default_factory=dict)
    recorder: Recorder = field(default_factory=NullRecorder)
    clock: Clock = field(default_factory=SystemClock)
    gate: CallGate = field(default_factory=OpenGate)
    before_call: Callable[[], Finish | None] = lambda: None
    deadline: datetime | None = None
    call_timeout: float = DEFAULT_CALL_TIMEOUT
    plugin_timeout: float = DEFAULT_PLUGIN_TIMEOUT
    max_wait: float | None = None
    should_stop: Callable[[], bool] = lambda: False
    track_usage: bool = True
    price: Pricing = price_usage

    @cached_property
    def providers(self) -> Providers:
        """Where the clients ask."""
        return find_providers(self.client, self.clients)

    async def execute(self, history: History, received: Received | None = None) -> ExecutionEnd:
        """Do what comes next until the run ends or pauses. Raises what the recorder and the gate raise.

        ``received`` is a recorded reply whose attempt has not ended: it is judged first, and not asked for again.
        """
        course = _Course(history, self.recorder, Redactor.of(self.spec.redact, history.initial_input))
        following: _Ready | Finish | ExecutionEnd
        if received is not None:
            start = received.start
            budget = self._allot(history, start.step, start.started_at)
            following = _Ready(start, budget, self._find_model(history, start.step), reply=received.reply)
        else:
            following = await self._find_next(course)
        while isinstance(following, _Ready):
            ended = course.end(await self._perform(following, course))
            following = _find_overrun(following.budget, ended) or await self._find_next(course)
        if isinstance(following, ExecutionEnd):
            return following
        accepted = tuple((one.step, one.number) for one in list_accepted(self.spec, course.history))
        finish = replace(course.redactor.redact_finish(following), accepted=accepted)
        await course.record(finish=finish)
        return ExecutionEnd(course.history, finish)

    # Before an attempt

    async def _find_next(self, course: _Course) -> _Ready | Finish | ExecutionEnd:
        """The next attempt, with all that it waits for behind it, or where the execution stops instead."""
        history = course.history
        action = self._check_time(next_action(self.spec, history), history)
        if isinstance(action, Finish):
            return action
        is_stopped = self.should_stop()
        if is_stopped or isinstance(action, Wait):
            await course.flush()
        if isinstance(action, Wait):
            seconds = (action.until - self.clock.now()).total_seconds()
            is_too_long = self.max_wait is not None and seconds > self.max_wait
            if not (is_stopped or is_too_long):
                await self.clock.sleep_until(action.until)
                is_stopped = self.should_stop()
            if is_stopped or is_too_long:
                return ExecutionEnd(history, None, action.until, action.sentence)
            action = self._check_time(action.then, history)
        elif is_stopped:
            return ExecutionEnd(history, None)
        if isinstance(action, Call):
            action = self.before_call() or action
        if isinstance(action, Finish):
            return action
        assert not isinstance(action, Wait)  # one wait leads to an attempt
        ready = await self._prepare(action, course)
        if isinstance(ready, _Ready) and ready.start.request is not None:
            return await self._enter_gate(ready, ready.start.request, course)
        return ready

    def _check_time(self, action: Action, history: History) -> Action:
        """The action, or the end of the run if its time is up before that."""
        if isinstance(action, Finish):
            return action
        step = action.then.step if isinstance(action, Wait) else action.step
        now = self.clock.now()
        deadline = self._allot(history, step, now).deadline
        if deadline is None:
            return action
        due = max(now, action.until) if isinstance(action, Wait) else now
        return action if due < deadline.moment else deadline.end(now=now)

    def _allot(self, history: History, step: int, now: datetime) -> TimeBudget:
        deadline = find_deadline(self.spec, history, step, run_deadline=self.deadline, now=now)
        return TimeBudget(self.plugin_timeout, deadline, self.clock)

    async def _prepare(self, action: Call | Compute, course: _Course) -> _Ready | Finish:
        """The attempt that an action means, or the end of the run if it can't start."""
        now, history = self.clock.now(), course.history
        budget = self._allot(history, action.step, now)
        try:
            step_input, plugins = await prepare_input(
                self.spec, history, action.step, self.registry, budget, before_slow=course.flush
            )
            request = None
            if isinstance(action, Call):
                request = build_request(self.spec, history, action.step, step_input, providers=self.providers)
                course.redact_prompt(self.spec, action.step)
        except ExpressionError as error:
            if budget.deadline is not None and budget.expired:
                return budget.deadline.end(now=budget.deadline.moment)
            is_missing = isinstance(error, MissingInputError)
            reason = EndReason.MISSING_INPUT if is_missing else EndReason.EXPRESSION_ERROR
            # No attempt began that could be named: the sentence names the step.
            return Finish(EndStatus.ERRORED, reason, str(error))
        start = Start(action.step, action.number, step_input, request, now, plugins)
        return _Ready(start, budget, self._find_model(history, action.step))

    def _find_model(self, history: History, step: int) -> str:
        return find_called_step(self.spec.step(step), history.attempts(step)).model or ""

    async def _enter_gate(
        self, ready: _Ready, body: Mapping[str, Any], course: _Course
    ) -> _Ready | Finish | ExecutionEnd:
        """The attempt with the permit of its call. What waits at the gate has not begun."""
        start, history = ready.start, course.history
        # Limits go by the name that flows use, with that of the provider.
        request = {**body, "model": ready.model}
        permit = self.gate.try_enter(request)
        if permit is not None:
            return replace(ready, permit=permit)
        await course.flush()
        entered = await self.gate.enter(request)
        now = self.clock.now()
        budget = self._allot(history, start.step, now)
        until = max(now, entered.until) if isinstance(entered, Throttled) else now
        stop: Finish | ExecutionEnd | None = None
        if budget.deadline is not None and until >= budget.deadline.moment:
            stop = budget.deadline.end(now=now)
        if isinstance(entered, Throttled):
            return stop or ExecutionEnd(history, None, entered.until, entered.sentence)
        stop = stop or (ExecutionEnd(history, None) if self.should_stop() else self.before_call())
        if stop is not None:
            entered.release(NO_USAGE)
            return stop
        return replace(ready, start=replace(start, started_at=now), budget=budget, permit=entered)

    # The attempt

    async def _perform(self, ready: _Ready, course: _Course) -> Attempt:
        start, reply = ready.start, ready.reply
        if reply is None and ready.permit is None:
            await course.record(begun=start)
            return await self._compute(ready, course.history)
        if reply is None:
            answer = await self._call(ready, course)
            if isinstance(answer, AttemptError):
                usage = UNREPORTED_USAGE if self.track_usage else NO_USAGE
                return self._end(start, outcome=Outcome.ERRORED, usage=usage, error=answer)
            reply = self._price(answer, ready)
            if reply.arguments is not None and is_judged_in_python(self.spec.step(start.step), self.registry):
                await course.receive(start, reply)
        meta: dict[str, Any] = {
            "usage": reply.usage,
            "model": reply.model,
            "response_id": reply.response_id,
            "finish_reason": reply.finish_reason,
        }
        if reply.arguments is None:
            raw = clean_value(reply.raw).value
            return self._end(start, outcome=Outcome.INVALID, raw_output=raw, issues=reply.issues, **meta)
        output, notes = clean_output(reply.arguments)
        step, variables = self.spec.step(start.step), step_variables(self.spec, course.history, start.step)
        judgement = await judge_output(step, output, variables, self.registry, ready.budget)
        return self._end_judged(start, replace(judgement, issues=(*notes, *judgement.issues)), **meta)

    async def _call(self, ready: _Ready, course: _Course) -> ToolReply | AttemptError:
        """Make the call of an attempt, and give the permit back whatever becomes of it."""
        start, budget, step = ready.start, ready.budget, self.spec.step(ready.start.step)
        assert start.request is not None and ready.permit is not None
        timeout = self.call_timeout
        if step.service_tier is ServiceTier.FLEX:
            timeout = max(timeout, MIN_FLEX_CALL_TIMEOUT)
        used: TokenUsage | None = NO_USAGE
        try:
            await course.record(begun=start)
            remaining = budget.remaining
            if remaining is not None and remaining <= 0:
                return _break_off(budget)
            used = None
            answer = await send_request(
                self.clients.get(self.providers.split(ready.model)[0].name, self.client),
                start.request,
                tool_name=step.tool_name or "",
                idempotency_key=build_idempotency_key(
                    run_id=course.history.run_id, step=start.step, number=start.number, started_at=start.started_at
                ),
                timeout=timeout if remaining is None else min(timeout, remaining),
                logs_errors=not self.spec.redact,
            )
            if isinstance(answer, ToolReply):
                used = answer.usage if answer.usage.reported else None
                return answer
            is_cut = remaining is not None and remaining <= timeout
            is_timeout = answer.code is ModelErrorCode.TIMEOUT and answer.status is None
            return _break_off(budget) if is_cut and is_timeout else answer
        finally:
            ready.permit.release(used)

    def _price(self, answer: ToolReply, ready: _Ready) -> ToolReply:
        """The reply with the cost of its usage, and its model as flows call it."""
        start = ready.start
        assert start.request is not None
        provider = self.providers.split(ready.model)[0]
        model = answer.model or start.request["model"]
        # A server that does not say which tier it used is taken at the request's word.
        tier = answer.service_tier or start.request.get("service_tier")
        try:
            usage = NO_USAGE
            if self.track_usage:
                usage = self.price(model, answer.usage, provider=provider, service_tier=tier)
        except Exception:  # whatever a price list does wrong, the attempt is paid for and kept
            logger.exception("The price of a call of “%s” could not be found; its cost is unknown.", model)
            usage = leave_unpriced(model, answer.usage)
        return replace(answer, usage=usage, model=answer.model and provider.qualify(answer.model))

    async def _compute(self, ready: _Ready, history: History) -> Attempt:
        start, step = ready.start, self.spec.step(ready.start.step)
        variables = step_variables(self.spec, history, start.step)
        return self._end_judged(start, await compute_output(step, start.input, variables, self.registry, ready.budget))

    def _end_judged(self, start: Start, judgement: Judgement, **meta: Any) -> Attempt:
        return self._end(
            start,
            outcome=judgement.outcome,
            output=judgement.output,
            raw_output=judgement.raw_output,
            issues=judgement.issues,
            failure_reason=judgement.failure_reason,
            plugins=judgement.plugins,
            **meta,
        )

    def _end(self, start: Start, *, plugins: Mapping[str, str] = MappingProxyType({}), **fields: Any) -> Attempt:
        return Attempt(
            step=start.step,
            number=start.number,
            input=start.input,
            request=start.request,
            plugins={**start.plugins, **plugins},
            started_at=start.started_at,
            ended_at=self.clock.now(),
            **fields,
        )


def _break_off(budget: TimeBudget) -> AttemptError:
    budget.expired = True
    assert budget.deadline is not None
    sentence = f"The call was aborted. {budget.deadline.subject} took longer than {budget.deadline.limit}."
    return AttemptError(code=ModelErrorCode.TIMEOUT, message=sentence)


def _find_overrun(budget: TimeBudget, ended: Attempt) -> Finish | None:
    """The end of a run whose attempt was broken off at a deadline; what passed nonetheless goes on."""
    if budget.deadline is None or not budget.expired or ended.passed:
        return None
    return budget.deadline.end(now=budget.deadline.moment, blocking=(ended.step, ended.number))
