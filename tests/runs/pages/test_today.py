"""Today on the home page: what ended until now beside the same part of the days before."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from runs.pages.usual import Usual, load_usual
from runs.pages.viewer_time_zone import COOKIE
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_runs, day_ago, stop_clock
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

COUNTED_AGAIN = "manage.py rebuild_statistics counts again the days of which all runs are kept."
NOW = datetime(2026, 5, 13, 9, 30, tzinfo=UTC)
TODAY = NOW.date()


def read_plain(client: Client) -> str:
    return read_words(get_page(client, "/"))


def end_runs(day: date, **values: Any) -> None:
    """Runs of a version of their own that ended on a day."""
    add_runs(make_version(make_page_flow()), day, **values)


def load(now: datetime = NOW, zone: str = "UTC") -> Usual:
    """What is shown to somebody in a time zone."""
    with timezone.override(zone):
        found = load_usual(now)
    assert found is not None
    return found


class TestToday:
    """Today until now beside the same part of the days before. It is 09:30 in UTC."""

    def test_each_day_counts_until_the_time_of_now(self) -> None:
        for day, morning, later in ((13, 4, 0), (12, 10, 100), (11, 30, 100), (10, 20, 100)):
            end_runs(date(2026, 5, day), hour=8, succeeded=morning, cost=str(morning))
            if later:
                end_runs(date(2026, 5, day), hour=10, succeeded=later, cost="500")
        today = load().today
        assert (today.so_far.runs, today.days, today.lacking) == (4, 3, 0)
        assert (today.usual_runs, today.usual_tokens, today.usual_cost) == (20, 2_000, 20)

    def test_of_the_hour_under_way_a_day_counts_as_much_as_is_over(self) -> None:
        end_runs(date(2026, 5, 12), hour=9, succeeded=9, failed=1, cost="3")
        end_runs(TODAY, hour=9, succeeded=3)
        today = load().today
        assert (today.so_far.runs, today.usual_runs, today.usual_tokens, today.usual_cost) == (3, 5, 500, 1.5)
        assert today.before.pass_rate == 0.9

    def test_a_day_that_is_unlike_the_others_makes_no_difference(self) -> None:
        for day, runs in enumerate((10, 10, 10, 9_000, 0, 10, 10), start=6):
            end_runs(date(2026, 5, day), hour=1 if runs else 20, succeeded=runs or 5)
        assert (load().today.usual_runs, load().today.days) == (10, 7)

    def test_days_on_which_nothing_ended_and_those_before_the_last_seven_do_not_count(self) -> None:
        end_runs(date(2026, 5, 5), succeeded=70)
        end_runs(date(2026, 5, 6), succeeded=3)
        today = load().today
        assert (today.days, today.usual_runs, today.so_far.runs) == (1, 3, 0)

    def test_rates_and_durations_are_those_of_all_runs_of_these_parts(self) -> None:
        end_runs(TODAY, succeeded=3, failed=1, took=20)
        end_runs(date(2026, 5, 12), succeeded=10)
        end_runs(date(2026, 5, 12), succeeded=10, failed=20)
        end_runs(date(2026, 5, 11), succeeded=20)
        end_runs(date(2026, 5, 11), hour=18, failed=1_000, took=900)
        today = load().today
        assert (today.so_far.pass_rate, today.before.pass_rate) == (0.75, pytest.approx(40 / 60))
        assert today.so_far.median == pytest.approx(20, rel=0.03)
        assert today.before.median == pytest.approx(10, rel=0.03)

    def test_durations_are_those_of_all_flows_also_after_more_was_counted(self) -> None:
        other = make_version(make_page_flow(name="other"))
        end_runs(date(2026, 5, 12), succeeded=10, took=10)
        add_runs(other, date(2026, 5, 12), succeeded=11, took=40)
        assert load().today.before.median == pytest.approx(40, rel=0.03)
        end_runs(date(2026, 5, 12), succeeded=5, took=10)
        assert load().today.before.median == pytest.approx(10, rel=0.03)

    @pytest.mark.parametrize(
        ("zone", "day", "runs", "usual"),
        [
            ("UTC", 13, 0, 6),
            # It is 18:30 in Tokyo, and 23:30 of the day before in Honolulu.
            ("Asia/Tokyo", 13, 5, 107),
            ("Pacific/Honolulu", 12, 6, 107),
        ],
    )
    def test_today_is_the_day_of_whoever_looks(self, zone: str, day: int, runs: int, usual: int) -> None:
        end_runs(date(2026, 5, 12), hour=20, succeeded=5)
        end_runs(date(2026, 5, 12), hour=14, succeeded=1)
        end_runs(date(2026, 5, 12), hour=9, succeeded=14)
        end_runs(date(2026, 5, 12), hour=8, succeeded=5)
        end_runs(date(2026, 5, 11), hour=20, succeeded=95)
        found = load(zone=zone)
        assert (found.today.day, found.today.so_far.runs) == (date(2026, 5, day), runs)
        assert found.zone == zone

    def test_where_a_zone_is_half_an_hour_off_today_begins_with_the_first_whole_hour(self) -> None:
        end_runs(date(2026, 5, 12), hour=18, succeeded=1)
        end_runs(date(2026, 5, 12), hour=19, succeeded=2)
        found = load(zone="Asia/Kolkata")
        assert (found.today.day, found.today.so_far.runs, found.time) == (date(2026, 5, 13), 2, "15:00")
        # Ten past midnight: the first whole hour of today is yet to come.
        end_runs(date(2026, 5, 11), hour=19, succeeded=4)
        early = load(datetime(2026, 5, 12, 18, 40, tzinfo=UTC), "Asia/Kolkata").today
        assert (early.day, early.usual_runs) == (date(2026, 5, 13), 0)

    def test_the_day_on_which_clocks_change_lasts_until_the_same_time(self) -> None:
        # 10:00 in Berlin: 09:00 UTC on Saturday, 08:00 on Sunday, since summer time began.
        end_runs(date(2026, 3, 28), hour=8, succeeded=6)
        end_runs(date(2026, 3, 28), hour=9, succeeded=100)
        end_runs(date(2026, 3, 29), hour=7, succeeded=2)
        today = load(datetime(2026, 3, 29, 8, 0, tzinfo=UTC), "Europe/Berlin").today
        assert (today.so_far.runs, today.usual_runs) == (2, 6)

    def test_days_that_were_not_all_counted_by_hour_are_left_out(self) -> None:
        end_runs(TODAY, succeeded=1)
        end_runs(date(2026, 5, 12), succeeded=10)
        end_runs(date(2026, 5, 11), succeeded=50, hour=None)
        today = load().today
        assert (today.days, today.lacking, today.usual_runs) == (1, 1, 10)

    def test_today_stands_alone_where_it_was_not_all_counted_by_hour(self) -> None:
        end_runs(TODAY, succeeded=3, hour=None)
        end_runs(TODAY, succeeded=1)
        end_runs(date(2026, 5, 12), succeeded=10)
        today = load(zone="Asia/Tokyo").today
        assert (today.since, today.day, today.so_far.runs, today.days, today.usual_runs) == (None, TODAY, 4, 0, None)

    def test_the_page_says_what_is_compared(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        stop_clock(monkeypatch)
        version = make_version(make_page_flow())
        make_run(version)
        assert "No run ended today or in the 14 days before." in read_plain(viewer)
        add_runs(version, day_ago(10), succeeded=5)
        assert "What ended today up to 12:00 (UTC), beside nothing: no run ended in the 7 days" in read_plain(viewer)
        add_runs(version, day_ago(3), succeeded=5)
        assert "beside the same part of the one day with runs among the 7 before" in read_plain(viewer)
        add_runs(version, day_ago(2), succeeded=8)
        words = read_plain(viewer)
        assert "usually 6 by now" in words
        assert "beside the same part of the 2 days with runs among the 7 before" in words
        assert "counted by hour" not in words
        viewer.cookies[COOKIE] = "Asia/Kolkata"
        assert "What ended today from 00:30 up to 17:30 (Asia/Kolkata), beside" in read_plain(viewer)
        del viewer.cookies[COOKIE]
        end_runs(day_ago(2), succeeded=1, hour=None)
        words = read_plain(viewer)
        assert f"1 day more was not counted by hour. {COUNTED_AGAIN}" in words
        end_runs(day_ago(0), succeeded=1, hour=None)
        words = read_plain(viewer)
        assert "Not all of it was counted by hour" in words
        assert f"so nothing stands beside it. {COUNTED_AGAIN}" in words

    def test_where_no_day_before_was_counted_by_hour_the_page_says_just_that(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_clock(monkeypatch)
        version = make_version(make_page_flow())
        make_run(version)
        for days in range(1, 8):
            add_runs(version, day_ago(days), succeeded=5, hour=None)
        words = read_plain(viewer)
        assert "beside nothing: no day before was counted by hour. 7 days were not counted by hour." in words
        assert COUNTED_AGAIN in words
        assert "no run ended" not in words

    def test_before_the_first_whole_hour_of_today_the_page_says_when_it_begins(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = make_version(make_page_flow())
        make_run(version)
        add_runs(version, day_ago(2), succeeded=5)
        viewer.cookies[COOKIE] = "Asia/Kolkata"
        # Ten past midnight there.
        stop_clock(monkeypatch, time(18, 40))
        words = read_plain(viewer)
        assert "Today begins with the whole hour, at 00:30 (Asia/Kolkata)." in words
        assert "What ended today" not in words
        stop_clock(monkeypatch, time(19))
        words = read_plain(viewer)
        assert "What ended today from 00:30 up to 00:30 (Asia/Kolkata), beside" in words
        assert "Today begins" not in words
