"""The arithmetic of limits: what drains are granted, whatever they ask and however they end; and a storm on the row."""

from __future__ import annotations

import random
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from runs.limits.ledger import (
    GRACE_SECONDS,
    HOLDING_SECONDS,
    Ledger,
    PermitRequest,
    Settlement,
    SettleRequest,
    settle_in_database,
)
from runs.limits.rules import Limit, Rules
from runs.models import LimitLedger

MODEL = "gpt-5-mini"
NOW = 1_000_000.0


def limit(**fields: int) -> Rules:
    """One limit for all models."""
    return Rules((Limit(1, "", **fields),))


def ask(
    ledger: Ledger, rules: Rules, count: int = 1, *, owner: str = "a", now: float = NOW, held: int = 0, tokens: int = 0
) -> Settlement:
    permits = [PermitRequest(MODEL, tokens)] * count
    return ledger.settle(SettleRequest(owner, {MODEL: held}, permits=permits), rules, now)


def granted(answer: Settlement) -> int:
    return sum(denial is None for denial in answer.denials)


class TestCallsInFlight:
    @given(
        st.integers(1, 5),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=40),
    )
    def test_processes_never_hold_more_than_the_limit(self, most: int, turns: list[tuple[str, int, int, bool]]) -> None:
        rules, ledger, held = limit(calls_in_flight=most), Ledger(), dict.fromkeys("abc", 0)
        for number, (owner, ended, wanted, is_answer_lost) in enumerate(turns):
            held[owner] -= min(ended, held[owner])
            answer = ask(ledger, rules, wanted, owner=owner, now=NOW + number / 10, held=held[owner])
            if not is_answer_lost:
                held[owner] += granted(answer)
            assert sum(held.values()) <= most
        # Whatever got lost on the way: once all have spoken again, what is left is what none of them holds.
        for owner, count in held.items():
            answer = ask(ledger, rules, 0, owner=owner, now=NOW + 5, held=count)
        assert answer.left[1].calls == most - sum(held.values())

    def test_those_of_a_drain_that_is_not_heard_of_count_for_half_a_minute(self) -> None:
        rules, ledger = limit(calls_in_flight=2), Ledger()
        assert granted(ask(ledger, rules, 2, owner="dead")) == 2
        for passed in range(0, int(HOLDING_SECONDS), 5):
            assert granted(ask(ledger, rules, owner="live", now=NOW + passed)) == 0
        assert granted(ask(ledger, rules, 2, owner="live", now=NOW + HOLDING_SECONDS)) == 2

    def test_after_an_outage_of_the_store_drains_have_time_to_say_that_they_are_alive(self) -> None:
        rules, ledger = limit(calls_in_flight=1), Ledger()
        ask(ledger, rules, owner="silent")
        back = NOW + 10 * HOLDING_SECONDS
        assert granted(ask(ledger, rules, owner="first", now=back)) == 0
        assert granted(ask(ledger, rules, owner="first", now=back + GRACE_SECONDS)) == 1


class TestRequestsAndTokensAMinute:
    @given(st.integers(1, 400), st.lists(st.tuples(st.floats(0, 20), st.integers(0, 30)), max_size=60))
    def test_no_minute_sees_more_requests_than_the_limit(self, most: int, turns: list[tuple[float, int]]) -> None:
        rules, ledger, now = limit(requests_per_minute=most), Ledger(), NOW
        minute: deque[float] = deque()
        for pause, wanted in turns:
            now += pause
            minute.extend([now] * granted(ask(ledger, rules, wanted, now=now)))
            while minute and minute[0] <= now - 60:
                minute.popleft()
            assert len(minute) <= most

    def test_a_denial_says_what_is_short_and_for_how_long(self) -> None:
        rules, ledger = limit(requests_per_minute=60), Ledger()
        first, second, third, fourth = ask(ledger, rules, 4).denials
        assert first is None and second is None and third is not None and fourth is not None
        assert third.limit.describe(third.resource) == "Waits for the rate limit of all models: 60 requests a minute."
        assert granted(ask(ledger, rules, now=NOW + third.delay - 0.01)) == 0
        assert granted(ask(ledger, rules, 2, now=NOW + third.delay)) == 1
        assert fourth.delay == pytest.approx(2 * third.delay)

    @given(st.integers(1_000, 100_000), st.lists(st.integers(1, 5_000), min_size=1, max_size=60))
    def test_tokens_of_a_minute_exceed_the_limit_by_less_than_the_last_call(self, most: int, calls: list[int]) -> None:
        rules, ledger, now = limit(tokens_per_minute=most), Ledger(), NOW
        minute: deque[tuple[float, int]] = deque()
        for tokens in calls:
            while granted(answer := ask(ledger, rules, now=now, tokens=tokens)) == 0:
                denial = answer.denials[0]
                assert denial is not None
                now += max(denial.delay, 0.001)
            minute.append((now, tokens))
            while minute[0][0] <= now - 60:
                minute.popleft()
            assert sum(count for _, count in minute) - tokens <= most

    def test_what_a_call_really_used_corrects_the_estimate(self) -> None:
        rules, ledger = limit(tokens_per_minute=60_000), Ledger()
        ask(ledger, rules, tokens=500)
        used_more = ledger.settle(SettleRequest("a", tokens={MODEL: 4_000}), rules, NOW)
        assert used_more.left[1].tokens == 2_000 - 4_500
        used_less = ledger.settle(SettleRequest("a", tokens={MODEL: -9_000}), rules, NOW)
        assert used_less.left[1].tokens == 2_000, "never more than goes at once"


def test_a_call_must_pass_all_limits_that_cover_its_model_and_takes_nothing_where_one_refuses() -> None:
    rules = Rules((Limit(1, "", 3, requests_per_minute=6_000), Limit(2, "gpt-5*", 2), Limit(3, MODEL, 1)))
    permits = [PermitRequest(model, 0) for model in (MODEL, MODEL, "gpt-5", "gpt-5.1", "gpt-4o", "o3")]
    answer = Ledger().settle(SettleRequest("a", permits=permits), rules, NOW)
    assert [denial and denial.limit.model for denial in answer.denials] == [None, MODEL, None, "gpt-5*", None, ""]
    assert answer.left[1].requests == 200 - 3


def test_a_limit_that_is_new_or_changed_holds_at_once() -> None:
    ledger = Ledger()
    ask(ledger, limit(calls_in_flight=10), 8)
    assert granted(ask(ledger, limit(calls_in_flight=4), held=8)) == 0
    both = Rules((Limit(1, "", 10), Limit(2, MODEL, 8)))
    assert granted(ask(ledger, both, held=8)) == 0
    assert granted(ask(ledger, both, 2, held=7)) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.sql
def test_workers_that_race_for_permits_never_exceed_a_limit() -> None:
    rules = Rules((Limit(1, "", 5, 6_000, 60_000), Limit(2, "m", 4)))
    settle_in_database(SettleRequest("first", leaves=True), Rules())
    began = LimitLedger.objects.get().state["as_of"]
    lock = threading.Lock()
    in_flight, peaks = [0], [0]

    def count(change: int) -> None:
        with lock:
            in_flight[0] += change
            peaks.append(in_flight[0])

    def storm(owner: str) -> int:
        """Ask for permits as fast as possible over a connection of its own; gives how many were granted."""
        held = total = 0
        try:
            for _ in range(100):
                ended = random.randint(0, held)
                count(-ended)
                held -= ended
                request = SettleRequest(owner, {"m": held}, permits=[PermitRequest("m", 10)] * 3)
                begun = granted(settle_in_database(request, rules))
                count(begun)
                held += begun
                total += begun
            count(-held)
            settle_in_database(SettleRequest(owner, leaves=True), rules)
        finally:
            connection.close()
        return total

    with ThreadPoolExecutor(3) as pool:
        total = sum(pool.map(storm, ("worker-1", "worker-2", "worker-3")))
    state = LimitLedger.objects.get().state
    assert 0 < max(peaks) <= 4, "the narrowest limit"
    bucket = rules.limits[0].requests
    assert bucket is not None
    assert total <= bucket.size + bucket.rate * (state["as_of"] - began)
    assert state["owners"] == {}
