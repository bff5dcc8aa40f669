"""The gate before the calls of a drain: who waits, for how long, and what they learn."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from django.db import OperationalError, connection
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.call_gate import Permit, Throttled
from runs.limits import gate as gate_module
from runs.limits.gate import SharedGate, create_gate
from runs.limits.ledger import HOLDING_SECONDS, Ledger, Settlement, SettleRequest
from runs.limits.rules import Limit, Rules
from runs.models import LimitLedger, RateLimit
from runs.ownership import Owner
from tests.conftest import IS_LONG
from tests.engine.builders import NOON, make_usage, seconds
from tests.runs.builders import make_dead_owner

MODEL = "gpt-5-mini"
REQUEST = {"model": MODEL, "messages": [{"role": "user", "content": ""}]}
AWAY = OperationalError("it is away")
TIMEOUT = 30.0
"""Seconds after which a test gives up on what never happens."""


def limit(**fields: int) -> Rules:
    return Rules((Limit(1, MODEL, **fields),))


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
        """Let this number of seconds pass."""
        await self.sleep_until(self._now + seconds(count))

    async def _tick(self) -> None:
        while self._sleepers:
            for _ in range(self.TURNS):
                await asyncio.sleep(0)
            moment, _, wakes = heapq.heappop(self._sleepers)
            if not wakes.done():
                self._now = max(self._now, moment)
                wakes.set_result(None)


class Drains:
    """Gates of several drains, with a ledger in memory and limits that can be changed."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.clock = VirtualClock()
        self.requests: list[SettleRequest] = []
        self.error: Exception | None = None
        """What the database raises."""
        self.on_settled: Callable[[], object] | None = None
        """Called once permits are granted and before any call has them."""
        self._ledger = Ledger()

    async def _load(self) -> Rules:
        if self.error is not None:
            raise self.error
        return self.rules

    async def _settle(self, request: SettleRequest, rules: Rules) -> Settlement:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        settlement = self._ledger.settle(request, rules, self.clock.now().timestamp())
        if self.on_settled is not None and None in settlement.denials:
            self.on_settled()
        return settlement

    async def open_gate(self, owner: str = "drain-1") -> SharedGate:
        """The gate of a drain that has begun."""
        gate = SharedGate(owner=owner, settle=self._settle, load=self._load, clock=self.clock)
        await gate.refresh()
        return gate


async def enter(gate: SharedGate, request: dict[str, Any] = REQUEST) -> Permit:
    """Wait for a permit, which has to come."""
    entered = await gate.enter(request)
    assert not isinstance(entered, Throttled), entered
    return entered


TENTHS = st.integers(0, 40)
"""Tenths of seconds."""


@settings(max_examples=100 if IS_LONG else 6)
@given(
    most=st.integers(1, 3),
    calls=st.lists(st.tuples(TENTHS, TENTHS, st.none() | TENTHS), min_size=1, max_size=8),
    outage=st.none() | st.tuples(TENTHS, TENTHS),
)
async def test_whoever_waits_gives_up_or_is_cancelled_no_permit_is_lost_or_given_twice(
    most: int, calls: list[tuple[int, int, int | None]], outage: tuple[int, int] | None
) -> None:
    """``calls``: when each comes, how long it takes, and after how long its run is cancelled."""
    drains = Drains(limit(calls_in_flight=most))
    gates = [await drains.open_gate(f"drain-{number}") for number in range(2)]
    held = 0

    async def call(gate: SharedGate, duration: int) -> None:
        nonlocal held
        began = drains.clock.now()
        entered = await gate.enter(REQUEST)
        waited = drains.clock.now() - began
        assert waited < gate_module.MAX_WAIT + gate_module.OUTAGE_INTERVAL + timedelta(seconds=0.5)
        if isinstance(entered, Throttled):
            assert waited >= gate_module.MAX_WAIT and entered.until > drains.clock.now()
            return
        held += 1
        assert held <= most
        try:
            await drains.clock.pass_time(duration / 10)
        finally:
            held -= 1
            entered.release(make_usage())

    async def come(number: int, arrival: int, duration: int, patience: int | None) -> None:
        await drains.clock.pass_time(arrival / 10)
        task = asyncio.create_task(call(gates[number % 2], duration))
        if patience is not None:
            await drains.clock.pass_time(patience / 10)
            task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert result is None or isinstance(result, asyncio.CancelledError), result

    async def break_ledger(begin: int, length: int) -> None:
        await drains.clock.pass_time(begin / 10)
        drains.error = AWAY
        await drains.clock.pass_time(length / 10)
        drains.error = None

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        for number, one in enumerate(calls):
            tasks.create_task(come(number, *one))
        if outage is not None:
            tasks.create_task(break_ledger(*outage))
    for _ in range(most):
        await enter(gates[0])
    assert gates[0].available_permits(MODEL) == 0


async def test_calls_go_in_the_order_in_which_they_came_and_many_cost_one_request() -> None:
    drains = Drains(limit(calls_in_flight=80))
    gate = await drains.open_gate()
    asked = len(drains.requests)
    permits = await asyncio.gather(*(enter(gate) for _ in range(80)))
    assert len(drains.requests) == asked + 1
    order: list[int] = []

    async def call(number: int) -> None:
        permit = await enter(gate)
        order.append(number)
        permit.release(make_usage())

    tasks = [asyncio.create_task(call(number)) for number in range(5)]
    await asyncio.sleep(0)
    permits[0].release(make_usage())
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("rules", "waits", "sentence"),
    [
        (limit(calls_in_flight=1), 2, "Waits for the rate limit of gpt-5-mini: 1 call in flight."),
        # Its turn comes much later.
        (limit(requests_per_minute=1), 0, "Waits for the rate limit of gpt-5-mini: 1 request a minute."),
    ],
)
async def test_a_call_waits_two_seconds_if_that_may_help_and_learns_what_for(
    rules: Rules, waits: float, sentence: str
) -> None:
    drains = Drains(rules)
    gate = await drains.open_gate()
    await enter(gate)
    began = drains.clock.now()
    throttled = await gate.enter(REQUEST)
    assert isinstance(throttled, Throttled) and throttled.sentence == sentence
    assert timedelta(seconds=waits) <= drains.clock.now() - began < timedelta(seconds=waits + 0.5)
    assert throttled.until > drains.clock.now()


async def test_long_calls_stay_counted_for_as_long_as_they_take_and_those_of_a_dead_process_do_not() -> None:
    drains = Drains(limit(calls_in_flight=1))
    gone = await drains.open_gate(str(make_dead_owner()))
    await enter(gone)
    gate = await drains.open_gate(str(Owner.of_this_process()))
    end = drains.clock.now() + timedelta(seconds=1.5 * HOLDING_SECONDS)
    while drains.clock.now() < end:
        assert isinstance(await gate.enter(REQUEST), Throttled)
    await gate.refresh()
    await enter(gate)


async def test_what_calls_used_counts_once_also_if_the_ledger_was_away_meanwhile() -> None:
    drains = Drains(limit(tokens_per_minute=30_000))
    gate = await drains.open_gate()
    permit = await enter(gate)
    drains.error = AWAY
    permit.release(make_usage(20_000))
    permit.release(make_usage(20_000))
    for _ in range(3):
        throttled = await gate.enter(REQUEST)
        assert isinstance(throttled, Throttled) and "can be checked" in throttled.sentence
    await gate.refresh()
    assert gate.available_permits(MODEL) is not None, "the limits that are known stay in force"
    with pytest.raises(OperationalError):
        await drains.open_gate("fresh")
    drains.error = None
    await drains.clock.pass_time(2)
    throttled = await gate.enter(REQUEST)
    assert isinstance(throttled, Throttled)
    assert timedelta(seconds=20) < throttled.until - drains.clock.now() < timedelta(seconds=60)


_Result = TypeVar("_Result")


async def ask(question: Callable[[], _Result]) -> _Result:
    """Do database work on a thread, as a worker does, and leave no connection behind."""

    def answer() -> _Result:
        try:
            return question()
        finally:
            connection.close()

    return await asyncio.to_thread(answer)


@pytest.mark.django_db(transaction=True)
@pytest.mark.sql
async def test_a_change_of_a_limit_reaches_all_workers_which_give_everything_back_when_they_end() -> None:
    one, other = create_gate(owner="worker-1", ask=ask), create_gate(owner="worker-2", ask=ask)
    await one.refresh()
    assert one.try_enter(REQUEST) is not None
    assert not await ask(LimitLedger.objects.exists), "without limits there is no ledger"
    limit = await ask(lambda: RateLimit.objects.create(model="gpt-5*", calls_in_flight=1))
    await one.refresh()
    await other.refresh()
    assert (one.available_permits(MODEL), one.available_permits("gpt-4o")) == (1, None)
    permit = await enter(one)
    waiting = asyncio.create_task(other.enter(REQUEST))
    permit.release(make_usage())
    assert not isinstance(await waiting, Throttled)
    limit.calls_in_flight = 2
    await ask(limit.save)
    await one.refresh()
    await enter(one)
    late = asyncio.create_task(one.enter(REQUEST))
    await asyncio.sleep(0)
    await one.close()
    assert isinstance(await late, Throttled)
    await other.close()
    assert (await ask(LimitLedger.objects.get)).state["owners"] == {}
