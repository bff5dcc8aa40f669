"""Where limits are kept: many processes at once, and a Redis that goes away."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from django.test import override_settings
from redis import Redis

from flows.engine.call_gate import Closed
from flows.engine.clock import SystemClock
from runs.limits import create_gate
from runs.limits.ledger import Ledger, Order, Want
from runs.limits.rules import Limit, Rules
from runs.limits.stores import DatabaseStore, FallbackStore, RedisStore, StoreAwayError, settle_in_database
from runs.models import LimitLedger, RateLimit
from tests.databases import name_test_database
from tests.engine.builders import make_usage
from tests.runs.limits.builders import MODEL, MemoryStore, make_request, make_rules
from tests.runs.limits.hammer import CallCounter, read_redis_options
from tests.warm_python import ROOT, run_python

_Result = TypeVar("_Result")

LIMITS = [Limit(1, "", 5, 6_000, 60_000), Limit(2, "m", 4)]
PROCESSES, ORDERS = 3, 150


async def ask(question: Callable[[], _Result]) -> _Result:
    """Do database work on a thread, as a drain does, and leave no connection behind."""

    def answer() -> _Result:
        try:
            return question()
        finally:
            connection.close()

    return await asyncio.to_thread(answer)


def run_hammers(tmp_path: Path, *, redis: str = "", key: str = "") -> tuple[int, int]:
    """Let processes hammer the same limits; gives the most calls there were at once, and the permits they got."""
    counter = CallCounter.create(tmp_path / "calls")
    values = {
        "orders": ORDERS,
        "counter": str(tmp_path / "calls"),
        "limits": [astuple(limit) for limit in LIMITS],
        "redis": redis,
        "key": key,
    }
    environment = {**os.environ, "DATABASE_URL": name_test_database(), "TOOLFLOW_DATA_DIR": str(tmp_path)}
    command = ("-m", "tests.runs.limits.hammer", json.dumps(values))
    with ThreadPoolExecutor(PROCESSES) as pool:
        hammers = [
            pool.submit(run_python, *command, cwd=ROOT, environment=environment, timeout=120) for _ in range(PROCESSES)
        ]
    granted = 0
    for hammer in hammers:
        done = hammer.result()
        assert done.returncode == 0, done.stderr
        granted += int(done.stdout)
    return counter.read_most(), granted


def check_hammered(ledger: Ledger, most: int, granted: int, *, began: float) -> None:
    bucket = LIMITS[0].requests
    assert bucket is not None
    assert most == 4, "as many as the narrowest limit allows, and never more"
    # In the store's own time.
    assert bucket.size <= granted <= bucket.size + bucket.rate * (ledger.as_of - began)
    assert ledger.to_document()["owners"] == {}


@pytest.fixture
def redis_key(redis_url: str) -> Iterator[str]:
    """A key under which there is nothing yet."""
    key = f"test-{uuid4().hex}:limits"
    yield key
    with Redis.from_url(redis_url) as client:
        client.delete(key)


@pytest.mark.django_db(transaction=True)
def test_processes_that_hammer_the_database_never_exceed_the_limits(tmp_path: Path) -> None:
    settle_in_database(Order("first", leaves=True), Rules())
    began = Ledger(LimitLedger.objects.get().state).as_of
    most, granted = run_hammers(tmp_path)
    check_hammered(Ledger(LimitLedger.objects.get().state), most, granted, began=began)


@pytest.mark.django_db(transaction=True)
@pytest.mark.any_database
def test_processes_that_hammer_redis_never_exceed_the_limits(tmp_path: Path, redis_url: str, redis_key: str) -> None:
    with Redis.from_url(redis_url, decode_responses=True) as client:
        began, _ = client.time()
        most, granted = run_hammers(tmp_path, redis=redis_url, key=redis_key)
        ledger = Ledger(json.loads(client.get(redis_key) or ""))
        assert client.pttl(redis_key) > 0, "it doesn't stay for ever"
    check_hammered(ledger, most, granted, began=began)


async def test_a_value_in_redis_that_is_no_ledger_is_replaced(redis_url: str, redis_key: str) -> None:
    with Redis.from_url(redis_url) as client:
        client.set(redis_key, "garbage")
    store = RedisStore(read_redis_options(redis_url), key=redis_key)
    answer = await store.settle(Order("a", wants=[Want(MODEL, 0)]), make_rules(calls_in_flight=1))
    assert answer.results == (None,)
    await store.close()


@pytest.mark.django_db(transaction=True)
async def test_without_redis_the_limits_hold_through_the_database(caplog: pytest.LogCaptureFixture) -> None:
    # Nobody listens there.
    away = RedisStore({"host": "127.0.0.1", "port": 1}, key="limits")
    rules = make_rules(calls_in_flight=1)
    one, other = (FallbackStore(away, DatabaseStore(ask)) for _ in range(2))
    for _ in range(3):
        assert (await one.settle(Order("a", {}, wants=[Want(MODEL, 0)]), rules)).results == (None,)
    (block,) = (await other.settle(Order("b", wants=[Want(MODEL, 0)]), rules)).results
    assert block is not None
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "Redis can't be reached; until it can, limits are kept in the database"
    ] * 2, "once for each drain"
    await one.close()


@pytest.mark.django_db(transaction=True)
async def test_a_redis_that_comes_back_is_used_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FallbackStore, "PAUSE", 0.0)
    first = MemoryStore(SystemClock())
    store = FallbackStore(first, DatabaseStore(ask))
    first.is_away = True
    await store.settle(Order("a"), Rules())
    first.is_away = False
    await store.settle(Order("a"), Rules())
    assert len(first.orders) == 1
    assert caplog.records[-1].getMessage() == "The limits are kept in Redis again."


async def test_a_database_that_is_away_is_said_to_be() -> None:
    async def fail(question: Callable[[], _Result]) -> _Result:
        raise OperationalError("the server closed the connection")

    with pytest.raises(StoreAwayError, match="closed the connection"):
        await DatabaseStore(fail).settle(Order("a"), Rules())


# The gates of drains, as workers make them


async def check_two_drains() -> None:
    """Two drains share one call in flight, and see that staff allow another one."""
    limit = await ask(lambda: RateLimit.objects.create(model="gpt-5*", calls_in_flight=1))
    one, other = create_gate(owner="drain-1", ask=ask), create_gate(owner="drain-2", ask=ask)
    await one.refresh()
    await other.refresh()
    assert (one.room(MODEL), one.room("gpt-4o")) == (1, None)
    permit = await one.enter(make_request())
    assert not isinstance(permit, Closed)
    waiting = asyncio.create_task(other.enter(make_request()))
    permit.leave(make_usage())
    second = await waiting
    assert not isinstance(second, Closed)
    await one.refresh()
    limit.calls_in_flight = 2
    await ask(limit.save)
    await one.refresh()
    assert not isinstance(await one.enter(make_request()), Closed)
    await one.close()
    await other.close()
    await ask(lambda: RateLimit.objects.all().delete())


@pytest.mark.django_db(transaction=True)
async def test_drains_share_a_limit_through_the_database() -> None:
    await check_two_drains()
    assert (await ask(LimitLedger.objects.get)).state["owners"] == {}


@pytest.mark.django_db(transaction=True)
async def test_drains_share_a_limit_through_redis(redis_url: str, redis_key: str) -> None:
    name = redis_key.partition(":")[0]
    with override_settings(Q_CLUSTER={"name": name, "redis": read_redis_options(redis_url)}):
        await check_two_drains()
    with Redis.from_url(redis_url, decode_responses=True) as client:
        assert json.loads(client.get(redis_key) or "")["owners"] == {}
    assert not await ask(LimitLedger.objects.exists)


@pytest.mark.django_db(transaction=True)
async def test_an_installation_without_limits_keeps_no_ledger() -> None:
    gate = create_gate(owner="drain-1", ask=ask)
    await gate.refresh()
    permit = gate.try_enter(make_request())
    assert permit is not None
    permit.leave(make_usage())
    await gate.close()
    assert not await ask(LimitLedger.objects.exists)
