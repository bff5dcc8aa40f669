"""Filters by day find all runs, also where numbers of runs are not in the order in which they were created."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from runs import number_breaks
from runs.archive.restoring import restore_archive
from runs.archive.writing import write_archive
from runs.models import NumberBreak, Run
from runs.run_filters import RunFilters, days, find_runs, finding
from runs.seeding import seed_history, writing
from tests.runs.builders import make_run, make_version
from tests.runs.listed_runs import make_listed_run, store_listed_runs
from tests.runs.older_tables import hold_older_tables, migrate_to_newest
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db

COUNT = 300
"""Runs of each installation: more than may be out of order anyway."""
LONG_AGO = datetime(2024, 3, 1, tzinfo=UTC)
LATELY = datetime(2026, 3, 1, tzinfo=UTC)


def store_hourly(begin: datetime, count: int = COUNT, *, every: int = 1) -> list[int]:
    """Store a run for each hour from ``begin`` on; gives the numbers, or those of every second or third one."""
    version = make_version(make_page_flow())
    hours = [begin + timedelta(hours=number) for number in range(count)]
    rows = [make_row(version, created_at) for created_at in hours]
    return [run.pk for run in store_listed_runs(rows, [()] * count)][::every]


def make_row(version: Any, created_at: datetime) -> Run:
    fields = {"created_at": created_at, "ended_at": created_at, "status": "succeeded", "is_tallied": True}
    return Run(version=version, flow_id=version.flow_id, input={}, model_settings={}, step_count=1, **fields)


def archive(run_ids: Iterable[int], path: Path) -> Path:
    """Move runs into a file, as if they were on another installation."""
    numbers = list(run_ids)
    write_archive(path, run_ids=numbers)
    Run.objects.filter(pk__in=numbers).delete()
    return path


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


class TestRestoring:
    def test_older_runs_of_another_installation_and_the_own_ones_are_all_found_by_day(self, tmp_path: Path) -> None:
        store_hourly(LATELY)
        file = archive(store_hourly(LONG_AGO), tmp_path / "theirs.jsonl.gz")
        assert restore_archive(file).runs == COUNT
        store_hourly(LATELY + timedelta(days=20))
        everything = RunFilters(since=date(2020, 1, 1), until=date(2030, 1, 1))
        assert len(collect(everything, is_upwards=False)) == 3 * COUNT
        check_days(LONG_AGO, LATELY, LATELY + timedelta(days=20))

    def test_runs_that_come_to_stand_between_the_own_ones_are_found_by_day(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(days, "DISORDER", 1)
        theirs = archive(store_hourly(LONG_AGO, every=2), tmp_path / "theirs.jsonl.gz")
        Run.objects.update(created_at=LATELY)
        restore_archive(theirs)
        assert NumberBreak.objects.count() > number_breaks.MOST_BREAKS
        check_days(LONG_AGO, LATELY)
        # As many as are made use of.
        NumberBreak.objects.all().delete()
        monkeypatch.setattr(days, "MOST_BREAKS", COUNT)
        number_breaks.note_breaks(Run.objects.values_list("pk", flat=True))
        check_days(LONG_AGO, LATELY)

    def test_runs_that_were_created_after_the_next_ones_to_come_are_found_by_day(self, tmp_path: Path) -> None:
        """The clock of the other installation was wrong."""
        later = timezone.now() + timedelta(days=100)
        restore_archive(archive(store_hourly(later), tmp_path / "theirs.jsonl.gz"))
        store_hourly(LATELY)
        check_days(LATELY, later)

    def test_own_runs_that_come_back_are_in_order_as_before(
        self, tmp_path: Path, django_assert_num_queries: Any
    ) -> None:
        own = store_hourly(LATELY)
        for part in (own[:100], own[::3], own[250:]):
            restore_archive(archive(part, tmp_path / f"{part[0]}-{part[-1]}.jsonl.gz"))
        assert not NumberBreak.objects.exists()
        check_days(LATELY)
        with django_assert_num_queries(4):  # from which number, to which number, runs, which of them match
            find_runs(RunFilters(since=LATELY.date(), until=LATELY.date()))
        with django_assert_num_queries(1):
            find_runs(RunFilters())

    def test_runs_that_lie_between_are_not_looked_through(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
    ) -> None:
        monkeypatch.setattr(finding, "FIRST_LOOK", 20)
        monkeypatch.setattr(finding, "LOOK_THROUGH", 20)
        first = store_hourly(LATELY, 5)
        restore_archive(archive(store_hourly(LONG_AGO), tmp_path / "theirs.jsonl.gz"))
        last = store_hourly(LATELY + timedelta(hours=5), 5)
        with django_assert_num_queries(4):  # from which number, newer runs, older runs, which of them match
            found = find_runs(RunFilters(since=LATELY.date()))
        assert found == finding.FoundRuns((*last[::-1], *first[::-1]), None)


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


@pytest.mark.django_db(transaction=True)
def test_an_installation_that_restored_such_runs_before_an_upgrade_finds_them_by_day_afterwards() -> None:
    with hold_older_tables([("runs", "0027_run_again_of")]) as models:
        flow = models.get_model("flows", "Flow").objects.create(name="example", title="Example")
        version = models.get_model("flows", "FlowVersion").objects.create(flow=flow, number=1, spec={}, digest="")
        run = models.get_model("runs", "Run")
        for begin in (LATELY, LONG_AGO):
            moments = [begin + timedelta(hours=number) for number in range(COUNT)]
            run.objects.bulk_create(
                run(flow=flow, version=version, input={}, model_settings={}, step_count=1, created_at=moment)
                for moment in moments
            )
        migrate_to_newest()
        assert NumberBreak.objects.count() == 1
        check_days(LATELY, LONG_AGO)
