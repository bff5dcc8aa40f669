"""What charts tell, and how numbers read."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest

from runs.formatting import (
    format_cost,
    format_count,
    format_duration,
    format_large,
    format_mean,
    format_plural,
    format_share,
)
from runs.pages.flow_figures import find_versions, mark_versions
from runs.pages.flow_page import build_period
from runs.statistics.figures import DayRuns
from runs.statistics.sums import RunSums
from tests.runs.pages.reading import THIN

TODAY = date(2026, 5, 13)  # a Wednesday


@pytest.mark.parametrize(
    ("days", "titles"),
    [
        (
            [{1: 9}, {}, {}, {2: 9}, {2: 9}, {}, {2: 9}, {1: 9}, {1: 9}],
            ["Most runs use v2 from 8 May 2026", "Most runs use v1 from 12 May 2026"],
        ),
        # Not where its first runs end.
        ([{1: 9}, {}, {1: 8, 2: 2}, {2: 9}, {2: 9}], ["Most runs use v2 from 12 May 2026"]),
        # As many of both are no change.
        ([{1: 9}, {2: 9}, {2: 5, 1: 5}], ["Most runs use v2 from 12 May 2026"]),
        ([{1: 9}, {2: 9}] * 15, 10),
    ],
)
def test_versions_are_marked_where_most_runs_begin_to_use_them(
    days: list[dict[int, int]], titles: list[str] | int
) -> None:
    period, begin = build_period("30d", TODAY), TODAY - timedelta(days=len(days) - 1)
    rows = [
        DayRuns(begin + timedelta(days=place), number + 10, "", False, RunSums(runs=runs))
        for place, counts in enumerate(days)
        for number, runs in counts.items()
    ]
    marks = mark_versions(period, find_versions(period, rows, {11: 1, 12: 2}))
    assert titles in ([mark["title"] for mark in marks], len(marks))
    # The latest one has its label.
    assert marks[-1]["label"]


class TestNumbers:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (None, "—"),
            (0.2404, "240 ms"),
            (0.9996, "1.0 s"),
            (59.96, "1 min 00 s"),
            (3_599.6, "1 h 00 min"),
            (273_600, "3 d 04 h"),
            (-0.5, "0 ms"),
        ],
    )
    def test_durations(self, seconds: float | None, text: str) -> None:
        assert format_duration(seconds) == text

    @pytest.mark.parametrize(
        ("cost", "unpriced", "text"),
        [
            (None, 3, "—"),
            ("0", 0, "$0.00"),
            ("0.07245", 0, "$0.0725"),
            ("1234.5", 0, f"$1{THIN}234.50"),
            ("0.00001", 0, "< $0.0001"),
            ("0.01", 2, "≥ $0.0100"),
        ],
    )
    def test_an_unknown_cost_is_never_zero_and_a_partial_one_is_a_lower_bound(
        self, cost: str | None, unpriced: int, text: str
    ) -> None:
        assert format_cost(None if cost is None else Decimal(cost), unpriced) == text

    def test_counts_shares_and_means_have_the_digits_that_matter(self) -> None:
        assert format_count(29_895) == f"29{THIN}895"
        assert [format_large(count) for count in (812, 412_340, 999_960)] == ["812", "412.3k", "1.0M"]
        assert [format_plural(count, "attempt") for count in (0, 1, 2)] == ["0 attempts", "1 attempt", "2 attempts"]
        shares = [format_share(share).replace(THIN, " ") for share in (None, 0.0, 0.001, 0.714, 0.999, 1.0)]
        assert shares == ["—", "0 %", "under 1 %", "71 %", "over 99 %", "100 %"]
        assert [format_mean(mean) for mean in (None, 1.318, 12.44, 140.2)] == ["—", "1.32", "12.4", "140"]
        assert format_large(2_345_678) == "2.3M"
