"""The arithmetic of limits: what drains are granted, whatever they ask and however they end."""

from __future__ import annotations

import json
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.limits.ledger import GRACE_SECONDS, HOLDING_SECONDS, Ledger, PermitRequest, Settlement, SettleRequest
from runs.limits.rules import Limit, Resource, Rules
from tests.runs.limits.builders import MODEL, make_rules

NOW = 1_000_000.0


def ask(
    ledger: Ledger, rules: Rules, count: int = 1, *, owner: str = "a", now: float = NOW, held: int = 0, tokens: int = 0
) -> Settlement:
    permits = [PermitRequest(MODEL, tokens)] * count
    return ledger.settle(SettleRequest(owner, {MODEL: held}, permits=permits), rules, now)


def granted(answer: Settlement) -> int:
    return sum(denial is None for denial in answer.denials)


# Calls in flight


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=40),
)
def test_processes_never_hold_more_calls_than_the_limit(limit: int, turns: list[tuple[str, int, int, bool]]) -> None:
    rules, ledger, held = make_rules(calls_in_flight=limit), Ledger(), dict.fromkeys("abc", 0)
    for number, (owner, ended, wanted, is_answer_lost) in enumerate(turns):
        held[owner] -= min(ended, held[owner])
        answer = ask(ledger, rules, wanted, owner=owner, now=NOW + number / 10, held=held[owner])
        if not is_answer_lost:
            held[owner] += granted(answer)
        assert sum(held.values()) <= limit
    # Whatever got lost on the way: once all have spoken again, what is left is what nobody holds.
    for owner, count in held.items():
        answer = ask(ledger, rules, 0, owner=owner, now=NOW + 5, held=count)
    assert answer.left[1].calls == limit - sum(held.values())


def test_the_calls_of_a_drain_that_is_not_heard_of_count_for_half_a_minute() -> None:
    rules, ledger = make_rules(calls_in_flight=2), Ledger()
    assert granted(ask(ledger, rules, 2, owner="dead")) == 2
    for passed in range(0, int(HOLDING_SECONDS), 5):
        assert granted(ask(ledger, rules, owner="live", now=NOW + passed)) == 0
    assert granted(ask(ledger, rules, 2, owner="live", now=NOW + HOLDING_SECONDS)) == 2


def test_a_drain_whose_process_is_known_to_be_gone_holds_nothing() -> None:
    rules, ledger = make_rules(calls_in_flight=1), Ledger()
    ask(ledger, rules, owner="dead")
    assert (
        granted(ledger.settle(SettleRequest("live", permits=[PermitRequest(MODEL, 0)], gone=["dead"]), rules, NOW)) == 1
    )


def test_after_an_outage_of_the_store_drains_have_time_to_say_that_they_are_alive() -> None:
    rules, ledger = make_rules(calls_in_flight=1), Ledger()
    ask(ledger, rules, owner="silent")
    back = NOW + 10 * HOLDING_SECONDS
    assert granted(ask(ledger, rules, owner="first", now=back)) == 0
    assert granted(ask(ledger, rules, owner="first", now=back + GRACE_SECONDS)) == 1


def test_a_drain_that_leaves_gives_everything_back() -> None:
    rules, ledger = make_rules(calls_in_flight=1), Ledger()
    ask(ledger, rules, owner="a")
    ledger.settle(SettleRequest("a", leaves=True), rules, NOW)
    answer = ask(ledger, rules, owner="b")
    assert granted(answer) == 1 and answer.owners == ("b",)


# Requests and tokens a minute


@given(
    st.integers(1, 400),
    st.lists(st.tuples(st.floats(0, 20), st.integers(0, 30)), max_size=60),
)
def test_no_minute_sees_more_requests_than_the_limit(limit: int, turns: list[tuple[float, int]]) -> None:
    rules, ledger, now = make_rules(requests_per_minute=limit), Ledger(), NOW
    minute: deque[float] = deque()
    for pause, wanted in turns:
        now += pause
        minute.extend([now] * granted(ask(ledger, rules, wanted, now=now)))
        while minute and minute[0] <= now - 60:
            minute.popleft()
        assert len(minute) <= limit


@pytest.mark.parametrize("limit", [1, 7, 60, 900])
def test_over_an_hour_nearly_all_of_the_limit_can_be_used(limit: int) -> None:
    rules, ledger = make_rules(requests_per_minute=limit), Ledger()
    count = sum(granted(ask(ledger, rules, limit // 30 + 1, now=NOW + second)) for second in range(3600))
    assert 0.94 * 60 * limit <= count <= 60 * limit


def test_a_denial_says_what_is_short_and_for_how_long() -> None:
    rules, ledger = make_rules(requests_per_minute=60), Ledger()
    first, second, third, fourth = ask(ledger, rules, 4).denials
    assert first is None and second is None and third is not None and fourth is not None
    assert third.limit.describe(third.resource) == "Waits for the rate limit of all models: 60 requests a minute."
    assert granted(ask(ledger, rules, now=NOW + third.delay - 0.01)) == 0
    assert granted(ask(ledger, rules, 2, now=NOW + third.delay)) == 1
    assert fourth.delay == pytest.approx(2 * third.delay)


@given(st.integers(1_000, 100_000), st.lists(st.integers(1, 5_000), min_size=1, max_size=60))
def test_tokens_of_a_minute_exceed_the_limit_by_less_than_the_last_call(limit: int, calls: list[int]) -> None:
    rules, ledger, now = make_rules(tokens_per_minute=limit), Ledger(), NOW
    minute: deque[tuple[float, int]] = deque()
    for tokens in calls:
        while granted(answer := ask(ledger, rules, now=now, tokens=tokens)) == 0:
            denial = answer.denials[0]
            assert denial is not None
            now += max(denial.delay, 0.001)
        minute.append((now, tokens))
        while minute[0][0] <= now - 60:
            minute.popleft()
        assert sum(count for _, count in minute) - tokens <= limit


def test_a_call_larger_than_the_limit_goes_and_the_next_waits_until_it_is_paid_off() -> None:
    rules, ledger = make_rules(tokens_per_minute=1_000), Ledger()
    assert granted(ask(ledger, rules, tokens=5_000)) == 1
    (denial,) = ask(ledger, rules, tokens=5_000).denials
    assert denial is not None and denial.resource is Resource.TOKENS
    assert 4 * 60 < denial.delay < 6 * 60
    assert granted(ask(ledger, rules, tokens=5_000, now=NOW + denial.delay)) == 1


def test_what_a_call_really_used_corrects_the_estimate() -> None:
    rules, ledger = make_rules(tokens_per_minute=60_000), Ledger()
    ask(ledger, rules, tokens=500)
    used_more = ledger.settle(SettleRequest("a", tokens={MODEL: 4_000}), rules, NOW)
    assert used_more.left[1].tokens == 2_000 - 4_500
    used_less = ledger.settle(SettleRequest("a", tokens={MODEL: -9_000}), rules, NOW)
    assert used_less.left[1].tokens == 2_000, "never more than goes at once"


# Several limits


def test_a_call_must_pass_all_limits_that_cover_its_model() -> None:
    rules = make_rules(Limit(1, "", 3), Limit(2, "gpt-5*", 2), Limit(3, MODEL, 1))
    permits = [PermitRequest(model, 0) for model in (MODEL, MODEL, "gpt-5", "gpt-5.1", "gpt-4o", "o3")]
    results = Ledger().settle(SettleRequest("a", permits=permits), rules, NOW).denials
    assert [denial and denial.limit.model for denial in results] == [None, MODEL, None, "gpt-5*", None, ""]


def test_a_call_that_is_refused_by_one_limit_takes_nothing_of_another() -> None:
    rules = make_rules(Limit(1, "", requests_per_minute=6_000), Limit(2, MODEL, 1))
    assert ask(Ledger(), rules, 50).left[1].requests == 200 - 1


def test_a_limit_that_is_new_or_changed_holds_at_once() -> None:
    ledger = Ledger()
    ask(ledger, make_rules(calls_in_flight=10), 8)
    assert granted(ask(ledger, make_rules(calls_in_flight=4), held=8)) == 0
    both = make_rules(Limit(1, "", 10), Limit(2, MODEL, 8))
    assert granted(ask(ledger, both, held=8)) == 0
    assert granted(ask(ledger, both, 2, held=7)) == 1


# The document


def test_a_ledger_that_is_stored_and_read_goes_on_as_before() -> None:
    rules, ledger = make_rules(calls_in_flight=3, requests_per_minute=60, tokens_per_minute=1_000), Ledger()
    ask(ledger, rules, tokens=700)
    read = Ledger(json.loads(json.dumps(ledger.to_document())))
    assert ask(read, rules, owner="b", now=NOW + 1) == ask(ledger, rules, owner="b", now=NOW + 1)


def test_a_clock_that_goes_back_takes_nothing_and_gives_nothing() -> None:
    rules, ledger = make_rules(requests_per_minute=60), Ledger()
    ask(ledger, rules, 2)
    assert granted(ask(ledger, rules, now=NOW - 3600)) == 0
    assert granted(ask(ledger, rules, now=NOW + 1.1)) == 1
