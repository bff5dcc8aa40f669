"""The gate before the calls of a drain when limits change, runs are cancelled, or something fails."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError

from flows.engine.call_gate import Closed
from flows.engine.clock import SystemClock
from runs.limits import SharedGate
from runs.limits import gate as gate_module
from runs.limits.rules import Limit, Rules
from tests.engine.builders import make_usage
from tests.runs.limits.builders import MODEL, Drains, enter, make_request, make_rules, start

PATIENCE = 30.0
"""Seconds after which a test gives up on what never comes about."""


async def test_a_limit_that_is_changed_holds_from_the_next_heartbeat() -> None:
    drains = Drains(Rules())
    gate = await drains.open_gate()
    drains.rules = make_rules(calls_in_flight=1)
    await gate.refresh()
    permit = await enter(gate)
    assert gate.room(MODEL) == 0
    waiting = await start(gate.enter(make_request()))
    drains.rules = make_rules(calls_in_flight=2)
    await gate.refresh()
    second = await waiting
    assert not isinstance(second, Closed)
    drains.rules = Rules()
    await gate.refresh()
    assert gate.room(MODEL) is None
    permit.leave(make_usage())
    second.leave(make_usage())


async def test_calls_that_wait_go_at_once_when_the_limit_is_taken_away() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    await enter(gate)
    waiting = await start(gate.enter(make_request()))
    await drains.clock.pass_time(0.1)
    drains.rules = Rules()
    began = drains.clock.now()
    await gate.refresh()
    assert not isinstance(await waiting, Closed)
    assert drains.clock.now() - began <= gate_module.PACE


async def test_a_run_that_is_cancelled_while_it_waits_leaves_its_place_to_others() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    permit = await enter(gate)
    cancelled = await start(gate.enter(make_request()))
    second = await start(gate.enter(make_request()))
    cancelled.cancel()
    permit.leave(make_usage())
    assert not isinstance(await second, Closed)


async def test_a_permit_that_comes_in_the_moment_of_the_cancel_is_given_back() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    permit = await enter(gate)
    cancelled = await start(gate.enter(make_request()))
    asked = len(drains.store.orders)
    permit.leave(make_usage())
    for _ in range(100):
        await asyncio.sleep(0)
        if len(drains.store.orders) > asked:
            break
    assert not cancelled.done(), "it has its permit, but has not heard of it yet"
    cancelled.cancel()
    assert not isinstance(await gate.enter(make_request()), Closed)
    with pytest.raises(asyncio.CancelledError):
        await cancelled


@pytest.mark.parametrize("error", [None, RuntimeError("a bug of ours")])
async def test_a_cancel_in_the_moment_in_which_all_are_told_concerns_nobody_else(error: RuntimeError | None) -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    await enter(gate)
    drains.store.may_answer.clear()
    waiting = [await start(gate.enter(make_request())) for _ in range(5)]
    await drains.clock.pass_time(gate_module.PATIENCE.total_seconds() + 1)
    drains.store.error = error
    drains.store.may_answer.set()
    waiting[0].cancel()
    async with asyncio.timeout(PATIENCE):
        first, *others = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert all(other is error if error else isinstance(other, Closed) for other in others), others
    assert not gate._waiting and gate._waiting.count(MODEL) == 0


async def test_a_permit_for_a_run_that_was_cancelled_meanwhile_goes_to_the_next() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    drains.store.may_answer.clear()
    cancelled = await start(gate.enter(make_request()))
    second = await start(gate.enter(make_request()))
    await drains.clock.pass_time(0.1)
    drains.store.may_answer.set()
    cancelled.cancel()
    assert not isinstance(await second, Closed)


async def test_calls_wait_while_the_ledger_is_away_and_fail_never(caplog: pytest.LogCaptureFixture) -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    drains.store.is_away = True
    for _ in range(3):
        closed = await gate.enter(make_request())
        assert isinstance(closed, Closed)
        assert closed.sentence == "Waits until the limits of the provider can be looked up."
    assert len(caplog.records) == 1
    drains.store.is_away = False
    await enter(gate)


async def test_what_calls_used_while_the_ledger_was_away_counts_once_it_is_back() -> None:
    drains = Drains(make_rules(tokens_per_minute=30_000))
    gate = await drains.open_gate()
    permit = await enter(gate)
    drains.store.is_away = True
    permit.leave(make_usage(20_000))
    await drains.clock.pass_time(5)
    drains.store.is_away = False
    await drains.clock.pass_time(2)
    assert gate.room(MODEL) == 0
    closed = await gate.enter(make_request())
    assert isinstance(closed, Closed) and closed.until > drains.clock.now() + timedelta(seconds=20)


async def test_limits_that_cannot_be_read_again_go_on_to_hold() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()

    async def fail() -> Rules:
        raise OperationalError("the database is away")

    gate._read_rules = fail
    await gate.refresh()
    assert gate.room(MODEL) == 1
    fresh = SharedGate(owner="fresh", store=drains.store, read_rules=fail, clock=drains.clock)
    with pytest.raises(OperationalError):
        await fresh.refresh()


async def test_a_drain_that_ends_gives_everything_back() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate("drain-1")
    await enter(gate)
    waiting = await start(gate.enter(make_request()))
    await gate.close()
    assert isinstance(await waiting, Closed)
    assert not isinstance(await (await drains.open_gate("drain-2")).enter(make_request()), Closed)


async def test_a_host_whose_clock_is_set_back_goes_on_to_make_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    drains = Drains(make_rules(Limit(1, MODEL, 1), Limit(2, "gpt-4o", requests_per_minute=1)))
    gate = SharedGate(owner="drain-1", store=drains.store, read_rules=drains.read_rules)
    await gate.refresh()
    drains.store.may_answer.clear()
    first = await start(enter(gate))
    await asyncio.sleep(0)
    assert len(drains.store.orders) == 2, "it has asked"
    before = datetime.now(UTC)
    monkeypatch.setattr(SystemClock, "now", lambda clock: before - timedelta(hours=1))
    drains.store.may_answer.set()
    async with asyncio.timeout(PATIENCE):
        waiting = await start(gate.enter(make_request()))
        (await first).leave(make_usage())
        assert not isinstance(await waiting, Closed)
        await enter(gate, "gpt-4o")
        closed = await gate.enter(make_request("gpt-4o"))
    assert isinstance(closed, Closed)
    assert timedelta(seconds=50) < closed.until - SystemClock().now() < timedelta(seconds=70), "a time of this host"
    await gate.close()
