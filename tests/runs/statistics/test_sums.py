"""What counts add up to: percentiles, rates, means, the retry cost, and slots of periods."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.statistics.sums import (
    MIN_SECONDS,
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
