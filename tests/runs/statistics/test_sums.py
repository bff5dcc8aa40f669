"""What counts add up to: percentiles, rates, means, the retry cost, and slots of periods."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.statistics.sums import (
    MIN_SECONDS,
    WEEK,
    Period,
    RunSums,
    find_bucket,
    find_percentile,
)

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


def test_days_of_a_week_share_a_slot_and_others_have_none() -> None:
    period = Period(date(2026, 5, 4), date(2026, 5, 13), WEEK)
    found = [period.find_slot(date(2026, 5, day)) for day in (3, 4, 10, 11, 13, 14)]
    assert found == [None, 0, 0, 1, 1, None]
