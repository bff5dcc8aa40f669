"""Limits that several workers share through the database."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from django.db import connection

from flows.engine.call_gate import Throttled
from runs.limits.gate import create_gate
from runs.limits.ledger import PermitRequest, SettleRequest, settle_in_database
from runs.limits.rules import Limit, Rules
from runs.models import LimitLedger, RateLimit
from tests.engine.builders import make_usage
from tests.runs.limits.builders import MODEL, make_request

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]

_Result = TypeVar("_Result")

RULES = Rules((Limit(1, "", 5, 6_000, 60_000), Limit(2, "m", 4)))
WORKERS, REQUESTS = 3, 100


class CallCounter:
    """Counts calls in flight over all workers, and the most there were at once."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.now += count
            self.peak = max(self.peak, self.now)


def storm(owner: str, counter: CallCounter) -> int:
    """Ask for permits as fast as possible over a connection of its own; gives how many were granted."""
    held = total = 0
    try:
        for _ in range(REQUESTS):
            ended = random.randint(0, held)
            counter.add(-ended)
            held -= ended
            settlement = settle_in_database(
                SettleRequest(owner, {"m": held}, permits=[PermitRequest("m", 10)] * 3), RULES
            )
            begun = settlement.denials.count(None)
            counter.add(begun)
            held += begun
            total += begun
        counter.add(-held)
        settle_in_database(SettleRequest(owner, leaves=True), RULES)
    finally:
        connection.close()
    return total


def test_workers_that_race_for_permits_never_exceed_a_limit() -> None:
    settle_in_database(SettleRequest("first", leaves=True), Rules())
    began = LimitLedger.objects.get().state["as_of"]
    counter = CallCounter()
    with ThreadPoolExecutor(WORKERS) as pool:
        total = sum(pool.map(lambda number: storm(f"worker-{number}", counter), range(WORKERS)))
    state = LimitLedger.objects.get().state
    assert counter.peak == 4, "the narrowest limit, and all of it"
    bucket = RULES.limits[0].requests
    assert bucket is not None
    assert total <= bucket.size + bucket.rate * (state["as_of"] - began)
    assert state["owners"] == {}


async def ask(question: Callable[[], _Result]) -> _Result:
    """Do database work on a thread, as a worker does, and leave no connection behind."""

    def answer() -> _Result:
        try:
            return question()
        finally:
            connection.close()

    return await asyncio.to_thread(answer)


async def test_a_change_of_a_limit_reaches_all_workers() -> None:
    limit = await ask(lambda: RateLimit.objects.create(model="gpt-5*", calls_in_flight=1))
    one, other = create_gate(owner="worker-1", ask=ask), create_gate(owner="worker-2", ask=ask)
    await one.refresh()
    await other.refresh()
    assert (one.available_permits(MODEL), one.available_permits("gpt-4o")) == (1, None)
    permit = await one.enter(make_request())
    assert not isinstance(permit, Throttled)
    waiting = asyncio.create_task(other.enter(make_request()))
    permit.release(make_usage())
    assert not isinstance(await waiting, Throttled)
    limit.calls_in_flight = 2
    await ask(limit.save)
    await one.refresh()
    assert not isinstance(await one.enter(make_request()), Throttled)
    await one.close()
    await other.close()
    assert (await ask(LimitLedger.objects.get)).state["owners"] == {}


async def test_an_installation_without_limits_keeps_no_ledger() -> None:
    gate = create_gate(owner="worker-1", ask=ask)
    await gate.refresh()
    permit = gate.try_enter(make_request())
    assert permit is not None
    permit.release(make_usage())
    await gate.close()
    assert not await ask(LimitLedger.objects.exists)
