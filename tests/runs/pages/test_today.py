"""Today on the home page: what ended so far beside the median of the days before."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from django.test import Client

from runs.figures.today import Today
from runs.pages.recent_days import load_recent_days
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_runs, day_ago, stop_clock
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 13, 9, 30, tzinfo=UTC)
TODAY = NOW.date()


def end_runs(days_ago: int, **values: object) -> None:
    """Runs of a version of their own that ended on a day."""
    add_runs(make_version(make_page_flow()), TODAY - timedelta(days=days_ago), **values)  # type: ignore[arg-type]


def load() -> Today:
    found = load_recent_days(NOW)
    assert found is not None
    return found.today


def test_a_day_that_is_unlike_the_others_makes_no_difference() -> None:
    for days_ago, runs in enumerate((3, 10, 10, 9_000, 5, 10, 10, 10)):
        end_runs(days_ago, succeeded=runs, cost=str(runs))
    today = load()
    assert (today.day, today.so_far.runs) == (date(2026, 5, 13), 3)
    assert today.median is not None
    assert (today.median.days, today.median.runs, today.median.total_tokens, today.median.cost) == (7, 10, 1_000, 10)


def test_days_without_runs_and_those_before_the_last_seven_do_not_count() -> None:
    end_runs(8, succeeded=70)
    assert load().median is None
    end_runs(7, succeeded=3)
    median = load().median
    assert median is not None
    assert (median.days, median.runs) == (1, 3)


def test_rates_and_durations_are_medians_of_those_of_each_day_over_all_flows() -> None:
    end_runs(0, succeeded=3, failed=1, took=20)
    end_runs(1, succeeded=10, failed=10)
    end_runs(2, succeeded=9, failed=1, took=40)
    end_runs(2, succeeded=10, took=10)
    end_runs(2, succeeded=20, took=10)
    end_runs(3, failed=1_000, took=900)
    today = load()
    assert today.median is not None
    assert (today.so_far.pass_rate, today.median.pass_rate) == (0.75, 0.5)
    assert today.so_far.median == pytest.approx(20, rel=0.03)
    assert today.median.duration_p50 == pytest.approx(10, rel=0.03)
    assert today.median.duration_p95 == pytest.approx(40, rel=0.03)


def test_costs_are_unknown_where_no_day_has_a_price() -> None:
    end_runs(1, succeeded=4, unpriced=4)
    median = load().median
    assert median is not None
    assert (median.cost, median.unpriced) == (None, 4)


def test_the_page_says_what_is_compared(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clock(monkeypatch)
    version = make_version(make_page_flow())
    make_run(version)
    assert "No run ended today or in the 14 days before." in read_words(get_page(viewer, "/"))
    add_runs(version, day_ago(10), succeeded=5)
    assert "No baseline yet" in read_words(get_page(viewer, "/"))
    add_runs(version, day_ago(3), succeeded=12)
    words = read_words(get_page(viewer, "/"))
    assert "Today vs. 7-day median" in words and "7-day median 12" in words
