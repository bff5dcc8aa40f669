"""The geometry of the charts, and how numbers read."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.pages import charts
from runs.pages.charts import AttemptSpan, AttemptTokens, plot_tokens, plot_waterfall
from runs.pages.figures import format_cost, format_count, format_duration, format_plural, format_short_count


def make_span(begin: float, end: float, step: int = 1, number: int = 1, outcome: str = "passed") -> AttemptSpan:
    return AttemptSpan(step=step, step_name=f"Step {step}", number=number, outcome=outcome, begin=begin, end=end)


def make_tokens(prompt: int, completion: int = 0, cached: int = 0, *, is_known: bool = True) -> AttemptTokens:
    return AttemptTokens(1, 1, prompt, cached, completion, 0, is_known)


def percent(text: str) -> float:
    assert text.endswith("%")
    return float(text[:-1])


class TestWaterfall:
    def test_bars_stand_where_and_as_long_as_attempts_ran(self) -> None:
        chart = plot_waterfall([make_span(0, 2), make_span(5, 10, number=2)])
        assert chart is not None
        first, second = chart.rows
        assert (first.x, first.width) == ("0%", "20%")
        assert (second.x, second.width, second.end) == ("50%", "50%", "100%")
        assert float(second.y) - float(first.y) == charts.ROW_HEIGHT

    def test_a_wait_is_drawn_from_the_end_of_the_attempt_before(self) -> None:
        chart = plot_waterfall([make_span(0, 2), make_span(5, 10, number=2)])
        assert chart is not None
        assert [row.wait_x for row in chart.rows] == ["", "20%"]
        assert [row.waited for row in chart.rows] == ["", "3.0 s"]

    def test_a_wait_too_short_to_see_is_not_drawn(self) -> None:
        chart = plot_waterfall([make_span(0, 5), make_span(5.05, 10, number=2)])
        assert chart is not None
        assert chart.rows[1].wait_x == ""
        assert chart.rows[1].waited == "50 ms"

    def test_an_attempt_that_took_no_time_can_still_be_seen(self) -> None:
        chart = plot_waterfall([make_span(0, 0), make_span(0, 100, number=2)])
        assert chart is not None
        assert percent(chart.rows[0].width) > 0

    def test_each_step_is_named_once_and_each_bar_leads_to_its_attempt(self) -> None:
        chart = plot_waterfall([make_span(0, 1), make_span(1, 2, number=2), make_span(2, 3, step=2)])
        assert chart is not None
        assert [row.begins_step for row in chart.rows] == [True, False, True]
        assert [row.anchor for row in chart.rows] == ["s1a1", "s1a2", "s2a1"]

    def test_outcomes_are_told_by_sign_and_word_not_only_by_colour(self) -> None:
        outcomes = ["passed", "failed", "invalid", "errored", "interrupted", "cancelled", "running"]
        chart = plot_waterfall([make_span(0, 1, number=n, outcome=outcome) for n, outcome in enumerate(outcomes, 1)])
        assert chart is not None
        assert [row.label.split()[0] for row in chart.rows] == ["✓", "✗", "✗", "!", "–", "–", "…"]
        assert len({row.outcome_word for row in chart.rows}) == 7

    def test_nothing_to_show_is_no_chart(self) -> None:
        assert plot_waterfall([]) is None

    @given(st.floats(min_value=0.0001, max_value=10_000_000, allow_nan=False))
    def test_the_axis_is_readable_for_a_run_of_any_length(self, total: float) -> None:
        chart = plot_waterfall([make_span(0, total)])
        assert chart is not None
        places = [percent(tick.at) for tick in chart.ticks]
        assert 1 <= len(places) <= 7
        assert places == sorted(places)
        assert all(0 <= place <= 100.01 for place in places)
        assert len({tick.label for tick in chart.ticks}) == len(places)


class TestTokenColumns:
    def test_cached_fresh_and_out_are_stacked_to_the_height_of_their_sum(self) -> None:
        chart = plot_tokens([make_tokens(prompt=600, cached=200, completion=400)])
        assert chart is not None
        (column,) = chart.columns
        heights = {segment.kind: float(segment.height) for segment in column.segments}
        assert heights == {"cached": 30, "fresh": 60, "out": 60}
        assert float(column.segments[0].y) + heights["cached"] == float(chart.baseline)
        assert float(column.segments[-1].y) == float(chart.baseline) - charts.COLUMN_AREA
        assert column.label == "1.0k"

    def test_parts_of_nothing_are_not_drawn(self) -> None:
        chart = plot_tokens([make_tokens(prompt=100)])
        assert chart is not None
        assert [segment.kind for segment in chart.columns[0].segments] == ["fresh"]

    def test_unknown_is_not_shown_as_zero(self) -> None:
        chart = plot_tokens([make_tokens(0), make_tokens(0, is_known=False)])
        assert chart is not None
        assert [column.label for column in chart.columns] == ["0", "?"]
        assert "no usage" in chart.columns[1].title

    def test_a_few_columns_fill_the_width_and_many_scroll(self) -> None:
        few, many = plot_tokens([make_tokens(1)] * 8), plot_tokens([make_tokens(1)] * 30)
        assert few is not None and many is not None
        assert few.width == "100%"
        assert int(many.width) == 30 * charts.MANY_WIDTH

    @given(st.lists(st.integers(min_value=0, max_value=10**9), min_size=1, max_size=12))
    def test_the_scale_is_readable_and_nothing_leaves_the_drawing(self, counts: list[int]) -> None:
        chart = plot_tokens([make_tokens(count) for count in counts])
        assert chart is not None
        assert 1 <= len(chart.ticks) <= 6
        assert len({tick.label for tick in chart.ticks}) == len(chart.ticks)
        assert all(float(segment.y) >= charts.COLUMN_TOP - 0.01 for c in chart.columns for segment in c.segments)


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
