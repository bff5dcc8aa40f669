"""Limits, and gates whose ledger is in memory and whose clock stands still until all tasks sleep."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Coroutine
from datetime import datetime
from typing import Any

from django.db import OperationalError

from flows.engine.call_gate import Permit, Throttled
from flows.engine.clock import Clock
from runs.limits.gate import SharedGate
from runs.limits.ledger import Ledger, Settlement, SettleRequest
from runs.limits.rules import Limit, Rules
from tests.engine.builders import NOON, seconds

MODEL = "gpt-5-mini"


def make_rules(*limits: Limit, **fields: int) -> Rules:
    """These limits, or one for all models."""
    return Rules(limits or (Limit(1, "", **fields),))


def make_request(model: str = MODEL, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


class VirtualClock:
    """A clock on which time passes only when all tasks wait for it, as far as the first of them waits."""

    TURNS = 50
    """Turns of the event loop after which all tasks only wait."""

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


class MemoryLedger:
    """The ledger of several gates; answers while ``may_answer`` is set, or raises ``error``."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ledger = Ledger()
        self.requests: list[SettleRequest] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    async def settle(self, request: SettleRequest, rules: Rules) -> Settlement:
        if isinstance(self.error, OperationalError):
            raise self.error
        self.requests.append(request)
        settlement = self.ledger.settle(request, rules, self.clock.now().timestamp())
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return settlement


class Drains:
    """Gates of several drains, with limits that can be changed."""

    def __init__(self, rules: Rules) -> None:
        self.rules: Rules | None = rules
        """None while the database is away."""
        self.clock = VirtualClock()
        self.ledger = MemoryLedger(self.clock)

    async def load_rules(self) -> Rules:
        if self.rules is None:
            raise OperationalError("the database is away")
        return self.rules

    async def open_gate(self, owner: str = "drain-1") -> SharedGate:
        """The gate of a drain that has begun."""
        gate = SharedGate(owner=owner, settle=self.ledger.settle, load=self.load_rules, clock=self.clock)
        await gate.refresh()
        return gate


async def enter(gate: SharedGate, model: str = MODEL, **fields: Any) -> Permit:
    """Wait for a permit, which has to come."""
    entered = await gate.enter(make_request(model, **fields))
    assert not isinstance(entered, Throttled), entered
    return entered


async def start(entering: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin to enter, as far as that goes before anything else happens."""
    task = asyncio.create_task(entering)
    await asyncio.sleep(0)
    return task
