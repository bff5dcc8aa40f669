"""What counts add up to: percentiles, rates, means, the retry cost, and slots of periods."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.statistics.sums import (
    MIN_SECONDS,
    WEEK,
    Period,
    RunSums,
    StepSums,
    find_bucket,
    find_percentile,
    last_days,
    split_bill,
    sum_by_slot,
    use_of_runs,
)

TODAY = date(2026, 5, 13)  # a Wednesday
DURATIONS = st.floats(min_value=MIN_SECONDS, max_value=10 * 365 * 86_400)


def count(durations: list[float]) -> dict[str, int]:
    return dict(Counter(str(find_bucket(duration)) for duration in durations))


@given(st.lists(st.lists(DURATIONS), min_size=1), st.sampled_from([1, 50, 95, 100]))
def test_percentiles_over_days_are_within_two_and_a_half_per_cent(days: list[list[float]], percent: int) -> None:
    sums = RunSums.join([RunSums(durations=count(durations)) for durations in days])
    found = find_percentile(sums.durations, percent)
    durations = sorted(duration for day in days for duration in day)
    if not durations:
        assert found is None
    else:
        exact = durations[max(1, math.ceil(len(durations) * percent / 100)) - 1]
        assert found == pytest.approx(exact, rel=0.025)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.000_01, MIN_SECONDS])
def test_durations_up_to_a_millisecond_are_the_same(seconds: float) -> None:
    assert find_percentile(count([seconds]), 50) == MIN_SECONDS


def test_rates_leave_cancelled_runs_out_and_are_unknown_of_nothing() -> None:
    sums = RunSums(runs=12, succeeded=6, failed=3, errored=1, cancelled=2, first_time=5)
    assert (sums.pass_rate, sums.first_rate) == (0.6, 0.5)
    assert (RunSums(runs=2, cancelled=2).pass_rate, StepSums().attempts_per_step) == (None, None)


def test_an_accepted_output_costs_what_all_runs_cost() -> None:
    sums = RunSums(runs=10, succeeded=4, cost=Decimal(2), total_tokens=1_000)
    assert (sums.cost_per_run, sums.cost_per_accepted) == (Decimal("0.2"), Decimal("0.5"))
    assert (sums.tokens_per_run, sums.tokens_per_accepted) == (100, 250)


def test_an_unknown_cost_is_not_zero() -> None:
    assert RunSums(runs=2, succeeded=1, unpriced=2).cost_per_run is None
    assert RunSums(runs=2, succeeded=1).cost_per_run == 0
    bill = split_bill(use_of_runs(RunSums(unpriced=3, first_tokens=80, wasted_retry_tokens=20)))
    assert [(part.kind, part.cost, part.share) for part in bill] == [
        ("first", None, 0.8),
        ("useful", 0, 0.0),
        ("wasted", None, 0.2),
    ]


def test_days_of_a_week_share_a_slot_and_others_have_none() -> None:
    period = Period(date(2026, 5, 4), TODAY, WEEK)
    found = [period.find_slot(date(2026, 5, day)) for day in (3, 4, 10, 11, 13, 14)]
    assert found == [None, 0, 0, 1, 1, None]


def test_a_slot_without_runs_is_none_and_not_zero() -> None:
    days = [(TODAY, RunSums(runs=2)), (TODAY, RunSums(runs=3)), (date(2026, 1, 1), RunSums(runs=9))]
    runs = sum_by_slot(last_days(3, TODAY), days)
    assert [None if sums is None else sums.runs for sums in runs] == [None, None, 5]
