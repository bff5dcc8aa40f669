"""The execution shell: performs what the planner says and hands every step of the way to a recorder.

All I/O goes through what the shell is given: model client, clock, recorder, registry of plug-ins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from flows.engine.call_gate import CallGate, OpenGate, Permit, Throttled
from flows.engine.clock import Clock, SystemClock
from flows.engine.errors import ExpressionError, ModelError, ModelErrorCode
from flows.engine.evaluation import Evaluator, describe_exception, step_variables
from flows.engine.history import Attempt, AttemptError, History, Outcome
from flows.engine.issues import Issue, Severity
from flows.engine.json_values import clean_value
from flows.engine.judgement import clean_output, is_judged_in_python, judge_output
from flows.engine.model_client import ModelClient, find_providers, make_idempotency_key
from flows.engine.model_request import find_api
from flows.engine.planner import Action, Call, Compute, EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import Registry
from flows.engine.pricing import leave_unpriced, price_usage
from flows.engine.prompt import build_request
from flows.engine.providers import Provider, Providers
from flows.engine.redaction import Redactor
from flows.engine.reply import ToolReply, read_reply
from flows.engine.spec import FlowSpec, ServiceTier
from flows.engine.step_input import MissingInputError, prepare_input
from flows.engine.time_limits import DEFAULT_PLUGIN_TIMEOUT, Deadline, Patience, find_deadline
from flows.engine.usage import NO_USAGE, UNREPORTED_USAGE, TokenUsage

logger = logging.getLogger(__name__)

DEFAULT_CALL_TIMEOUT = 120.0
"""Seconds that one model call may take."""
FLEX_CALL_TIMEOUT = 900.0
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


class Pricing(Protocol):
    """Puts a cost to what a call used."""

    def __call__(
        self, model: str, usage: TokenUsage, *, provider: Provider, service_tier: str | None
    ) -> TokenUsage:  # fmt: skip
        """``usage`` with its cost, given the model and the tier that answered."""


def never() -> bool:
    """The answer of a shell that nobody asks to stop."""
    return False


def no_veto() -> None:
    """The answer of a shell in which every call may be made."""


class _Journal:
    """What ended and is not recorded yet: it is stored together with what follows, or alone if nothing does."""

    def __init__(self, recorder: Recorder, redactor: Redactor) -> None:
        self._recorder = recorder
        self._redactor = redactor
        self.ended: Attempt | None = None

    async def record(self, *, begun: Start | None = None, finish: Finish | None = None) -> None:
        ended, self.ended = self.ended, None
        await self._recorder.record(Progress(ended, begun and self._redact(begun), finish))

    def _redact(self, begun: Start) -> Start:
        if self._redactor.is_idle:
            return begun
        request = self._redactor.redact_request(begun.request, begun.input)
        return replace(begun, input=self._redactor.redact_value(begun.input), request=request)

    async def flush(self) -> None:
        if self.ended is not None:
            await self.record()

    async def receive(self, received: Received) -> None:
        """Keep a reply before it is judged. What ended before was recorded with the start of its attempt."""
        await self._recorder.record(Progress(received=replace(received, start=self._redact(received.start))))


@dataclass(frozen=True, slots=True)
class _Ready:
    """An attempt that may begin, or go on with the ``reply`` that an earlier execution received for it.

    ``permit`` is that of its call, None where no call is made.
    """

    start: Start
    permit: Permit | None
    patience: Patience
    reply: ToolReply | None = None


@dataclass(frozen=True)
class Execution:
    """Runs one spec, which is frozen and resolved, from wherever a history stands to its end.

    ``client`` makes the calls at the default provider, ``clients`` those at others, by the provider's name.
    ``call_timeout``, ``plugin_timeout`` and ``longest_wait`` are in seconds; a wait longer than ``longest_wait`` pauses
    the execution instead. ``deadline`` is when the run's time is up; steps may have limits of their own.
    ``should_stop`` is asked at each boundary between attempts, ``veto`` before each attempt that calls the model: what
    it gives ends the run. Calls go through ``gate``. ``price`` puts a cost to what a call used.
    """

    spec: FlowSpec
    client: ModelClient
    registry: Registry
    clients: Mapping[str, ModelClient] = field(default_factory=dict)
    recorder: Recorder = field(default_factory=NullRecorder)
    clock: Clock = field(default_factory=SystemClock)
    gate: CallGate = field(default_factory=OpenGate)
    veto: Callable[[], Finish | None] = no_veto
    deadline: datetime | None = None
    call_timeout: float = DEFAULT_CALL_TIMEOUT
    plugin_timeout: float = DEFAULT_PLUGIN_TIMEOUT
    longest_wait: float | None = None
    should_stop: Callable[[], bool] = never
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
        # What is taken out never joins the history, so that the stored one is the same. Only the input is in there as
        # it is, for the steps that are still to come.
        redactor = Redactor.of(self.spec.redact, history.initial_input)
        journal = _Journal(self.recorder, redactor)
        following: _Ready | Finish | ExecutionEnd
        if received is not None:
            following = self._take_up(received, history)
        else:
            following = await self._find_next(history, journal)
        while not isinstance(following, ExecutionEnd):
            if isinstance(following, _Ready):
                journal.ended = redactor.redact_attempt(await self._perform(following, history, journal))
                history = history.append(journal.ended)
                finish = self._find_overrun(following, journal.ended)
            else:
                finish = following
            if finish is not None:
                finish = redactor.redact_finish(finish)
                await journal.record(finish=finish)
                return ExecutionEnd(history, finish)
            following = await self._find_next(history, journal)
        return following

    def _take_up(self, received: Received, history: History) -> _Ready:
        start = received.start
        deadline = self._find_deadline(history, start.step, start.started_at)
        return _Ready(start, None, Patience(self.plugin_timeout, deadline, self.clock), received.reply)

    async def _find_next(self, history: History, journal: _Journal) -> _Ready | Finish | ExecutionEnd:
        """The next attempt, with all that it waits for behind it, or where the execution stops instead."""
        action = self._check_time(next_action(self.spec, history), history)
        if isinstance(action, Finish):
            return action
        pause = ExecutionEnd(history, None)
        if isinstance(action, Wait):
            pause = ExecutionEnd(history, None, action.until, action.sentence)
        if self.should_stop():
            await journal.flush()
            return pause
        if isinstance(action, Wait):
            await journal.flush()
            if self._is_too_long(action):
                return pause
            await self.clock.sleep_until(action.until)
            if self.should_stop():
                return pause
            action = self._check_time(action.then, history)
        if isinstance(action, Call):
            action = self.veto() or action
        following = await self._prepare(action, history, journal)
        if isinstance(following, _Ready) and following.start.request is not None:
            return await self._enter_gate(following, history, journal)
        return following

    def _check_time(self, action: Action, history: History) -> Action:
        """The action, or the end of the run if its time is up before that."""
        if isinstance(action, Finish):
            return action
        step = action.then.step if isinstance(action, Wait) else action.step
        now = self.clock.now()
        deadline = self._find_deadline(history, step, now)
        if deadline is None:
            return action
        due = max(now, action.until) if isinstance(action, Wait) else now
        return action if due < deadline.moment else deadline.end(now=now)

    def _find_deadline(self, history: History, step: int, now: datetime) -> Deadline | None:
        return find_deadline(self.spec, history, step, run_deadline=self.deadline, now=now)

    def _is_too_long(self, wait: Wait) -> bool:
        if self.longest_wait is None:
            return False
        return (wait.until - self.clock.now()).total_seconds() > self.longest_wait

    async def _prepare(self, action: Action, history: History, journal: _Journal) -> _Ready | Finish:
        """The attempt that an action means, or the end of the run if it can't start."""
        if isinstance(action, Finish):
            return action
        assert isinstance(action, (Call, Compute))
        now = self.clock.now()
        patience = Patience(self.plugin_timeout, self._find_deadline(history, action.step, now), self.clock)
        try:
            # No attempt that is paid for waits for a plug-in: it is stored first.
            step_input, plugins = await prepare_input(
                self.spec, history, action.step, self.registry, patience, before_slow=journal.flush
            )
        except ExpressionError as error:
            if patience.deadline is not None and patience.was_lost:
                return patience.deadline.end(now=patience.deadline.moment)
            missing = isinstance(error, MissingInputError)
            reason = EndReason.MISSING_INPUT if missing else EndReason.EXPRESSION_ERROR
            # No attempt began, so none is to blame: the sentence names the step.
            return Finish(EndStatus.ERRORED, reason, str(error))
        request = None
        if isinstance(action, Call):
            request = build_request(self.spec, history, action.step, step_input, providers=self.providers)
        start = Start(action.step, action.number, step_input, request, now, plugins)
        return _Ready(start, None, patience)

    async def _enter_gate(self, ready: _Ready, history: History, journal: _Journal) -> _Ready | Finish | ExecutionEnd:
        """The attempt with the permit of its call. What waits at the gate has not begun."""
        start = ready.start
        assert start.request is not None
        # Limits go by the name that flows use, with that of the provider.
        request = {**start.request, "model": self.spec.step(start.step).model}
        permit = self.gate.try_enter(request)
        if permit is not None:
            return _Ready(start, permit, ready.patience)
        await journal.flush()
        entered = await self.gate.enter(request)
        now = self.clock.now()
        deadline = self._find_deadline(history, start.step, now)
        until = entered.until if isinstance(entered, Throttled) else now
        if deadline is not None and max(now, until) >= deadline.moment:
            stop: Finish | ExecutionEnd | None = deadline.end(now=now)
        elif isinstance(entered, Throttled):
            stop = ExecutionEnd(history, None, entered.until, entered.sentence)
        else:
            stop = ExecutionEnd(history, None) if self.should_stop() else self.veto()
        if isinstance(entered, Throttled):
            assert stop is not None
            return stop
        if stop is not None:
            entered.release(NO_USAGE)
            return stop
        patience = Patience(self.plugin_timeout, deadline, self.clock)
        return _Ready(replace(start, started_at=now), entered, patience)

    async def _perform(self, ready: _Ready, history: History, journal: _Journal) -> Attempt:
        start = ready.start
        if ready.reply is not None:
            return await self._judge_reply(start, ready.reply, history, ready.patience)
        if ready.permit is None:
            await journal.record(begun=start)
            return await self._compute(start, history, ready.patience)
        answer = await self._call(ready, ready.permit, history.run_id, journal)
        if isinstance(answer, AttemptError):
            usage = UNREPORTED_USAGE if self.track_usage else NO_USAGE
            return self._end(start, outcome=Outcome.ERRORED, usage=usage, error=answer)
        assert start.request is not None
        provider = self._find_provider(start.step)
        reply = replace(
            answer,
            usage=self._price(answer, start, provider),
            model=answer.model and provider.qualify(answer.model),
        )
        if reply.arguments is not None and is_judged_in_python(self.spec.step(start.step), self.registry):
            await journal.receive(Received(start, reply))
        return await self._judge_reply(start, reply, history, ready.patience)

    async def _judge_reply(self, start: Start, reply: ToolReply, history: History, patience: Patience) -> Attempt:
        meta: dict[str, Any] = {
            "usage": reply.usage,
            "model": reply.model,
            "response_id": reply.response_id,
            "finish_reason": reply.finish_reason,
        }
        if reply.arguments is None:
            return self._end(
                start, outcome=Outcome.INVALID, raw_output=clean_value(reply.raw).value, issues=reply.issues, **meta
            )
        return await self._judge(start, history, *clean_output(reply.arguments), patience=patience, **meta)

    async def _call(self, ready: _Ready, permit: Permit, run_id: str, journal: _Journal) -> ToolReply | AttemptError:
        """Make the call of an attempt, and leave the gate whatever becomes of it."""
        start, patience = ready.start, ready.patience
        step = self.spec.step(start.step)
        call_timeout = self.call_timeout
        if step.service_tier is ServiceTier.FLEX:
            call_timeout = max(call_timeout, FLEX_CALL_TIMEOUT)
        used: TokenUsage | None = NO_USAGE
        try:
            await journal.record(begun=start)
            left = patience.seconds_left
            if left is not None and left <= 0:
                return _break_off(patience)
            used = None
            answer = await self._send(start, run_id, call_timeout if left is None else min(call_timeout, left))
            if isinstance(answer, AttemptError):
                is_ours = answer.code is ModelErrorCode.TIMEOUT and answer.status is None
                if is_ours and left is not None and left <= call_timeout:
                    return _break_off(patience)
                return answer
            used = answer.usage if answer.usage.reported else None
            return answer
        finally:
            permit.release(used)

    async def _send(self, start: Start, run_id: str, timeout: float) -> ToolReply | AttemptError:
        """The reply of the model, or why there is none, whatever the client raises."""
        assert start.request is not None
        key = make_idempotency_key(run_id=run_id, step=start.step, number=start.number, started_at=start.started_at)
        client = self.clients.get(self._find_provider(start.step).name, self.client)
        tool_name = self.spec.step(start.step).tool_name or ""
        try:
            reply = await client.complete(start.request, idempotency_key=key, timeout=timeout)
            return read_reply(reply.body, tool_name=tool_name, api=find_api(start.request))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._describe_client_error(error)
        except Exception as error:  # noqa: BLE001  # Clients are user code; paid attempts must be kept.
            return self._describe_client_error(error)

    def _describe_client_error(self, error: BaseException) -> AttemptError:
        """Why a call brought no reply, given what its client raised."""
        code, words = ModelErrorCode.CLIENT_ERROR, describe_exception(error)
        if isinstance(error, ModelError):
            try:
                return AttemptError(
                    code=error.code,
                    message=clean_value(error.message).value,
                    status=error.status,
                    retry_after=error.retry_after,
                )
            except Exception as fault:  # noqa: BLE001  # its attributes may be anything
                error, words = fault, f"a malformed {words}"
        elif isinstance(error, TimeoutError):
            code = ModelErrorCode.TIMEOUT
        elif isinstance(error, ConnectionError):
            code = ModelErrorCode.CONNECTION
        # The error may quote the request, which is redacted in the attempt only.
        logger.error("The model client failed.", exc_info=None if self.spec.redact else error)
        return AttemptError(code=code, message=f"The model client raised {words}")

    def _find_overrun(self, ready: _Ready, ended: Attempt) -> Finish | None:
        """The end of a run whose attempt was broken off at a deadline; what passed all the same goes on."""
        deadline = ready.patience.deadline
        if deadline is None or not ready.patience.was_lost or ended.passed:
            return None
        return deadline.blame(ended.step, ended.number).end(now=deadline.moment)

    async def _compute(self, start: Start, history: History, patience: Patience) -> Attempt:
        step = self.spec.step(start.step)
        variables = step_variables(self.spec, history, start.step).extend(previous=start.input)
        evaluator = Evaluator(variables, self.registry, patience)
        try:
            output, notes = clean_output(await evaluator.evaluate("compute", step.compute or ""))
        except (ExpressionError, ValueError) as error:
            issue = Issue(
                code="compute_error", severity=Severity.CRITICAL, description=f"The step could not be computed: {error}"
            )
            return self._end(start, outcome=Outcome.INVALID, issues=(issue,), plugins=evaluator.plugins)
        return await self._judge(start, history, output, notes, patience=patience, plugins=evaluator.plugins)

    async def _judge(
        self,
        start: Start,
        history: History,
        output: dict[str, Any],
        notes: tuple[Issue, ...],
        *,
        patience: Patience,
        plugins: dict[str, str] | None = None,
        **meta: Any,
    ) -> Attempt:
        step = self.spec.step(start.step)
        variables = step_variables(self.spec, history, start.step)
        judgement = await judge_output(step, output, variables, self.registry, patience)
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

    def _find_provider(self, step: int) -> Provider:
        return self.providers.split(self.spec.step(step).model or "")[0]

    def _price(self, answer: ToolReply, start: Start, provider: Provider) -> TokenUsage:
        usage = answer.usage
        if not self.track_usage:
            return NO_USAGE
        assert start.request is not None
        model = answer.model or start.request["model"]
        # A server that does not say which tier it used is taken at the request's word.
        tier = answer.service_tier or start.request.get("service_tier")
        try:
            return self.price(model, usage, provider=provider, service_tier=tier)
        except Exception:  # whatever a price list does wrong, the attempt is paid for and kept
            logger.exception("The price of a call of “%s” could not be found; its cost is unknown.", model)
            return leave_unpriced(model, usage)


def _break_off(patience: Patience) -> AttemptError:
    patience.was_lost = True
    assert patience.deadline is not None
    sentence = f"The call was broken off. {patience.deadline.subject} took longer than {patience.deadline.limit}."
    return AttemptError(code=ModelErrorCode.TIMEOUT, message=sentence)
