"""Where charts over days draw what, and how periods, shares and means read."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

import pytest

from runs.figures.periods import last_days, sum_by_slot
from runs.figures.sums import RunSums
from runs.pages.day_charts import AREA, choose_step, place_marks, plot_columns, plot_durations, plot_rates
from runs.pages.flow_charts import ChartMaker, format_dollars
from runs.pages.periods import PERIODS, build_period, describe_slot
from runs.pages.shares import format_large, format_mean, format_share
from runs.pages.small_charts import plot_bar, plot_sparkline

TODAY = date(2026, 5, 13)  # a Wednesday
WEEK = build_period("7d", TODAY)
TITLES = [f"slot {number}" for number in range(7)]


class TestPeriods:
    @pytest.mark.parametrize(("name", "first", "slots"), [("7d", "2026-05-07", 7), ("30d", "2026-04-14", 30)])
    def test_a_period_of_days_ends_today(self, name: str, first: str, slots: int) -> None:
        period = build_period(name, TODAY)
        assert (period.first, period.last, len(period.slots)) == (date.fromisoformat(first), TODAY, slots)

    def test_twelve_months_are_whole_weeks_from_monday_on_up_to_this_week(self) -> None:
        period = build_period("12m", TODAY)
        assert {slot.first.weekday() for slot in period.slots} == {0}
        assert len(period.slots) == 52
        assert period.slots[-1].first <= TODAY <= period.slots[-1].last

    def test_every_day_has_its_slot_and_others_have_none(self) -> None:
        for name in PERIODS:
            period = build_period(name, TODAY)
            assert period.find_slot(period.first) == 0
            assert period.find_slot(TODAY) == len(period.slots) - 1
            assert period.find_slot(date(2020, 1, 1)) is None
            assert period.find_slot(date(2027, 1, 1)) is None

    def test_slots_say_what_they_are(self) -> None:
        assert describe_slot(WEEK.slots[0]) == "Thu 7 May 2026"
        assert describe_slot(build_period("12m", TODAY).slots[-1]) == "11 May 2026 to 17 May 2026"


class TestColumns:
    def plot(self, *slots: dict[str, float] | None) -> dict[str, list[tuple[float, float, float]]]:
        """The rectangles of each kind, as left edge, top and height."""
        chart = plot_columns(WEEK, slots, TITLES, format_value=lambda value, _: f"{value:g}")
        box = r"M([\d.]+),([\d.]+)h[\d.]+v([\d.]+)h-[\d.]+z"
        return {
            fill.kind: [(float(x), float(y), float(height)) for x, y, height in re.findall(box, fill.path)]
            for fill in chart.fills
        }

    def test_parts_are_stacked_from_the_bottom_and_fill_the_scale(self) -> None:
        boxes = self.plot({"a": 4.0, "b": 6.0}, *[{"a": 5.0}] * 6)
        (_, y, height), (_, y2, height2) = boxes["a"][0], boxes["b"][0]
        assert y + height == pytest.approx(AREA)
        assert y2 + height2 == pytest.approx(y)
        assert y2 == 0

    def test_a_day_without_runs_is_a_gap_and_one_with_nothing_to_draw_is_not(self) -> None:
        boxes = self.plot({"a": 1.0}, None, {"a": 0.0}, None, None, None, {"a": 2.0})
        assert {kind: len(found) for kind, found in boxes.items()} == {"a": 2, "zero": 1}

    def test_little_is_seen_beside_much(self) -> None:
        boxes = self.plot({"a": 10_000.0, "b": 1.0}, *[None] * 6)
        assert boxes["b"][0][2] == 1

    def test_columns_keep_to_their_slots(self) -> None:
        boxes = self.plot(*[{"a": 1.0}] * 7)
        assert [int(x // (1_000 / 7)) for x, _, _ in boxes["a"]] == list(range(7))

    def test_counts_have_no_ticks_between_whole_numbers(self) -> None:
        chart = plot_columns(WEEK, [{"a": 1.0}, *[None] * 6], TITLES, format_value=lambda value, _: f"{value:g}")
        assert [tick.label for tick in chart.frame.ticks] == ["0", "1"]

    def test_nothing_at_all_still_has_an_axis(self) -> None:
        chart = plot_columns(WEEK, [None] * 7, TITLES, format_value=lambda value, _: f"{value:g}")
        assert [tick.label for tick in chart.frame.ticks] == ["0", "1"]
        assert [hit.title for hit in chart.frame.hits] == TITLES

    @pytest.mark.parametrize("most", [0.0007, 0.3, 1, 4.9, 5, 5.1, 7, 99, 100, 123_456])
    def test_there_are_at_most_five_ticks_and_their_step_is_round(self, most: float) -> None:
        step = choose_step(most)
        assert most / step <= 5.000001
        assert f"{step:e}"[0] in "125"


class TestLines:
    def test_lines_stop_at_gaps_and_go_on_after_them(self) -> None:
        chart = plot_rates(WEEK, {"pass": [1.0, 0.5, None, None, 0.0, 0.25, None]}, TITLES)
        (line,) = chart.lines
        assert [len(path.split()) for path in line.paths] == [2, 2]
        assert line.paths[0].split()[0].endswith(",0")
        assert line.paths[1].split()[0].endswith(",150")

    def test_a_day_between_two_gaps_is_a_dot_also_in_a_long_period(self) -> None:
        period = build_period("90d", TODAY)
        rates = [None] * 90
        rates[40], rates[60], rates[61] = 0.5, 0.5, 0.6  # type: ignore[call-overload]
        (line,) = plot_rates(period, {"pass": rates}, [""] * 90).lines
        assert len(line.dots) == 1
        assert line.dots[0].x == "45%"


class TestDurations:
    @pytest.mark.parametrize(
        ("most", "labels"),
        [
            (0.001, ["0", "1 ms"]),
            (1.9, ["0", "500 ms", "1000 ms", "1500 ms", "2000 ms"]),
            (9.8, ["0", "2 s", "4 s", "6 s", "8 s", "10 s"]),
            (119.0, ["0", "50 s", "100 s", "150 s"]),
            (150.0, ["0", "1 min", "2 min", "3 min"]),
            (3 * 3_600.0, ["0", "1 h", "2 h", "3 h"]),
            (9 * 86_400.0, ["0", "2 d", "4 d", "6 d", "8 d", "10 d"]),
            (None, ["0", "1 ms"]),
        ],
    )
    def test_the_axis_counts_in_the_unit_that_suits_the_longest(self, most: float | None, labels: list[str]) -> None:
        chart = plot_durations(WEEK, {"median": [0.001, *[None] * 6], "p95": [most, *[None] * 6]}, TITLES)
        assert [tick.label for tick in chart.frame.ticks] == labels

    def test_lines_lie_where_the_axis_says(self) -> None:
        chart = plot_durations(WEEK, {"median": [60.0] * 7, "p95": [150.0] * 7}, TITLES)
        heights = {tick.label: tick.at for tick in chart.frame.ticks}
        median, p95 = (line.dots[0].y for line in chart.lines)
        assert median == heights["1 min"]
        assert float(p95) == (float(heights["2 min"]) + float(heights["3 min"])) / 2


class TestMarks:
    def test_changes_are_marked_where_their_day_begins(self) -> None:
        marks = place_marks(WEEK, [(date(2026, 5, 7), "v1", "one"), (date(2026, 5, 10), "v2", "two")])
        assert [(mark.at, mark.label, mark.title) for mark in marks] == [("0%", "v1", "one"), ("42.86%", "v2", "two")]

    def test_changes_of_one_day_share_a_mark_that_names_the_last(self) -> None:
        (mark,) = place_marks(WEEK, [(TODAY, "v2", "two"), (TODAY, "v3", "three")])
        assert (mark.label, mark.title) == ("v3", "two; three")

    def test_changes_out_of_the_period_are_left_out(self) -> None:
        assert place_marks(WEEK, [(date(2026, 4, 1), "v1", "")]) == ()

    def test_labels_that_would_touch_are_left_out_and_their_marks_stay(self) -> None:
        period = build_period("90d", TODAY)
        days = [period.slots[position].first for position in (40, 41, 60)]
        marks = place_marks(period, [(day, f"v{number}", "") for number, day in enumerate(days, start=1)])
        assert [mark.label for mark in marks] == ["", "v2", "v3"]

    def test_so_are_those_that_would_touch_at_the_end_where_labels_stand_on_the_left(self) -> None:
        period = build_period("30d", TODAY)
        marks = place_marks(period, [(slot.first, f"v{place}", "") for place, slot in enumerate(period.slots)])
        shown = [mark.label for mark in marks if mark.label]
        assert shown == ["v1", "v4", "v7", "v10", "v14", "v18", "v22", "v29"]
        assert marks[-1].is_at_end and len(marks) == 30


class TestAxis:
    @pytest.mark.parametrize("name", [*PERIODS, "15d"])
    def test_labels_are_few_and_lie_in_the_drawing(self, name: str) -> None:
        period = last_days(15, TODAY) if name == "15d" else build_period(name, TODAY)
        chart = plot_rates(period, {"pass": [None] * len(period.slots)}, [""] * len(period.slots))
        places = [float(day.at.rstrip("%")) for day in chart.frame.days]
        assert 4 <= len(places) <= 12
        assert places == sorted(places)
        assert 0 < places[0] < places[-1] < 100

    @pytest.mark.parametrize(
        ("value", "step", "text"),
        [(0.05, 0.05, "$0.05"), (0.1, 0.1, "$0.10"), (0.0002, 0.0002, "$0.0002"), (20, 5, "$20")],
    )
    def test_money_has_the_digits_that_its_step_needs(self, value: float, step: float, text: str) -> None:
        assert format_dollars(value, step) == text


class TestSmallDrawings:
    def test_small_columns_share_the_scale_that_is_given(self) -> None:
        spark = plot_sparkline([None, 5.0, 0.0], most=10.0)
        assert [(fill.kind, fill.path.split("v")[1].split("h")[0]) for fill in spark.fills] == [
            ("value", "14"),
            ("zero", "1"),
        ]

    def test_a_bar_is_as_wide_as_its_box(self) -> None:
        parts = plot_bar({"first": 0.6, "useful": 0.0, "wasted": 0.4})
        assert [(part.kind, part.x, part.width) for part in parts] == [("first", "0%", "60%"), ("wasted", "60%", "40%")]


class TestWords:
    @pytest.mark.parametrize(
        ("share", "text"),
        [(None, "—"), (0.0, "0 %"), (0.001, "under 1 %"), (0.714, "71 %"), (0.999, "over 99 %"), (1.0, "100 %")],
    )
    def test_shares(self, share: float | None, text: str) -> None:
        assert format_share(share).replace("\N{NARROW NO-BREAK SPACE}", " ") == text

    def test_means_have_the_digits_that_tell_something(self) -> None:
        assert [format_mean(mean) for mean in (None, 1.318, 12.44, 140.2)] == ["—", "1.32", "12.4", "140"]
        assert [format_large(count) for count in (None, 812, 2_345_678)] == ["—", "812", "2.3M"]


class TestTables:
    def test_the_table_of_a_chart_has_every_day_and_tells_gaps_from_zeros(self) -> None:
        days = [(date(2026, 5, 8), RunSums(runs=3, succeeded=2, failed=1))]
        slots = sum_by_slot(WEEK, days)
        chart = ChartMaker(WEEK, (), {3: "v2"}).chart_runs(slots)
        assert chart.columns == ("Runs", "Succeeded", "Failed", "Errored", "Cancelled")
        assert [row.cells for row in chart.rows] == [(), ("3", "2", "1", "0", "0"), *[()] * 5]
        assert [row.note for row in chart.rows] == ["", "", "", "v2", "", "", ""]
        assert [entry.words for entry in chart.legend] == ["Succeeded", "Failed"]

    def test_pointing_at_a_day_tells_its_numbers(self) -> None:
        slots = sum_by_slot(WEEK, [(TODAY, RunSums(runs=3, succeeded=2, failed=1))])
        maker = ChartMaker(WEEK, (), {})
        assert [hit.title for hit in maker.chart_runs(slots).drawing.frame.hits][-2:] == [
            "Tue 12 May 2026: no runs",
            "Wed 13 May 2026: 3 runs, 2 succeeded, 1 failed",
        ]
        title = maker.chart_run_rates(slots).drawing.frame.hits[-1].title
        assert title.replace("\N{NARROW NO-BREAK SPACE}", " ") == (
            "Wed 13 May 2026: pass rate 67 %, first-attempt pass rate 0 %"
        )

    def test_costs_that_are_known_in_part_say_so(self) -> None:
        slots = sum_by_slot(WEEK, [(TODAY, RunSums(runs=1, cost=Decimal(3), first_cost=Decimal(3), unpriced=1))])
        row = ChartMaker(WEEK, (), {}).chart_use(slots, measure="cost").rows[-1]
        assert row.cells[0] == "≥ $3.00"
