"""The gate before the model calls of one drain, with limits that it shares with all other drains.

Calls that find no permit wait here in memory. One task, the pump, asks the ledger for all of them at once, tells it of
calls that ended, and while many calls go keeps a few permits ahead, so that not each of them costs a transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import InterfaceError, OperationalError

from flows.engine.call_gate import Closed, OpenGate, Permit
from flows.engine.clock import Clock, SystemClock
from flows.engine.usage import TokenUsage
from runs.limits.account import Account
from runs.limits.ledger import Block, Want
from runs.limits.rules import Rules
from runs.limits.steady_clock import SteadyClock
from runs.limits.stores import Store, StoreAwayError
from runs.limits.waiting_calls import Blockade, WaitingCall, WaitingCalls
from runs.ownership import Owner

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=2)
"""How long a call waits at the gate; a run that would have to wait longer goes back to the queue."""
PACE = timedelta(seconds=0.05)
"""The least time between two orders."""
POLL = timedelta(seconds=0.25)
"""How long it takes at most to notice that another drain gave something back, and to give back what is not needed."""
RENEWAL = timedelta(seconds=8)
"""How often the ledger hears of calls under way."""
FRESHNESS = timedelta(seconds=4)
"""How old the knowledge of what is left may be in a heartbeat."""
OUTAGE_PAUSE = timedelta(seconds=1)
"""Between orders while the ledger is away."""
OUTAGE_DELAY = timedelta(seconds=5)
"""After which a run comes back that met no ledger."""
LARGEST_ORDER = 100
"""Permits asked for in one order for calls of one model."""

_NOTHING = timedelta(0)
_FREE_PERMIT = OpenGate().try_enter({})


@dataclass(slots=True, eq=False)
class SharedPermit:
    """The right to make one call of ``model``; ``tokens`` are charged for it already."""

    gate: SharedGate
    model: str
    tokens: int
    is_left: bool = field(default=False, init=False)

    def leave(self, usage: TokenUsage | None) -> None:
        """Give the permit back after the call, which used ``usage``; the second time nothing happens."""
        if not self.is_left:
            self.is_left = True
            self.gate.end_call(self, usage)


class SharedGate:
    """A ``CallGate`` for one event loop."""

    def __init__(
        self, *, owner: str, store: Store, read_rules: Callable[[], Awaitable[Rules]], clock: Clock | None = None
    ) -> None:
        """``owner`` names the drain. ``read_rules`` gives the limits as they are now. Nothing is read yet.

        ``clock`` tells all times; without it the gate waits by a clock that nobody sets, and sends calls away until a
        time of this host.
        """
        self._store = store
        self._read_rules = read_rules
        self._has_read = False
        self._clock = clock or SteadyClock()
        self._host_clock = clock or SystemClock()
        self._account = Account(owner)
        self._waiting = WaitingCalls()
        self._blocked: dict[str, Blockade] = {}
        self._gone: tuple[str, ...] = ()
        self._is_away = False
        self._is_closing = False
        self._pump: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self._is_urgent = False
        self._exchanging = asyncio.Lock()

    # What a call does

    def try_enter(self, request: Mapping[str, Any]) -> Permit | None:
        """A permit for ``request`` if there is one at once, without waiting for anything; else None."""
        model = request["model"]
        if not self._account.rules.find(model):
            return _FREE_PERMIT
        tokens = self._account.take_ahead(request)
        if tokens is None:
            return None
        self._account.meet_expected(model)
        permit = self._begin_call(model, tokens)
        self._nudge(is_urgent=self._account.ahead.is_low(model))
        return permit

    async def enter(self, request: Mapping[str, Any]) -> Permit | Closed:
        """Wait for a permit for ``request``, two seconds at most, and no time at all if it is known to take longer."""
        permit = self.try_enter(request)
        if permit is not None:
            return permit
        model = request["model"]
        self._account.meet_expected(model)
        now = self._clock.now()
        blockade = self._blocked.get(model)
        if blockade is not None and blockade.is_certain and blockade.until > now + PATIENCE:
            return self._send_away(blockade.find_delay(now), blockade.sentence)
        call = self._waiting.append(model, self._account.estimate(request), now + PATIENCE)
        # Where it is known that there is nothing, the pump comes round in its own time.
        self._nudge(is_urgent=blockade is None or blockade.until <= now)
        try:
            return await call.future
        except asyncio.CancelledError:
            self._abandon(call)
            raise

    def end_call(self, permit: SharedPermit, usage: TokenUsage | None) -> None:
        """A call ended; ``usage`` is what it used, None if that is not known."""
        self._account.end_call(permit.model, permit.tokens, usage)
        self._nudge(is_urgent=bool(self._waiting.count(permit.model)))

    # What the drain does

    async def refresh(self) -> None:
        """Read the limits, and what is left of them; to be called at the start and in each heartbeat.

        Raises the database's error only if the limits were never read; later the known ones go on to hold.
        """
        account = self._account
        try:
            rules = await self._read_rules()
        except (OperationalError, InterfaceError) as error:
            if not self._has_read:
                raise
            logger.warning("The limits of the provider can't be read; the known ones go on to hold: %s", error)
            return
        self._has_read = True
        is_new = rules != account.rules
        if is_new:
            self._adopt(rules)
        if not rules.limits:
            return
        self._gone = tuple(name for name in account.owners if (owner := Owner.parse(name)) and owner.is_gone)
        if is_new or account.asked_at is None or self._clock.now() - account.asked_at >= FRESHNESS:
            await self._exchange()
            self._nudge(is_urgent=False)

    def room(self, model: str) -> int | None:
        """How many calls of ``model`` could begin now, by what is known here; None if nothing limits them.

        Safe from any thread.
        """
        return self._account.find_room(model, waiting=self._waiting.count(model), now=self._clock.now())

    def expect_call(self, model: str) -> None:
        """A run was claimed that will soon call ``model``: its place is not offered again."""
        if self._account.rules.find(model):
            self._account.expect_call(model, self._clock.now())

    async def close(self) -> None:
        """Give everything back. Calls that still wait are turned away."""
        self._is_closing = True
        self._nudged.set()
        if self._pump is not None:
            await self._pump
        for call in list(self._waiting):
            self._answer(call, self._send_away(_NOTHING, "Waits for a worker."))
        if self._account.asked_at is not None:
            try:
                await self._store.settle(self._account.make_last_order(), self._account.rules)
            except StoreAwayError as error:
                logger.warning("The limits could not be given back; they run out in half a minute: %s", error)
        await self._store.close()

    # Calls

    def _begin_call(self, model: str, tokens: int) -> SharedPermit:
        self._account.begin_call(model)
        return SharedPermit(self, model, tokens)

    def _send_away(self, delay: timedelta, sentence: str) -> Closed:
        return Closed(self._host_clock.now() + delay, sentence)

    def _answer(self, call: WaitingCall, answer: Permit | Closed) -> None:
        self._waiting.remove(call)
        # Of a run that is cancelled, the future is done before the run can take its call off the queue.
        if not call.future.done():
            call.future.set_result(answer)

    def _abandon(self, call: WaitingCall) -> None:
        """The run of a call was cancelled while it waited, perhaps in the moment in which it was answered."""
        if call.future.cancelled():
            self._waiting.remove(call)
        elif call.future.exception() is None and isinstance(permit := call.future.result(), SharedPermit):
            permit.is_left = True
            self._account.drop_call(permit.model, permit.tokens)
            self._nudge(is_urgent=bool(self._waiting))

    def _turn_away_hopeless(self) -> None:
        now = self._clock.now()
        for call in [call for call in self._waiting if call.is_hopeless(now)]:
            if call.blockade is not None:
                delay, sentence = call.blockade.find_delay(now), call.blockade.sentence
            else:
                delay, sentence = OUTAGE_DELAY, "Waits until the limits of the provider can be looked up."
            self._answer(call, self._send_away(delay, sentence))

    def _adopt(self, rules: Rules) -> None:
        """Go by new limits; calls that wait may be free to go."""
        self._account.rules = rules
        self._blocked.clear()
        self._nudge(is_urgent=bool(self._waiting))

    # The pump

    def _nudge(self, *, is_urgent: bool) -> None:
        """Let the pump see what has changed; if that is urgent it asks the ledger as soon as it may."""
        self._is_urgent = self._is_urgent or is_urgent
        self._nudged.set()
        if self._pump is None and not self._is_closing and self._find_pause() is not None:
            self._pump = asyncio.create_task(self._run_pump(), name="limits")

    async def _run_pump(self) -> None:
        try:
            while not self._is_closing and (pause := self._find_pause()) is not None:
                self._nudged.clear()
                if pause > _NOTHING:
                    await self._sleep(pause)
                    continue
                began = self._clock.now()
                is_settled = await self._exchange()
                self._turn_away_hopeless()
                await self._clock.sleep_until(began + (PACE if is_settled else OUTAGE_PAUSE))
        except Exception as error:
            # Calls must not wait for ever for a pump that broke: the error is theirs.
            logger.exception("The gate of worker %s broke.", self._account.owner)
            for call in list(self._waiting):
                self._waiting.remove(call)
                if not call.future.done():
                    call.future.set_exception(error)
        finally:
            self._pump = None

    def _find_pause(self) -> timedelta | None:
        """How long the ledger need not be asked; None if there is nothing to ask."""
        if self._is_urgent:
            return _NOTHING
        now = self._clock.now()
        last = self._account.asked_at or now
        due = [min(call.deadline, call.find_turn() or last + POLL) for call in self._waiting]
        if self._account.has_news:
            due.append(last + POLL)
        if self._account.holds_calls:
            due.append(last + RENEWAL)
        return max(_NOTHING, min(due) - now) if due else None

    async def _sleep(self, pause: timedelta) -> None:
        """Until the pause is over or something has changed."""
        until = self._clock.now() + pause
        waits = {asyncio.ensure_future(self._clock.sleep_until(until)), asyncio.ensure_future(self._nudged.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _exchange(self) -> bool:
        """Send an order and take in the answer. False if the ledger is away."""
        async with self._exchanging:
            self._is_urgent = False
            account = self._account
            asking = self._waiting.choose(LARGEST_ORDER)
            wants = [Want(call.model, call.tokens) for call in asking]
            now = self._clock.now()
            order = account.make_order(wants, gone=self._gone, now=now)
            account.asked_at = now
            try:
                answer = await self._store.settle(order, account.rules)
            except StoreAwayError as error:
                account.put_back(order)
                if not self._is_away:
                    logger.warning("The limits can't be looked up; calls that they cover wait: %s", error)
                self._is_away = True
                return False
            self._is_away = False
            account.take_in(answer)
            count = len(asking)
            self._tell(asking, answer.results[:count])
            for want, block in zip(order.wants[count:], answer.results[count:], strict=True):
                if block is None:
                    account.ahead.add(want.model, want.tokens)
            return True

    def _tell(self, asking: list[WaitingCall], results: tuple[Block | None, ...]) -> None:
        """Tell calls what the ledger has said."""
        now = self._clock.now()
        asked = {call.model for call in asking}
        blocked = {model: blockade for model, blockade in self._blocked.items() if model not in asked}
        for call, block in zip(asking, results, strict=True):
            if block is not None:
                call.blockade = Blockade.begin(block, now)
                blocked.setdefault(call.model, call.blockade)
            elif call.future.done():
                # Its run was cancelled in the meantime.
                self._account.ahead.add(call.model, call.tokens)
            else:
                self._answer(call, self._begin_call(call.model, call.tokens))
        self._blocked = blocked
