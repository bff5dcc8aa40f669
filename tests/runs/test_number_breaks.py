"""Filters by day find all runs, also where numbers of runs are not in the order in which they were created."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from runs.models import NumberBreak, Run
from runs.run_filters import RunFilters, days, find_runs
from runs.seeding import seed_history, writing
from tests.runs.builders import make_run, make_version
from tests.runs.listed_runs import make_listed_run, store_listed_runs
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db

COUNT = 300
"""Runs of each installation: more than may be out of order anyway."""
LONG_AGO = datetime(2024, 3, 1, tzinfo=UTC)
LATELY = datetime(2026, 3, 1, tzinfo=UTC)


def store_hourly(begin: datetime, count: int = COUNT) -> None:
    """Store a run for each hour from ``begin`` on."""
    version = make_version(make_page_flow())
    hours = [begin + timedelta(hours=number) for number in range(count)]
    store_listed_runs([make_row(version, created_at) for created_at in hours], [()] * count)


def make_row(version: Any, created_at: datetime) -> Run:
    fields = {"created_at": created_at, "ended_at": created_at, "status": "succeeded", "is_tallied": True}
    return Run(version=version, flow_id=version.flow_id, input={}, model_settings={}, step_count=1, **fields)


def check_days(*moments: datetime) -> None:
    """Every filter by the days around these moments finds just the runs of those days, from both ends of the list."""
    edges = [moment.date() + timedelta(days=shift) for moment in moments for shift in (-1, 4, 40)]
    asked: list[tuple[date | None, date | None]] = [(day, None) for day in edges]
    asked += [(None, day) for day in edges]
    asked += [(first, last) for first in edges for last in edges if first <= last]
    runs = list(Run.objects.order_by("-pk").values_list("pk", "created_at"))
    for since, until in asked:
        first, last = since or date.min, until or date.max
        wanted = [number for number, moment in runs if first <= moment.date() <= last]
        filters = RunFilters(since=since, until=until)
        assert collect(filters, is_upwards=False) == wanted, (since, until)
        assert collect(filters, is_upwards=True) == wanted, (since, until)


def collect(filters: RunFilters, *, is_upwards: bool) -> list[int]:
    """All runs that match, page by page, the newest first."""
    numbers: list[int] = []
    place = 0 if is_upwards else None
    while True:
        found = find_runs(filters, limit=120, **{"after" if is_upwards else "before": place})
        numbers = [*found.ids, *numbers] if is_upwards else [*numbers, *found.ids]
        if found.looked_to is None and len(found.ids) < 120:
            return numbers
        place = found.looked_to or (found.ids[0] if is_upwards else found.ids[-1])


class TestSeeding:
    def test_runs_that_were_there_before_and_invented_ones_are_all_found_by_day(self) -> None:
        store_hourly(LATELY)
        seed_history(runs=COUNT, until=LONG_AGO, days=20)
        check_days(LATELY, LONG_AGO)

    def test_an_installation_with_nothing_else_has_its_runs_in_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "BATCH", 7)
        seed_history(runs=30, until=LATELY, days=20)
        assert not NumberBreak.objects.exists()

    def test_runs_that_are_started_meanwhile_are_found_by_day(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "BATCH", 100)
        monkeypatch.setattr(days, "DISORDER", 1)
        numbers: list[int] = []

        def start(what: str, _done: int) -> None:
            if what == "stored":
                # Its number is given, and nobody else sees it until it is stored.
                run = make_run()
                numbers.append(run.pk)
                run.delete()

        seed_history(runs=COUNT, until=LONG_AGO, days=20, report=start)
        version = make_version(make_page_flow())
        for number in numbers:
            make_listed_run(version, pk=number, created_at=LATELY)
        check_days(LATELY, LONG_AGO)
