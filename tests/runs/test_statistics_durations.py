"""Durations kept as counts, and percentiles read off them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.statistics.durations import SHORTEST, find_bucket, merge_counts, read_percentile

DURATIONS = st.floats(min_value=SHORTEST, max_value=10 * 365 * 86_400)


def count(durations: list[float]) -> dict[str, int]:
    return dict(Counter(str(find_bucket(duration)) for duration in durations))


@given(st.lists(DURATIONS, min_size=1), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_within_two_and_a_half_per_cent_of_the_exact_one(durations: list[float], percent: int) -> None:
    exact = sorted(durations)[max(1, math.ceil(len(durations) * percent / 100)) - 1]
    assert read_percentile(count(durations), percent) == pytest.approx(exact, rel=0.025)


@given(st.lists(DURATIONS), st.lists(DURATIONS))
def test_counts_added_up_are_those_of_all_durations(some: list[float], others: list[float]) -> None:
    assert merge_counts([count(some), count(others)]) == count(some + others)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.000_01, SHORTEST])
def test_what_took_no_time_that_can_be_told_took_a_millisecond(seconds: float) -> None:
    assert read_percentile(count([seconds]), 50) == SHORTEST


def test_nothing_has_no_percentile() -> None:
    assert read_percentile({}, 50) is None
    assert merge_counts([]) == {}
