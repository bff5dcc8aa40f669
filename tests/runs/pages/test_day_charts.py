"""Where charts over days draw what, and how periods, shares and means read."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

import pytest

from runs.pages.day_charts import AREA, choose_step, place_marks, plot_columns, plot_durations, plot_rates
from runs.pages.flow_charts import ChartMaker, format_dollars
from runs.pages.periods import PERIODS, build_period, describe_slot
from runs.pages.shares import format_large, format_mean, format_share
from runs.pages.small_charts import plot_bar, plot_sparkline
from runs.statistics.sums import RunSums, last_days, sum_by_slot

TODAY = date(2026, 5, 13)  # a Wednesday
WEEK = build_period("7d", TODAY)
TITLES = [f"slot {number}" for number in range(7)]


def test_periods_end_today_and_twelve_months_are_whole_weeks() -> None:
    found = {name: build_period(name, TODAY) for name in PERIODS}
    assert {name: len(period.slots) for name, period in found.items()} == {"7d": 7, "30d": 30, "90d": 90, "12m": 52}
    assert {period.find_slot(TODAY) for period in found.values()} == {6, 29, 89, 51}
    assert {slot.first.weekday() for slot in found["12m"].slots} == {0}
    assert describe_slot(WEEK.slots[0]) == "Thu 7 May 2026"
    assert describe_slot(found["12m"].slots[-1]) == "11 May 2026 to 17 May 2026"


class TestColumns:
    def plot(self, *slots: dict[str, float] | None) -> dict[str, list[tuple[float, float, float]]]:
        """The rectangles of each kind, as left edge, top and height."""
        chart = plot_columns(WEEK, slots, TITLES, format_value=lambda value, _: f"{value:g}")
        box = r"M([\d.]+),([\d.]+)h[\d.]+v([\d.]+)h-[\d.]+z"
        return {
            fill.kind: [(float(x), float(y), float(height)) for x, y, height in re.findall(box, fill.path)]
            for fill in chart.fills
        }

    def test_parts_are_stacked_from_the_bottom_in_their_slots(self) -> None:
        boxes = self.plot({"a": 4.0, "b": 6.0}, *[{"a": 5.0}] * 6)
        (_, y, height), (_, y2, height2) = boxes["a"][0], boxes["b"][0]
        assert y + height == pytest.approx(AREA)
        assert y2 + height2 == pytest.approx(y)
        assert y2 == 0
        assert [int(x // (1_000 / 7)) for x, _, _ in boxes["a"]] == list(range(7))

    def test_a_day_without_runs_is_a_gap_and_little_is_seen_beside_much(self) -> None:
        boxes = self.plot({"a": 10_000.0, "b": 1.0}, None, {"a": 0.0}, None, None, None, {"a": 2.0})
        assert {kind: len(found) for kind, found in boxes.items()} == {"a": 2, "b": 1, "zero": 1}
        assert boxes["b"][0][2] == 1

    @pytest.mark.parametrize("slots", [[{"a": 1.0}, *[None] * 6], [None] * 7])
    def test_an_axis_of_few_or_no_counts_has_whole_ticks(self, slots: list[dict[str, float] | None]) -> None:
        chart = plot_columns(WEEK, slots, TITLES, format_value=lambda value, _: f"{value:g}")
        assert [tick.label for tick in chart.frame.ticks] == ["0", "1"]

    @pytest.mark.parametrize("most", [0.0007, 0.3, 4.9, 5.1, 99, 123_456])
    def test_there_are_at_most_five_ticks_and_their_step_is_round(self, most: float) -> None:
        step = choose_step(most)
        assert most / step <= 5.000001
        assert f"{step:e}"[0] in "125"


class TestLines:
    def test_lines_stop_at_gaps_and_go_on_after_them(self) -> None:
        (line,) = plot_rates(WEEK, {"pass": [1.0, 0.5, None, None, 0.0, 0.25, None]}, TITLES).lines
        assert [len(path.split()) for path in line.paths] == [2, 2]
        assert [path.split()[0].split(",")[1] for path in line.paths] == ["0", "150"]

    def test_a_day_between_two_gaps_is_a_dot_also_in_a_long_period(self) -> None:
        rates = [None] * 90
        rates[40], rates[60], rates[61] = 0.5, 0.5, 0.6  # type: ignore[call-overload]
        (line,) = plot_rates(build_period("90d", TODAY), {"pass": rates}, [""] * 90).lines
        assert [dot.x for dot in line.dots] == ["45%"]

    @pytest.mark.parametrize(
        ("most", "labels"),
        [
            (None, ["0", "1 ms"]),
            (1.9, ["0", "500 ms", "1000 ms", "1500 ms", "2000 ms"]),
            (119.0, ["0", "50 s", "100 s", "150 s"]),
            (150.0, ["0", "1 min", "2 min", "3 min"]),
            (3 * 3_600.0, ["0", "1 h", "2 h", "3 h"]),
        ],
    )
    def test_the_axis_of_durations_has_the_unit_of_the_longest(self, most: float | None, labels: list[str]) -> None:
        chart = plot_durations(WEEK, {"median": [0.001, *[None] * 6], "p95": [most, *[None] * 6]}, TITLES)
        assert [tick.label for tick in chart.frame.ticks] == labels

    @pytest.mark.parametrize("name", [*PERIODS, "15d"])
    def test_labels_of_days_are_few_and_lie_in_the_drawing(self, name: str) -> None:
        period = last_days(15, TODAY) if name == "15d" else build_period(name, TODAY)
        chart = plot_rates(period, {"pass": [None] * len(period.slots)}, [""] * len(period.slots))
        places = [float(day.at.rstrip("%")) for day in chart.frame.days]
        assert 4 <= len(places) <= 12
        assert places == sorted(places)
        assert 0 < places[0] < places[-1] < 100


class TestMarks:
    def test_changes_are_marked_on_their_day_and_share_a_mark_that_names_the_last(self) -> None:
        changes = [(date(2026, 4, 1), "v0", ""), (date(2026, 5, 7), "v1", "one"), (TODAY, "v2", "two")]
        marks = place_marks(WEEK, [*changes, (TODAY, "v3", "three")])
        assert [(mark.at, mark.label, mark.title) for mark in marks] == [
            ("0%", "v1", "one"),
            ("85.71%", "v3", "two; three"),
        ]

    def test_labels_that_would_touch_are_left_out_and_their_marks_stay(self) -> None:
        period = build_period("30d", TODAY)
        marks = place_marks(period, [(slot.first, f"v{place}", "") for place, slot in enumerate(period.slots)])
        shown = [mark.label for mark in marks if mark.label]
        assert shown == ["v1", "v4", "v7", "v10", "v14", "v18", "v22", "v29"]
        assert marks[-1].is_at_end and len(marks) == 30


def test_small_drawings_keep_to_their_scale() -> None:
    spark = plot_sparkline([None, 5.0, 0.0], most=10.0)
    heights = [(fill.kind, fill.path.split("v")[1].split("h")[0]) for fill in spark.fills]
    assert heights == [("value", "14"), ("zero", "1")]
    parts = plot_bar({"first": 0.6, "useful": 0.0, "wasted": 0.4})
    assert [(part.kind, part.x, part.width) for part in parts] == [("first", "0%", "60%"), ("wasted", "60%", "40%")]


def test_shares_means_and_money_have_the_digits_that_matter() -> None:
    shares = [format_share(share) for share in (None, 0.0, 0.001, 0.714, 0.999, 1.0)]
    assert [text.replace("\N{NARROW NO-BREAK SPACE}", " ") for text in shares] == [
        *("—", "0 %", "under 1 %", "71 %", "over 99 %", "100 %")
    ]
    assert [format_mean(mean) for mean in (None, 1.318, 12.44, 140.2)] == ["—", "1.32", "12.4", "140"]
    assert [format_large(count) for count in (None, 812, 2_345_678)] == ["—", "812", "2.3M"]
    ticks = [(0.05, 0.05), (0.1, 0.1), (0.0002, 0.0002), (20, 5)]
    assert [format_dollars(value, step) for value, step in ticks] == ["$0.05", "$0.10", "$0.0002", "$20"]


class TestTables:
    def test_the_table_of_a_chart_has_every_day_and_tells_gaps_from_zeros(self) -> None:
        slots = sum_by_slot(WEEK, [(date(2026, 5, 8), RunSums(runs=3, succeeded=2, failed=1))])
        chart = ChartMaker(WEEK, (), {3: "v2"}).chart_runs(slots)
        assert [row.cells for row in chart.rows] == [(), ("3", "2", "1", "0", "0"), *[()] * 5]
        assert [row.note for row in chart.rows] == ["", "", "", "v2", "", "", ""]
        assert [entry.kind for entry in chart.legend] == ["succeeded", "failed"]
        assert "3 runs" in chart.drawing.frame.hits[1].title

    def test_costs_that_are_known_in_part_say_so(self) -> None:
        slots = sum_by_slot(WEEK, [(TODAY, RunSums(runs=1, cost=Decimal(3), first_cost=Decimal(3), unpriced=1))])
        assert ChartMaker(WEEK, (), {}).chart_use(slots, measure="cost").rows[-1].cells[0] == "≥ $3.00"
