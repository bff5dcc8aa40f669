"""The gate before the calls of a drain: who waits, for how long, and what they are told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.db import OperationalError
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.call_gate import OpenGate, Throttled
from flows.engine.history import NO_USAGE
from runs.limits import gate as gate_module
from runs.limits.gate import SharedGate
from runs.limits.ledger import HOLDING_SECONDS
from runs.limits.rules import Limit, Rules
from runs.ownership import Owner
from tests.engine.builders import make_usage
from tests.runs.limits.builders import MODEL, Drains, enter, make_request, make_rules, start

TIMEOUT = 30.0
"""Seconds after which a test gives up on what never happens."""


async def test_calls_that_no_limit_covers_go_at_once_and_are_not_counted() -> None:
    drains = Drains(Rules())
    gate = await drains.open_gate()
    assert isinstance(gate.try_enter(make_request()), OpenGate)
    assert gate.available_permits(MODEL) is None
    drains.rules = make_rules(Limit(1, "gpt-5*", 1))
    await gate.refresh()
    await enter(gate)
    drains.ledger.requests.clear()
    assert gate.try_enter(make_request("gpt-4o")) is not None
    assert gate.available_permits("gpt-4o") is None and gate.available_permits(MODEL) == 0
    assert drains.ledger.requests == []


TENTHS = st.integers(0, 40)
"""Tenths of seconds."""


@settings(max_examples=15)
@given(
    limit=st.integers(1, 3),
    calls=st.lists(st.tuples(TENTHS, TENTHS, st.none() | TENTHS), min_size=1, max_size=8),
    outage=st.none() | st.tuples(TENTHS, TENTHS),
)
async def test_whoever_waits_gives_up_or_is_cancelled_no_permit_is_lost_or_given_twice(
    limit: int, calls: list[tuple[int, int, int | None]], outage: tuple[int, int] | None
) -> None:
    """``calls``: when each comes, how long it takes, and after how long its run is cancelled."""
    drains = Drains(make_rules(calls_in_flight=limit))
    gates = [await drains.open_gate(f"drain-{number}") for number in range(2)]
    held = 0

    async def call(gate: SharedGate, duration: int) -> None:
        nonlocal held
        began = drains.clock.now()
        entered = await gate.enter(make_request())
        waited = drains.clock.now() - began
        assert waited < gate_module.MAX_WAIT + gate_module.OUTAGE_INTERVAL + timedelta(seconds=0.5)
        if isinstance(entered, Throttled):
            assert waited >= gate_module.MAX_WAIT and entered.until > drains.clock.now()
            return
        held += 1
        assert held <= limit
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
        drains.ledger.error = OperationalError("it is away")
        await drains.clock.pass_time(length / 10)
        drains.ledger.error = None

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        for number, one in enumerate(calls):
            tasks.create_task(come(number, *one))
        if outage is not None:
            tasks.create_task(break_ledger(*outage))
    for _ in range(limit):
        await enter(gates[0])
    assert gates[0].available_permits(MODEL) == 0


async def test_calls_go_in_the_order_in_which_they_came() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    first = await enter(gate)
    order: list[int] = []

    async def call(number: int) -> None:
        permit = await enter(gate)
        order.append(number)
        permit.release(make_usage())

    tasks = [await start(call(number)) for number in range(5)]
    first.release(make_usage())
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


async def test_a_call_waits_two_seconds_for_another_to_end_and_then_says_what_for() -> None:
    drains = Drains(make_rules(Limit(1, MODEL, 20)))
    gate = await drains.open_gate()
    for _ in range(20):
        await enter(gate)
    began = drains.clock.now()
    throttled = await gate.enter(make_request())
    assert isinstance(throttled, Throttled)
    assert throttled.sentence == "Waits for the rate limit of gpt-5-mini: 20 calls in flight."
    waited = drains.clock.now() - began
    assert gate_module.MAX_WAIT <= waited < gate_module.MAX_WAIT + timedelta(seconds=0.5)
    assert throttled.until > drains.clock.now()


async def test_a_call_whose_turn_comes_much_later_is_sent_away_at_once() -> None:
    drains = Drains(make_rules(Limit(1, MODEL, requests_per_minute=1)))
    gate = await drains.open_gate()
    await enter(gate)
    began = drains.clock.now()
    throttled = await gate.enter(make_request())
    assert isinstance(throttled, Throttled) and throttled.until - began >= timedelta(seconds=59)
    assert throttled.sentence == "Waits for the rate limit of gpt-5-mini: 1 request a minute."
    assert drains.clock.now() - began < timedelta(seconds=1)


async def test_many_calls_that_come_together_cost_one_order() -> None:
    drains = Drains(make_rules(calls_in_flight=100))
    gate = await drains.open_gate()
    asked = len(drains.ledger.requests)
    await asyncio.gather(*(enter(gate) for _ in range(80)))
    assert len(drains.ledger.requests) == asked + 1


async def test_long_calls_stay_counted_for_as_long_as_they_take() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    one, other = await drains.open_gate("drain-1"), await drains.open_gate("drain-2")
    await enter(one)
    end = drains.clock.now() + timedelta(seconds=3 * HOLDING_SECONDS)
    while drains.clock.now() < end:
        assert isinstance(await other.enter(make_request()), Throttled)


async def test_a_drain_whose_process_died_gives_way_in_the_next_heartbeat() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    # An owner on this machine whose process started at another time: that one is gone.
    ours = Owner.of_this_process()
    dead = Owner(ours.host, ours.boot, ours.namespace, ours.pid, "1", "dead")
    gone = await drains.open_gate(str(dead))
    await enter(gone)
    gate = await drains.open_gate(str(ours))
    assert gate.available_permits(MODEL) == 0
    drains.ledger.requests.clear()
    await gate.refresh()
    assert not isinstance(await gate.enter(make_request()), Throttled)
    assert drains.ledger.requests[0].gone == (str(dead),)


# Tokens


async def test_the_real_usage_of_a_call_counts_once_it_is_known() -> None:
    drains = Drains(make_rules(tokens_per_minute=30_000))
    gate = await drains.open_gate()
    permit = await enter(gate, max_completion_tokens=100)
    permit.release(make_usage(20_000))
    permit.release(make_usage(20_000))
    await drains.clock.pass_time(1)
    throttled = await gate.enter(make_request())
    while not isinstance(throttled, Throttled):
        throttled.release(NO_USAGE)
        throttled = await gate.enter(make_request())
    assert timedelta(seconds=30) < throttled.until - drains.clock.now() < timedelta(seconds=60)


# Room for claims


async def test_no_more_runs_are_claimed_than_can_call() -> None:
    drains = Drains(make_rules(Limit(1, MODEL, 10, 60)))
    gate = await drains.open_gate()
    assert gate.available_permits(MODEL) == 2
    await enter(gate)
    assert gate.available_permits(MODEL) == 1
    await enter(gate)
    assert gate.available_permits(MODEL) == 0
    await drains.clock.pass_time(1.1)
    assert gate.available_permits(MODEL) == 1
    drains = Drains(make_rules(calls_in_flight=10))
    gates = [await drains.open_gate(f"drain-{number}") for number in range(3)]
    assert gates[-1].available_permits(MODEL) == 4, "several drains share what is left"


async def test_calls_that_wait_already_come_before_new_runs() -> None:
    drains = Drains(make_rules(calls_in_flight=2))
    gate = await drains.open_gate()
    permits = [await enter(gate) for _ in range(2)]
    waiting = await start(gate.enter(make_request()))
    permits[0].release(make_usage())
    assert gate.available_permits(MODEL) == 0
    await waiting
    permits[1].release(make_usage())
    await drains.clock.pass_time(0.1)
    assert gate.available_permits(MODEL) == 1


# Changes, cancelled runs and failures


async def test_a_limit_that_is_changed_holds_from_the_next_heartbeat() -> None:
    drains = Drains(Rules())
    gate = await drains.open_gate()
    drains.rules = make_rules(calls_in_flight=1)
    await gate.refresh()
    permit = await enter(gate)
    assert gate.available_permits(MODEL) == 0
    waiting = await start(gate.enter(make_request()))
    drains.rules = make_rules(calls_in_flight=2)
    await gate.refresh()
    second = await waiting
    assert not isinstance(second, Throttled)
    drains.rules = Rules()
    await gate.refresh()
    assert gate.available_permits(MODEL) is None
    permit.release(make_usage())
    second.release(make_usage())


async def test_a_permit_that_comes_in_the_moment_of_the_cancel_is_given_back() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    permit = await enter(gate)
    cancelled = await start(gate.enter(make_request()))
    asked = len(drains.ledger.requests)
    permit.release(make_usage())
    for _ in range(100):
        await asyncio.sleep(0)
        if len(drains.ledger.requests) > asked:
            break
    assert not cancelled.done(), "it has its permit, but has not heard of it yet"
    cancelled.cancel()
    assert not isinstance(await gate.enter(make_request()), Throttled)
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_bug_of_ours_is_told_to_all_that_wait_but_those_that_were_cancelled() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    drains.ledger.may_answer.clear()
    drains.ledger.error = RuntimeError("a bug of ours")
    waiting = [await start(gate.enter(make_request())) for _ in range(3)]
    drains.ledger.may_answer.set()
    waiting[0].cancel()
    async with asyncio.timeout(TIMEOUT):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, RuntimeError, RuntimeError]


async def test_calls_wait_while_the_ledger_is_away_and_fail_never(caplog: pytest.LogCaptureFixture) -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    drains.ledger.error = OperationalError("it is away")
    for _ in range(3):
        throttled = await gate.enter(make_request())
        assert isinstance(throttled, Throttled)
        assert throttled.sentence == "Waits until the limits of the provider can be looked up."
    assert len(caplog.records) == 1
    drains.ledger.error = None
    await enter(gate)


async def test_what_calls_used_while_the_ledger_was_away_counts_once_it_is_back() -> None:
    drains = Drains(make_rules(tokens_per_minute=30_000))
    gate = await drains.open_gate()
    permit = await enter(gate)
    drains.ledger.error = OperationalError("it is away")
    permit.release(make_usage(20_000))
    await drains.clock.pass_time(5)
    drains.ledger.error = None
    await drains.clock.pass_time(2)
    assert gate.available_permits(MODEL) == 0
    throttled = await gate.enter(make_request())
    assert isinstance(throttled, Throttled) and throttled.until > drains.clock.now() + timedelta(seconds=20)


async def test_limits_that_cannot_be_loaded_again_stay_in_force() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    drains.rules = None
    await gate.refresh()
    assert gate.available_permits(MODEL) == 1
    with pytest.raises(OperationalError):
        await drains.open_gate("fresh")


async def test_a_drain_that_ends_gives_everything_back() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate("drain-1")
    await enter(gate)
    waiting = await start(gate.enter(make_request()))
    await gate.close()
    assert isinstance(await waiting, Throttled)
    assert not isinstance(await (await drains.open_gate("drain-2")).enter(make_request()), Throttled)
