"""The gate before the calls of a drain: who waits, for how long, and what they are told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from flows.engine.call_gate import Closed, OpenGate
from flows.engine.usage import NO_USAGE
from runs.limits import gate as gate_module
from runs.limits.ledger import HOLDING_LIFE
from runs.limits.rules import Limit, Rules
from runs.ownership import Owner
from tests.engine.builders import make_usage
from tests.runs.limits.builders import MODEL, Drains, enter, make_request, make_rules, start


async def test_without_limits_calls_go_at_once_and_nothing_is_counted() -> None:
    drains = Drains(Rules())
    gate = await drains.open_gate()
    assert gate.try_enter(make_request()) is OpenGate().try_enter({})
    assert gate.room(MODEL) is None
    await gate.close()
    assert drains.store.orders == []


async def test_models_that_no_limit_covers_are_not_held_up() -> None:
    drains = Drains(make_rules(Limit(1, "gpt-5*", 1)))
    gate = await drains.open_gate()
    await enter(gate)
    assert gate.try_enter(make_request("gpt-4o")) is not None
    assert gate.room("gpt-4o") is None and gate.room(MODEL) == 0


async def test_calls_go_in_the_order_in_which_they_came() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    first = await enter(gate)
    order: list[int] = []

    async def call(number: int) -> None:
        permit = await enter(gate)
        order.append(number)
        permit.leave(make_usage())

    tasks = [await start(call(number)) for number in range(5)]
    first.leave(make_usage())
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


async def test_a_call_that_waits_for_another_model_holds_up_nobody() -> None:
    drains = Drains(make_rules(Limit(1, MODEL, 1)))
    gate = await drains.open_gate()
    await enter(gate)
    waiting = await start(gate.enter(make_request()))
    await enter(gate, "gpt-4o")
    assert isinstance(await waiting, Closed)


async def test_a_call_waits_two_seconds_for_another_to_end_and_then_says_what_for() -> None:
    drains = Drains(make_rules(Limit(1, MODEL, 20)))
    gate = await drains.open_gate()
    for _ in range(20):
        await enter(gate)
    began = drains.clock.now()
    closed = await gate.enter(make_request())
    assert isinstance(closed, Closed)
    assert closed.sentence == "Waits for the rate limit of gpt-5-mini: 20 calls in flight."
    waited = drains.clock.now() - began
    assert gate_module.PATIENCE <= waited < gate_module.PATIENCE + timedelta(seconds=0.5)
    assert closed.until > drains.clock.now()


async def test_a_call_whose_turn_comes_much_later_is_sent_away_at_once() -> None:
    drains = Drains(make_rules(Limit(1, MODEL, requests_per_minute=1)))
    gate = await drains.open_gate()
    await enter(gate)
    began = drains.clock.now()
    closed = await gate.enter(make_request())
    assert isinstance(closed, Closed) and closed.until - began >= timedelta(seconds=59)
    assert closed.sentence == "Waits for the rate limit of gpt-5-mini: 1 request a minute."
    orders = len(drains.store.orders)
    for _ in range(100):
        assert isinstance(await gate.enter(make_request()), Closed)
    assert len(drains.store.orders) == orders, "it is known already"
    assert drains.clock.now() - began < timedelta(seconds=1)


async def test_many_calls_that_come_together_cost_one_order() -> None:
    drains = Drains(make_rules(calls_in_flight=100))
    gate = await drains.open_gate()
    asked = len(drains.store.orders)
    await asyncio.gather(*(enter(gate) for _ in range(80)))
    assert len(drains.store.orders) == asked + 1


async def test_a_model_that_is_asked_often_gets_permits_ahead_and_gives_back_those_it_does_not_need() -> None:
    drains = Drains(make_rules(requests_per_minute=60_000))
    gate = await drains.open_gate()
    immediate = 0
    for _ in range(30):
        for _ in range(20):
            permit = gate.try_enter(make_request())
            immediate += permit is not None
            (permit or await enter(gate)).leave(make_usage())
        await drains.clock.pass_time(0.1)
    assert immediate > 300
    asked = sum(len(order.wants) for order in drains.store.orders)
    assert asked < 2 * 600

    await drains.clock.pass_time(3)
    returned = sum(order.unused.get(MODEL, 0) for order in drains.store.orders)
    taken = sum(len(order.wants) for order in drains.store.orders)
    assert taken - returned == 600


async def test_a_drain_with_many_calls_gives_way_to_another_once_they_end() -> None:
    drains = Drains(make_rules(calls_in_flight=3))
    one, other = await drains.open_gate("drain-1"), await drains.open_gate("drain-2")
    permits = [await enter(one) for _ in range(3)]
    waiting = await start(other.enter(make_request()))
    permits[0].leave(make_usage())
    assert not isinstance(await waiting, Closed)


async def test_long_calls_stay_counted_for_as_long_as_they_take() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    one, other = await drains.open_gate("drain-1"), await drains.open_gate("drain-2")
    await enter(one)
    end = drains.clock.now() + timedelta(seconds=3 * HOLDING_LIFE)
    while drains.clock.now() < end:
        assert isinstance(await other.enter(make_request()), Closed)


async def test_a_drain_whose_process_died_gives_way_in_the_next_heartbeat() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    # An owner on this machine whose process started at another time: that one is gone.
    ours = Owner.of_this_process()
    dead = Owner(ours.host, ours.boot, ours.namespace, ours.pid, "1", "dead")
    gone = await drains.open_gate(str(dead))
    await enter(gone)
    gate = await drains.open_gate(str(ours))
    assert gate.room(MODEL) == 0
    drains.store.orders.clear()
    await gate.refresh()
    assert not isinstance(await gate.enter(make_request()), Closed)
    assert drains.store.orders[0].gone == (str(dead),)


# Tokens


async def test_the_real_usage_of_a_call_counts_once_it_is_known() -> None:
    drains = Drains(make_rules(tokens_per_minute=30_000))
    gate = await drains.open_gate()
    permit = await enter(gate, max_completion_tokens=100)
    permit.leave(make_usage(20_000))
    permit.leave(make_usage(20_000))
    await drains.clock.pass_time(1)
    closed = await gate.enter(make_request())
    while not isinstance(closed, Closed):
        closed.leave(NO_USAGE)
        closed = await gate.enter(make_request())
    assert timedelta(seconds=30) < closed.until - drains.clock.now() < timedelta(seconds=60)


async def test_a_call_that_was_not_made_after_all_uses_no_tokens() -> None:
    drains = Drains(make_rules(tokens_per_minute=30_000))
    gate = await drains.open_gate()
    for _ in range(50):
        (await enter(gate, text="x" * 3_600)).leave(NO_USAGE)


async def test_a_call_larger_than_the_limit_is_made_in_the_end() -> None:
    drains = Drains(make_rules(tokens_per_minute=100))
    gate = await drains.open_gate()
    made = 0
    for _ in range(200):
        entered = await gate.enter(make_request(max_completion_tokens=1_000))
        if isinstance(entered, Closed):
            await drains.clock.sleep_until(entered.until)
            continue
        entered.leave(make_usage(1_000))
        made += 1
        if made == 3:
            return
    pytest.fail("It never came to its turn.")


# Room for claims


async def test_no_more_runs_are_claimed_than_can_call() -> None:
    drains = Drains(make_rules(Limit(1, MODEL, 10, 60)))
    gate = await drains.open_gate()
    assert gate.room(MODEL) == 2
    gate.expect_call(MODEL)
    assert gate.room(MODEL) == 1
    await enter(gate)
    assert gate.room(MODEL) == 1
    await enter(gate)
    assert gate.room(MODEL) == 0
    await drains.clock.pass_time(1.1)
    assert gate.room(MODEL) == 1


async def test_a_run_that_was_claimed_and_did_not_come_blocks_its_place_for_two_seconds() -> None:
    drains = Drains(make_rules(calls_in_flight=1))
    gate = await drains.open_gate()
    gate.expect_call(MODEL)
    assert gate.room(MODEL) == 0
    await drains.clock.pass_time(2)
    assert gate.room(MODEL) == 1


async def test_several_drains_share_what_is_left() -> None:
    drains = Drains(make_rules(calls_in_flight=10))
    gates = [await drains.open_gate(f"drain-{number}") for number in range(3)]
    assert gates[-1].room(MODEL) == 4


async def test_calls_that_wait_already_come_before_new_runs() -> None:
    drains = Drains(make_rules(calls_in_flight=2))
    gate = await drains.open_gate()
    permits = [await enter(gate) for _ in range(2)]
    waiting = await start(gate.enter(make_request()))
    permits[0].leave(make_usage())
    assert gate.room(MODEL) == 0
    await waiting
    permits[1].leave(make_usage())
    assert gate.room(MODEL) == 1
