"""Limits, and gates whose ledger is in memory and whose clock stands still until somebody sleeps."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Coroutine
from datetime import datetime
from typing import Any

from flows.engine.call_gate import Closed, Permit
from flows.engine.clock import Clock
from runs.limits import SharedGate
from runs.limits.ledger import Answer, Ledger, Order
from runs.limits.rules import Limit, Rules
from runs.limits.stores import StoreAwayError
from tests.engine.builders import NOON, seconds

MODEL = "gpt-5-mini"


def make_rules(*limits: Limit, **fields: int) -> Rules:
    """These limits, or one for all models."""
    return Rules(limits or [Limit(1, "", **fields)])


def make_request(model: str = MODEL, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


class VirtualClock:
    """A clock on which time passes only when everybody waits for that, and then as far as the first of them waits."""

    TURNS = 50
    """Turns of the event loop after which nobody has anything to do but wait."""

    def __init__(self) -> None:
        self._now = NOON
        self._numbers = itertools.count()
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._ticking: asyncio.Task[None] | None = None

    def now(self) -> datetime:
        return self._now

    async def sleep_until(self, moment: datetime) -> None:
        if moment <= self._now:
            await asyncio.sleep(0)
            return
        wakes: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (moment, next(self._numbers), wakes))
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick())
        await wakes

    async def pass_time(self, count: float) -> None:
        """Let so many seconds pass."""
        await self.sleep_until(self._now + seconds(count))

    async def _tick(self) -> None:
        while self._sleepers:
            for _ in range(self.TURNS):
                await asyncio.sleep(0)
            moment, _, wakes = heapq.heappop(self._sleepers)
            if not wakes.done():
                self._now = max(self._now, moment)
                wakes.set_result(None)


class MemoryStore:
    """A store that several gates of a test share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ledger = Ledger()
        self.orders: list[Order] = []
        self.is_away = False

    async def settle(self, order: Order, rules: Rules) -> Answer:
        if self.is_away:
            raise StoreAwayError("it is away")
        self.orders.append(order)
        return self.ledger.settle(order, rules, self.clock.now().timestamp())

    async def close(self) -> None:
        pass


class HeldStore(MemoryStore):
    """A store that answers no order as long as ``may_answer`` isn't set, and then perhaps with an error of ours."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    async def settle(self, order: Order, rules: Rules) -> Answer:
        answer = await super().settle(order, rules)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return answer


class Drains:
    """Gates of several drains, with limits that can be changed."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.clock = VirtualClock()
        self.store = HeldStore(self.clock)

    async def read_rules(self) -> Rules:
        return self.rules

    async def open_gate(self, owner: str = "drain-1") -> SharedGate:
        """The gate of a drain that has begun."""
        gate = SharedGate(owner=owner, store=self.store, read_rules=self.read_rules, clock=self.clock)
        await gate.refresh()
        return gate


async def enter(gate: SharedGate, model: str = MODEL, **fields: Any) -> Permit:
    """Wait for a permit, which has to come."""
    entered = await gate.enter(make_request(model, **fields))
    assert not isinstance(entered, Closed), entered
    return entered


async def start(entering: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin to enter, as far as that goes before anything else happens."""
    task = asyncio.create_task(entering)
    await asyncio.sleep(0)
    return task
