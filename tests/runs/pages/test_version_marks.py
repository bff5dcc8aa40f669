"""Marks of versions on the time axis of a flow's charts: first runs, and going back to an earlier version."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest
from django.test import Client

from flows.models import FlowVersion
from runs.pages.periods import build_period, format_day
from runs.pages.version_marks import MOST_TAKEOVERS, VersionMarks, mark_versions
from runs.statistics.figures import DayRuns
from runs.statistics.sums import RunSums
from tests.runs.builders import make_version
from tests.runs.pages.daily_rows import add_runs, day_ago
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import get_page, read_words

TODAY = date(2026, 5, 13)
NUMBERS = {11: 1, 12: 2, 13: 3}


def mark(*days: dict[int, int], period: str = "30d") -> VersionMarks:
    """The marks of a period whose last days had so many runs of each version, by its number."""
    keys = {number: key for key, number in NUMBERS.items()}
    begin = TODAY - timedelta(days=len(days) - 1)
    rows = [
        DayRuns(begin + timedelta(days=place), keys[number], "", False, RunSums(runs=runs))
        for place, counts in enumerate(days)
        for number, runs in counts.items()
    ]
    first: dict[int, date] = {}
    for row in rows:
        first.setdefault(row.version_id, row.day)
    return mark_versions(build_period(period, TODAY), rows, NUMBERS, first)


def labels(found: VersionMarks) -> list[str]:
    """Which versions are marked."""
    return [version for one in found.marks for version in re.findall(r"v\d+", one.title)]


class TestMarks:
    def test_a_version_that_is_live_again_is_marked_on_the_day_that_it_took_over(self) -> None:
        found = mark({1: 9}, {}, {}, {2: 9}, {2: 9}, {}, {2: 9}, {1: 9}, {1: 9})
        assert labels(found) == ["v1", "v2", "v1"]
        assert [one.title for one in found.marks] == [
            "v1 since 5 May 2026",
            "v2 since 8 May 2026",
            "most runs of v1 from 12 May 2026 on",
        ]
        assert list(found.notes.values()) == ["v1", "v2", "mostly v1"]
        assert found.sentence == ""

    def test_going_back_within_a_day_is_marked_as_soon_as_most_runs_are_of_the_other(self) -> None:
        found = mark({1: 9}, {2: 9}, {2: 9}, {2: 9}, {2: 6, 1: 4}, {1: 9})
        assert found.marks[-1].title == "most runs of v1 from 13 May 2026 on"

    def test_a_new_version_is_marked_once_though_most_runs_of_its_first_day_are_of_the_other(self) -> None:
        assert labels(mark({1: 9}, {}, {1: 8, 2: 2}, {2: 9}, {2: 9})) == ["v1", "v2"]

    def test_a_version_that_was_tried_and_takes_over_later_is_marked_twice(self) -> None:
        found = mark({1: 9}, {}, {1: 8, 2: 1}, {1: 8, 2: 2}, {1: 9}, {}, {}, {2: 9})
        assert labels(found) == ["v1", "v2", "v2"]

    def test_as_many_runs_of_both_are_no_change(self) -> None:
        assert labels(mark({1: 9}, {}, {}, {2: 9}, {2: 5}, {2: 5, 1: 5}, {2: 5, 1: 5})) == ["v1", "v2"]

    def test_weeks_are_marked_like_days(self) -> None:
        days = [{1: 9}] * 14 + [{2: 9}] * 21 + [{1: 9}] * 14
        found = mark(*days, period="12m")
        assert list(found.notes.values()) == ["v1", "v2", "mostly v1"]

    def test_versions_that_take_turns_every_day_leave_the_chart_readable(self) -> None:
        found = mark(*([{1: 9}, {2: 9}] * 45), period="90d")
        # The first days of both, and as many turns as fit.
        assert len(found.marks) == 2 + MOST_TAKEOVERS
        assert found.sentence == (
            f"Versions that ran before took over 88 times; charts mark the latest {MOST_TAKEOVERS}, "
            "their tables have all."
        )
        assert len(found.notes) == 90
        assert set(found.notes.values()) == {"v1", "v2", "mostly v1", "mostly v2"}


@pytest.mark.django_db
class TestPage:
    @pytest.fixture
    def versions(self) -> list[FlowVersion]:
        first = make_version(make_page_flow())
        return [first, make_version(make_page_flow())]

    def test_a_rollback_is_on_the_axis_and_in_the_tables(self, viewer: Client, versions: list[FlowVersion]) -> None:
        first, second = versions
        for days, version in ((12, first), (8, second), (4, first), (3, first)):
            add_runs(version, day_ago(days), succeeded=5)
        page = get_page(viewer, "/flows/colour-theme/")
        assert page.count(f"<title>most runs of v1 from {format_day(day_ago(4))} on</title>") == 4
        assert page.count("<td>mostly v1</td>") == 4
        assert "took over" not in read_words(page)

    def test_turns_that_are_not_marked_are_told_of(self, viewer: Client, versions: list[FlowVersion]) -> None:
        for days in range(29):
            add_runs(versions[days % 2], day_ago(days), succeeded=5)
        page = get_page(viewer, "/flows/colour-theme/")
        assert "Versions that ran before took over 27 times; charts mark the latest 10" in read_words(page)
        assert page.count('<g class="day-mark">') == 4 * 12
        # One version alone has nobody to take over from.
        assert "took over" not in read_words(get_page(viewer, "/flows/colour-theme/?version=1"))
