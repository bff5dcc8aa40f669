"""The gate before the model calls of one event loop, with limits that all workers share.

Calls that find no permit wait here in memory. While calls wait or have ended, one task settles all of them with the
ledger in one transaction, 20 times a second: a call that finds room waits for at most 50 ms, and none costs a
transaction of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Protocol, TypeVar

from django.db import InterfaceError, InternalError, OperationalError

from flows.engine.call_gate import OpenGate, Permit, Throttled
from flows.engine.clock import Clock, SystemClock
from flows.engine.history import NO_USAGE, TokenUsage
from flows.engine.json_values import dump_json
from flows.engine.model_api import find_max_tokens
from runs.limits.ledger import Capacity, Denial, PermitRequest, Settlement, SettleRequest, settle_in_database
from runs.limits.rules import Resource, Rules, load_rules
from runs.ownership import Owner

logger = logging.getLogger(__name__)

MAX_WAIT = timedelta(seconds=2)
"""How long a call waits at the gate; a run that would have to wait longer goes back to the queue."""
MIN_DELAY = timedelta(seconds=0.5)
"""After which a run that was sent back to the queue may return at the earliest."""
SETTLE_INTERVAL = timedelta(seconds=0.05)
RENEW_INTERVAL = timedelta(seconds=8)
"""How often calls in flight are reported when nothing else is."""
MAX_AGE = timedelta(seconds=4)
"""Age at which a heartbeat fetches again what is left of the limits."""
OUTAGE_INTERVAL = timedelta(seconds=1)
"""Between attempts to settle while the database is away."""
OUTAGE_DELAY = timedelta(seconds=5)
"""After which a run comes back that could not be settled."""
CHARACTERS_PER_TOKEN = 4
DEFAULT_COMPLETION_TOKENS = 500
"""Charged for the answer of a call without a maximum of its own."""

_FREE_PERMIT = OpenGate().try_enter({})
_DATABASE_AWAY = (OperationalError, InterfaceError, InternalError)
_Result = TypeVar("_Result")


class Ask(Protocol):
    """Runs a synchronous function on the thread that has the database connection."""

    def __call__(self, question: Callable[[], _Result], /) -> Awaitable[_Result]: ...


@dataclass(slots=True, eq=False)
class SharedPermit:
    """The right to make one call of ``model``, for which ``tokens`` are charged."""

    gate: SharedGate
    model: str
    tokens: int
    is_released: bool = field(default=False, init=False)

    def release(self, usage: TokenUsage | None) -> None:
        """Give the permit back after the call, which used ``usage``; a second time does nothing."""
        if not self.is_released:
            self.is_released = True
            self.gate.end_call(self.model, self.tokens, usage)


@dataclass(slots=True, eq=False)
class WaitingCall:
    """A call that waits for its permit until ``deadline``."""

    model: str
    tokens: int
    deadline: datetime
    answer: asyncio.Future[Permit | Throttled]


def create_gate(*, owner: str, ask: Ask) -> SharedGate:
    """Create the gate of ``owner`` on its event loop; ``refresh()`` has to be awaited before calls enter."""
    return SharedGate(
        owner=owner,
        settle=lambda request, rules: ask(lambda: settle_in_database(request, rules)),
        load=lambda: ask(load_rules),
    )


class SharedGate:
    """A ``CallGate`` for one event loop."""

    def __init__(
        self,
        *,
        owner: str,
        settle: Callable[[SettleRequest, Rules], Awaitable[Settlement]],
        load: Callable[[], Awaitable[Rules]],
        clock: Clock | None = None,
    ) -> None:
        """``settle`` and ``load`` reach the database and raise its errors. Nothing is read yet."""
        self._owner = owner
        self._settle_request = settle
        self._load_rules = load
        self._clock = clock or SystemClock()
        self._rules: Rules | None = None
        self._waiting: dict[WaitingCall, None] = {}
        """First come first; a dict, since calls leave in any order."""
        self._left: Mapping[int, Capacity] = {}
        self._owners: tuple[str, ...] = (owner,)
        self._gone: tuple[str, ...] = ()
        self._active: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        """Used beyond what was charged, not yet reported."""
        self._last_charge: dict[str, int] = {}
        self._settled_at: datetime | None = None
        self._has_changes = False
        self._is_away = False
        self._is_closing = False
        self._refilling: asyncio.Task[None] | None = None
        self._settling = asyncio.Lock()

    def try_enter(self, request: Mapping[str, Any]) -> Permit | None:
        """Return a permit if no limit covers the model of ``request``, else None."""
        rules = self._rules
        return None if rules is not None and rules.limits and rules.find(request["model"]) else _FREE_PERMIT

    async def enter(self, request: Mapping[str, Any]) -> Permit | Throttled:
        """Wait for a permit for up to ``MAX_WAIT``, and not at all if it will take longer."""
        if (permit := self.try_enter(request)) is not None:
            return permit
        deadline = self._clock.now() + MAX_WAIT
        answer: asyncio.Future[Permit | Throttled] = asyncio.get_running_loop().create_future()
        call = WaitingCall(request["model"], self._charge(request), deadline, answer)
        self._waiting[call] = None
        self._start_refilling()
        try:
            return await answer
        except asyncio.CancelledError:
            # The permit may have come at the same moment.
            if not answer.cancelled() and isinstance(granted := answer.result(), SharedPermit):
                granted.release(NO_USAGE)
            raise
        finally:
            self._waiting.pop(call, None)

    def end_call(self, model: str, charged: int, usage: TokenUsage | None) -> None:
        """Count a call as ended; ``usage`` replaces the ``charged`` tokens unless it is unknown."""
        self._active[model] -= 1
        if usage is not None:
            self._tokens[model] += usage.total - charged
        self._has_changes = True
        self._start_refilling()

    async def refresh(self) -> None:
        """Load the limits and what is left of them: at the start and in each heartbeat.

        Raises the database's error only if the limits were never loaded; later the known ones stay in force.
        """
        try:
            rules = await self._load_rules()
        except _DATABASE_AWAY as error:
            if self._rules is None:
                raise
            logger.warning("The rate limits can't be read; the last known ones stay in effect: %s", error)
            return
        is_new = rules != self._rules
        self._rules = rules
        if not rules.limits and not self._waiting:
            return
        self._gone = tuple(name for name in self._owners if (owner := Owner.parse(name)) and owner.is_gone)
        if is_new or self._settled_at is None or self._clock.now() - self._settled_at >= MAX_AGE:
            await self._settle()

    def available_permits(self, model: str) -> int | None:
        """How many calls of ``model`` could begin now, by what is known here; None if nothing limits them.

        What is left is divided by the number of processes. Safe from any thread.
        """
        limits = self._rules.find(model) if self._rules is not None and self._rules.limits else ()
        if not limits:
            return None
        elapsed = (self._clock.now() - self._settled_at).total_seconds() if self._settled_at else 0.0
        available: list[float] = []
        for limit in limits:
            left = self._left.get(limit.id)
            if left is None:
                return 0
            if left.calls is not None:
                available.append(left.calls)
            if left.requests is not None and (bucket := limit.requests):
                available.append(int(bucket.fill(left.requests, elapsed)))
            if left.tokens is not None and (bucket := limit.tokens):
                charge = self._last_charge.get(model, DEFAULT_COMPLETION_TOKENS)
                available.append(bucket.fill(left.tokens, elapsed) / max(1, charge))
        share = ceil(min(available, default=0) / max(1, len(self._owners)))
        # Copied at once: the event loop may change it meanwhile.
        waiting = sum(call.model == model for call in tuple(self._waiting))
        return max(0, share - waiting)

    async def close(self) -> None:
        """Give everything back. Calls that still wait are sent back to the queue."""
        self._is_closing = True
        if self._refilling is not None:
            await self._refilling
        for call in list(self._waiting):
            self._answer(call, Throttled(self._clock.now(), "Waits for a worker."))
        if self._settled_at is not None:
            try:
                request = SettleRequest(self._owner, tokens=dict(self._tokens), leaves=True)
                await self._settle_request(request, self._rules or Rules())
            except _DATABASE_AWAY as error:
                logger.warning("Permits could not be returned; they expire in 30 s: %s", error)

    def _charge(self, request: Mapping[str, Any]) -> int:
        """Tokens that a call is charged before it is made, as providers estimate it: its text, and its longest answer.

        Source: OpenAI's guide to rate limits, "Reduce the max_tokens to match the size of your completions".
        """
        completion = find_max_tokens(request) or DEFAULT_COMPLETION_TOKENS
        charge = len(dump_json(request)) // CHARACTERS_PER_TOKEN + completion
        self._last_charge[request["model"]] = charge
        return charge

    def _answer(self, call: WaitingCall, answer: Permit | Throttled) -> None:
        self._waiting.pop(call, None)
        # The future of a cancelled run is done before the run can take its call off the queue.
        if not call.answer.done():
            call.answer.set_result(answer)

    def _start_refilling(self) -> None:
        if self._refilling is None and not self._is_closing:
            self._refilling = asyncio.create_task(self._refill(), name="limits")

    async def _refill(self) -> None:
        """Settle for as long as calls wait or are in flight."""
        try:
            while not self._is_closing and (self._waiting or self._has_changes or +self._active):
                pause = SETTLE_INTERVAL
                began = self._clock.now()
                is_overdue = self._settled_at is None or began - self._settled_at >= RENEW_INTERVAL
                if (self._waiting or self._has_changes or is_overdue) and not await self._settle():
                    pause = OUTAGE_INTERVAL
                await self._clock.sleep_until(began + pause)
        except Exception as error:
            # Calls must not wait for ever for a task that broke: the error is theirs.
            logger.exception("The gate of worker %s broke.", self._owner)
            for call in list(self._waiting):
                if not call.answer.done():
                    call.answer.set_exception(error)
        finally:
            self._refilling = None

    async def _settle(self) -> bool:
        """Report and ask for all that waits, in one request. False if the database is away."""
        async with self._settling:
            calls = list(self._waiting)
            tokens = dict(self._tokens)
            self._tokens.clear()
            self._has_changes = False
            self._settled_at = self._clock.now()
            permits = [PermitRequest(call.model, call.tokens) for call in calls]
            request = SettleRequest(self._owner, dict(+self._active), tokens, permits, self._gone)
            try:
                settlement = await self._settle_request(request, self._rules or Rules())
            except _DATABASE_AWAY as error:
                self._tokens.update(tokens)
                if not self._is_away:
                    logger.warning("The rate limits can't be checked; calls that they cover wait: %s", error)
                self._is_away = self._has_changes = True
                self._reject_late(calls)
                return False
            self._is_away = False
            self._left, self._owners = settlement.left, settlement.owners
            for call, denial in zip(calls, settlement.denials, strict=True):
                if denial is None:
                    self._grant(call)
                else:
                    self._deny(call, denial)
            return True

    def _grant(self, call: WaitingCall) -> None:
        self._active[call.model] += 1
        permit = SharedPermit(self, call.model, call.tokens)
        if call.answer.done():
            # Its run was cancelled meanwhile.
            permit.release(NO_USAGE)
        else:
            self._answer(call, permit)

    def _deny(self, call: WaitingCall, denial: Denial) -> None:
        """Send a call away that has waited long enough, or certainly will have before it can go."""
        now = self._clock.now()
        until = now + timedelta(seconds=denial.delay)
        # A call in flight may end at any time.
        is_certain = denial.resource is not Resource.CALLS
        if now >= call.deadline or (is_certain and until > call.deadline):
            self._answer(call, Throttled(max(until, now + MIN_DELAY), denial.limit.describe(denial.resource)))

    def _reject_late(self, calls: list[WaitingCall]) -> None:
        now = self._clock.now()
        throttled = Throttled(now + OUTAGE_DELAY, "Waits until the limits of the provider can be checked.")
        for call in calls:
            if now >= call.deadline:
                self._answer(call, throttled)
