"""Sums over years of days: remembered by each process, and always what all days come to."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.models import Flow, FlowVersion
from runs.metrics.counted_days import Counted, CountedDays
from runs.models import DailyRuns, DailySteps, Run
from runs.statistics.turns import Pause
from runs.tally import tally_ended_runs
from tests.engine.builders import make_attempt, make_flow, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import store_attempt

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
AGES = (0, 1, 2, 3, 4, 5, 30, 400, 1_000)
"""Days before now."""


@pytest.fixture(autouse=True)
def clock() -> Any:
    """The time of this test, which it may set."""
    with patch("django.utils.timezone.now", return_value=NOW) as now:
        yield now


def end_run(version: FlowVersion, *, age: int, model: str = "gpt-5") -> Run:
    """A run that ended so many days ago and is not counted yet."""
    ended = NOW - timedelta(days=age)
    run = make_run(version, status="succeeded", started_at=ended, ended_at=ended)
    store_attempt(run, make_attempt(1, model=model))
    return run


def make_versions() -> list[FlowVersion]:
    return [make_version(make_flow(make_step(1)).model_copy(update={"name": name})) for name in ("letters", "invoices")]


def fill() -> list[FlowVersion]:
    """Two flows that ran now and then for three years, counted."""
    versions = make_versions()
    for version in versions:
        for age in AGES:
            end_run(version, age=age)
    end_run(versions[0], age=2, model="another")
    end_run(versions[0], age=700, model="another")
    assert tally_ended_runs(limit=1_000) == 20
    return versions


def add_up_plainly() -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Runs that succeeded by flow, and attempts by flow and model, row by row."""
    runs: Counter[str] = Counter()
    attempts: Counter[tuple[str, str]] = Counter()
    for row in DailyRuns.objects.select_related("flow"):
        runs[row.flow.name] += row.succeeded
    for step in DailySteps.objects.select_related("flow"):
        attempts[step.flow.name, step.model] += step.attempts
    return runs, attempts


def read(counted: Counted) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    return (
        Counter({name: int(sums["succeeded"]) for name, sums in counted.by_flow.items()}),
        Counter({names: int(sums["attempts"]) for names, sums in counted.by_model.items()}),
    )


def list_days_read(queries: CaptureQueriesContext) -> list[str]:
    """The statements that add up days, those of long ago among them."""
    return [one["sql"] for one in queries if "SUM(" in one["sql"].upper()]


def test_days_of_long_ago_are_added_up_once() -> None:
    fill()
    days = CountedDays()
    first = days.read()
    assert read(first) == add_up_plainly()
    with CaptureQueriesContext(connection) as queries:
        assert days.read() == first
    assert len(list_days_read(queries)) == 2
    assert all('"day" >= ' in sql for sql in list_days_read(queries))


@pytest.mark.parametrize("age", AGES)
def test_a_run_that_ended_whenever_is_counted_with_the_next_scrape_of_every_process(age: int) -> None:
    version, _ = fill()
    processes = [CountedDays(), CountedDays()]
    for process in processes:
        process.read()
    # Such as one of an archive, or of a worker that was away for long.
    end_run(version, age=age)
    tally_ended_runs()
    wanted = add_up_plainly()
    assert wanted[0]["letters"] == 12
    assert [read(process.read()) for process in processes] == [wanted, wanted]


def test_days_that_were_counted_again_are_right_with_the_next_scrape() -> None:
    fill()
    days = CountedDays()
    wanted = days.read()
    DailyRuns.objects.update(succeeded=77)
    DailySteps.objects.filter(day__lt="2025-12-31").delete()
    # Nobody but the command changes rows like that: they are not looked at.
    assert days.read() != wanted
    call_command("rebuild_statistics", verbosity=0)
    assert days.read() == wanted == CountedDays().read()


@pytest.mark.django_db(transaction=True)
def test_whoever_reads_while_they_are_counted_again_is_right_afterwards() -> None:
    fill()
    days = CountedDays()
    wanted = days.read()
    DailyRuns.objects.update(succeeded=77)
    prolong, read_between = Pause.prolong, []

    def read_and_prolong(pause: Pause) -> None:
        prolong(pause)
        if not connection.in_atomic_block:
            read_between.append(CountedDays().read() == days.read())

    with patch.object(Pause, "prolong", read_and_prolong):
        call_command("rebuild_statistics", verbosity=0)
    assert days.read() == wanted and True in read_between


def test_a_new_day_adds_what_is_over_to_what_is_remembered(clock: Any) -> None:
    version, other = fill()
    days = CountedDays()
    days.read()
    for later in (1, 2, 9, 40):
        clock.return_value = NOW + timedelta(days=later)
        end_run(version, age=-later)
        end_run(other, age=-later + 1, model="new")
        tally_ended_runs()
        with CaptureQueriesContext(connection) as queries:
            assert read(days.read()) == add_up_plainly()
        assert not [sql for sql in list_days_read(queries) if '"day" >= ' not in sql]
    # A clock that is set back.
    clock.return_value = NOW
    assert read(days.read()) == add_up_plainly()


def test_flows_may_be_renamed() -> None:
    version, _ = fill()
    days = CountedDays()
    days.read()
    Flow.objects.filter(pk=version.flow_id).update(name="mail")
    assert read(days.read())[0] == {"mail": 11, "invoices": 9}


def test_what_was_taken_back_is_not_remembered() -> None:
    version, _ = fill()
    days = CountedDays()
    wanted = days.read()
    end_run(version, age=400)
    with transaction.atomic():
        tally_ended_runs()
        assert days.read() != wanted
        transaction.set_rollback(True)
    assert days.read() == wanted


def test_a_worker_whose_clock_is_behind_is_believed(clock: Any) -> None:
    version, _ = fill()
    days = CountedDays()
    clock.return_value = NOW + timedelta(hours=24)
    days.read()
    clock.return_value = NOW
    end_run(version, age=2)
    tally_ended_runs()
    clock.return_value = NOW + timedelta(hours=24)
    assert read(days.read()) == add_up_plainly()
    assert timezone.now() == NOW + timedelta(hours=24)
