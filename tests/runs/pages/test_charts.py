"""The geometry of the charts, and how numbers read."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.pages import token_columns, waterfall
from runs.pages.figures import format_cost, format_count, format_duration, format_plural, format_short_count
from runs.pages.token_columns import AttemptTokens, TokenColumns, plot_tokens
from runs.pages.waterfall import AttemptSpan, Waterfall, plot_waterfall


def make_span(begin: float, end: float, step: int = 1, number: int = 1, outcome: str = "passed") -> AttemptSpan:
    return AttemptSpan(step=step, step_name=f"Step {step}", number=number, outcome=outcome, begin=begin, end=end)


def draw(*spans: AttemptSpan, queued: float = 0.0, pending: float | None = None) -> Waterfall:
    chart = plot_waterfall(spans, queued=queued, pending=pending)
    assert chart is not None
    return chart


def make_tokens(
    prompt: int, completion: int = 0, cached: int = 0, reasoning: int = 0, *, is_known: bool = True
) -> AttemptTokens:
    return AttemptTokens(1, 1, prompt, cached, completion, reasoning, is_known)


def draw_tokens(*attempts: AttemptTokens, height: float | None = None) -> TokenColumns:
    chart = plot_tokens(attempts, height=height)
    assert chart is not None
    return chart


def percent(text: str) -> float:
    assert text.endswith("%")
    return float(text[:-1])


class TestWaterfall:
    def test_bars_stand_where_and_as_long_as_attempts_ran(self) -> None:
        first, second = draw(make_span(0, 2), make_span(5, 10, number=2)).rows
        assert (first.x, first.width) == ("0%", "20%")
        assert (second.x, second.width, second.end) == ("50%", "50%", "100%")
        assert float(second.y) - float(first.y) == waterfall.ROW_HEIGHT

    @pytest.mark.parametrize(
        ("earlier", "reason"),
        [
            ({"outcome": "interrupted"}, ", until a worker took over after the interruption"),
            ({"outcome": "errored", "error_code": "rate_limited"}, ", for the provider’s rate limit"),
            (
                {"outcome": "errored", "error_code": "rate_limited", "asked_wait": 3.0},
                ", for the provider’s rate limit; the provider asked for 3.0 s",
            ),
            (
                {"outcome": "errored", "error_code": "server_error", "asked_wait": 3.0},
                ", to try again after an error; the provider asked for 3.0 s",
            ),
            ({"outcome": "failed"}, ""),
        ],
    )
    def test_a_wait_before_a_further_try_says_what_it_was_for(self, earlier: dict[str, Any], reason: str) -> None:
        first = replace(make_span(0, 2), **earlier)
        chart = draw(first, make_span(5, 9, number=2))
        assert chart.rows[1].waited == f"3.0 s{reason}"
        assert draw(first, make_span(5, 9, step=2)).rows[1].waited == "3.0 s"

    def test_the_time_in_the_queue_is_drawn_to_scale_before_the_first_attempt(self) -> None:
        chart = draw(make_span(0, 8), queued=2)
        assert chart.queue is not None
        assert (chart.queue.x, chart.queue.width, chart.queue.duration) == ("0%", "20%", "2.0 s")
        assert not chart.queue.is_cut
        (row,) = chart.rows
        assert (row.x, row.width) == ("20%", "80%")
        # Zero is where the run began.
        assert (chart.ticks[0].at, chart.ticks[0].label) == ("20%", "0")
        assert float(row.y) - float(chart.queue.y) == waterfall.ROW_HEIGHT

    def test_a_long_time_in_the_queue_leaves_room_for_the_attempts_and_says_so(self) -> None:
        chart = draw(make_span(0, 9), queued=7_200)
        assert chart.queue is not None
        assert chart.queue.is_cut
        assert chart.queue.duration == "2 h 00 min"
        assert percent(chart.rows[0].width) == 75

    def test_an_attempt_under_way_has_room_to_go_on_and_counts_from_where_it_is(self) -> None:
        chart = draw(make_span(0, 40), make_span(40, 100, step=2, outcome="running"))
        ended, running = chart.rows
        assert percent(running.end) < 90
        assert (running.seconds, running.duration, running.sign) == ("60", "1 min 00 s", "…")
        assert ended.seconds == ""

    def test_a_run_that_waits_again_shows_since_when(self) -> None:
        chart = draw(make_span(0, 10, outcome="errored"), pending=30)
        assert chart.pending is not None
        assert (chart.pending.x, chart.pending.seconds, chart.pending.duration) == (chart.rows[0].end, "30", "30 s")
        assert draw(make_span(0, 10)).pending is None

    def test_outcomes_are_told_by_sign_and_word_not_only_by_colour(self) -> None:
        outcomes = ["passed", "failed", "invalid", "errored", "interrupted", "cancelled", "running"]
        chart = draw(*(make_span(0, 1, number=n, outcome=outcome) for n, outcome in enumerate(outcomes, 1)))
        assert [row.sign for row in chart.rows] == ["✓", "✗", "✗", "!", "–", "–", "…"]
        assert len({row.outcome_word for row in chart.rows}) == 7

    @given(
        total=st.floats(min_value=0.0001, max_value=10_000_000, allow_nan=False),
        queued=st.floats(min_value=0, max_value=10_000_000, allow_nan=False),
        outcome=st.sampled_from(["passed", "running"]),
    )
    def test_the_axis_is_readable_for_a_run_of_any_length(self, total: float, queued: float, outcome: str) -> None:
        chart = draw(make_span(0, total, outcome=outcome), queued=queued)
        places = [percent(tick.at) for tick in chart.ticks]
        assert 1 <= len(places) <= 7
        assert places == sorted(places)
        assert all(0 <= place <= 100.01 for place in places)
        assert len({tick.label for tick in chart.ticks}) == len(places)


class TestTokenColumns:
    def test_cached_fresh_and_out_are_stacked_to_the_height_of_their_sum(self) -> None:
        chart = draw_tokens(make_tokens(prompt=600, cached=200, completion=400))
        (column,) = chart.columns
        heights = {segment.kind: float(segment.height) for segment in column.segments}
        assert heights == {"cached": 30, "fresh": 60, "out": 60}
        assert float(column.segments[0].y) + heights["cached"] == float(chart.baseline)
        assert float(column.segments[-1].y) == float(chart.baseline) - token_columns.COLUMN_AREA
        assert column.label == "1.0k"
        assert not chart.has_reasoning

    def test_reasoning_is_a_part_of_what_comes_out(self) -> None:
        chart = draw_tokens(make_tokens(prompt=600, completion=400, reasoning=300))
        (column,) = chart.columns
        heights = {segment.kind: float(segment.height) for segment in column.segments}
        assert heights == {"fresh": 90, "reasoning": 45, "out": 15}
        assert column.title.endswith("400 out, 300 of them reasoning")
        assert chart.has_reasoning

    def test_unknown_is_not_shown_as_zero(self) -> None:
        chart = draw_tokens(make_tokens(7), make_tokens(0), make_tokens(0, is_known=False))
        assert [column.label for column in chart.columns] == ["7", "0", "?"]
        assert "no usage" in chart.columns[2].title

    def test_where_no_token_was_used_there_is_no_chart(self) -> None:
        assert plot_tokens([make_tokens(0), make_tokens(0, is_known=False)]) is None
        assert plot_tokens([]) is None

    @given(
        st.lists(st.integers(min_value=0, max_value=10**9), min_size=1, max_size=12),
        st.floats(min_value=30, max_value=500),
    )
    def test_the_scale_is_readable_and_nothing_leaves_the_drawing(self, counts: list[int], height: float) -> None:
        chart = draw_tokens(make_tokens(1), *(make_tokens(count) for count in counts), height=height)
        places = [float(tick.at) for tick in chart.ticks]
        assert 2 <= len(places) <= 6
        assert all(below - above >= 20 for below, above in pairwise(places))
        assert len({tick.label for tick in chart.ticks}) == len(chart.ticks)
        top = token_columns.COLUMN_TOP - 0.01
        assert all(float(segment.y) >= top for c in chart.columns for segment in c.segments)


class TestFigures:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (None, "—"),
            (0, "0 ms"),
            (0.2404, "240 ms"),
            (0.9996, "1.0 s"),
            (6.4, "6.4 s"),
            (59.94, "59.9 s"),
            (59.96, "1 min 00 s"),
            (68.2, "1 min 08 s"),
            (3_599.6, "1 h 00 min"),
            (7_500, "2 h 05 min"),
            (273_600, "3 d 04 h"),
            (-0.5, "0 ms"),
        ],
    )
    def test_durations(self, seconds: float | None, text: str) -> None:
        assert format_duration(seconds) == text

    @pytest.mark.parametrize(
        ("cost", "unpriced", "text"),
        [
            (None, 0, "—"),
            (None, 3, "—"),
            ("0", 0, "$0.00"),
            ("0.0724", 0, "$0.0724"),
            ("0.07245", 0, "$0.0725"),
            ("4.1", 0, "$4.10"),
            ("1234.5", 0, "$1\N{NARROW NO-BREAK SPACE}234.50"),
            ("0.00001", 0, "< $0.0001"),
            ("0.01", 2, "≥ $0.0100"),
        ],
    )
    def test_an_unknown_cost_is_never_zero_and_a_partial_one_is_a_lower_bound(
        self, cost: str | None, unpriced: int, text: str
    ) -> None:
        assert format_cost(None if cost is None else Decimal(cost), unpriced) == text

    def test_counts_are_grouped_and_nouns_agree(self) -> None:
        assert format_count(29_895) == "29\N{NARROW NO-BREAK SPACE}895"
        assert [format_short_count(count) for count in (812, 4_130, 999_960)] == ["812", "4.1k", "1.0M"]
        assert [format_plural(count, "attempt") for count in (0, 1, 2)] == ["0 attempts", "1 attempt", "2 attempts"]
