"""What is read of statistics and of the queue, and in how many queries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from flows.models import FlowVersion
from runs.models import RunStatus
from runs.models.run import in_future
from runs.statistics.figures import (
    Scope,
    compare_today,
    fetch_audits,
    fetch_issues,
    fetch_kinds,
    fetch_runs,
    fetch_steps,
    fetch_steps_by_day,
    fetch_usage,
    load_flow_days,
    sum_models,
)
from runs.statistics.queue_state import fetch_queue_state, runs_without_worker
from runs.statistics.sums import last_days, sum_by
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_models, add_runs
from tests.runs.pages.history_builders import make_page_flow

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

TODAY = datetime(2026, 5, 13, 9, 30, tzinfo=UTC).date()
SPAN = (TODAY - timedelta(days=29), TODAY)


@pytest.fixture
def version() -> FlowVersion:
    return make_version(make_page_flow())


class TestToday:
    def end_runs(self, days_ago: int, **values: object) -> None:
        """Runs of a version of their own that ended on a day."""
        add_runs(make_version(make_page_flow()), TODAY - timedelta(days=days_ago), **values)  # type: ignore[arg-type]

    def test_an_unusual_day_makes_no_difference(self) -> None:
        for days_ago, runs in enumerate((3, 10, 10, 9_000, 5, 10, 10, 10)):
            self.end_runs(days_ago, succeeded=runs, cost=str(runs))
        so_far, median = compare_today(TODAY, is_simulated=False)
        assert so_far.runs == 3
        assert median is not None
        assert (median["days"], median["runs"], median["total_tokens"], median["cost"]) == (7, 10, 1_000, 10)

    def test_rates_and_durations_are_medians_of_those_of_each_day_over_all_flows(self) -> None:
        self.end_runs(0, succeeded=3, failed=1, took=20)
        self.end_runs(1, succeeded=10, failed=10)
        self.end_runs(2, succeeded=9, failed=1, took=40)
        self.end_runs(2, succeeded=30, took=10)
        self.end_runs(3, failed=1_000, took=900)
        so_far, median = compare_today(TODAY, is_simulated=False)
        assert median is not None
        assert (so_far.pass_rate, median["pass_rate"]) == (0.75, 0.5)
        assert so_far.median == pytest.approx(20, rel=0.03)
        assert median["duration_p50"] == pytest.approx(10, rel=0.03)
        assert median["duration_p95"] == pytest.approx(40, rel=0.03)


def test_runs_of_a_scope_add_up_by_version_and_by_model(version: FlowVersion) -> None:
    newer = make_version(make_page_flow())
    add_models(version, TODAY, "gpt-5", runs=2)
    add_models(version, TODAY - timedelta(days=1), "gpt-5", runs=3)
    add_models(newer, TODAY, "", has_several=True, runs=9)
    add_models(newer, TODAY, "gpt-5", runs=50, is_simulated=True)
    add_models(newer, TODAY - timedelta(days=30), "gpt-5", runs=70)
    days = fetch_runs(Scope(*SPAN, False, version.flow))
    by_version = sum_by((day.version_id, day.sums) for day in days)
    assert {key: sums.runs for key, sums in by_version.items()} == {version.pk: 5, newer.pk: 9}
    assert [(key, sums.runs) for key, sums in sum_models(days).items()] == [(("", True), 9), (("gpt-5", False), 5)]


@pytest.mark.parametrize(
    "fetch",
    [
        lambda flow, scope: fetch_kinds(flow, *SPAN),
        lambda flow, scope: fetch_runs(scope),
        lambda flow, scope: fetch_steps(scope),
        lambda flow, scope: fetch_steps_by_day(scope, "gpt-5"),
        lambda flow, scope: fetch_audits(scope, [], by_cost=True),
        lambda flow, scope: fetch_issues(scope),
        lambda flow, scope: fetch_usage(Scope(*SPAN, False), ("flow", "day"), limit=10),
        lambda flow, scope: fetch_usage(Scope(*SPAN, False, model="gpt-5"), ("version", "model"), limit=10),
        lambda flow, scope: load_flow_days(last_days(15, TODAY)),
        lambda flow, scope: compare_today(TODAY, is_simulated=False),
    ],
)
def test_each_costs_one_query(
    fetch: Callable[..., object], version: FlowVersion, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    add_runs(version, TODAY, succeeded=1)
    with django_assert_num_queries(1):
        fetch(version.flow, Scope(*SPAN, False, version.flow, version.pk))


MINUTE = timedelta(minutes=1)
SOON, EARLIER = in_future(MINUTE), in_future(-MINUTE)


@pytest.mark.parametrize(
    ("fields", "ready", "later", "waiting"),
    [
        ({}, 1, 0, 0),
        ({"available_at": SOON}, 0, 1, 0),
        ({"available_at": SOON, "waiting_for": "Waits for a limit."}, 0, 0, 1),
        ({"available_at": EARLIER, "waiting_for": "Waits for a limit."}, 1, 0, 0),
        ({"waiting_since": Now(), "waiting_for": "Waits for the plug-in x."}, 0, 0, 1),
        ({"status": RunStatus.CANCELLED, "ended_at": Now()}, 0, 0, 0),
    ],
)
def test_queued_runs_are_ready_or_wait_for_a_time_or_for_something_else(
    fields: dict[str, Any], ready: int, later: int, waiting: int
) -> None:
    make_run(**fields)
    found = fetch_queue_state()
    assert (found.ready, found.later, found.waiting) == (ready, later, waiting)


def test_a_long_backlog_is_counted_up_to_a_limit_in_four_queries() -> None:
    version = make_version()
    for minutes in range(6):
        make_run(version, available_at=in_future(-minutes * MINUTE))
        make_run(version, available_at=SOON)
        make_run(version, waiting_since=Now(), waiting_for="Waits.")
        make_run(version, available_at=SOON, waiting_for="Waits.")
    with CaptureQueriesContext(connection) as queries:
        found = fetch_queue_state(limit=4)
    assert len(queries) == 4
    assert found.ready == 4 and 4 <= found.later + found.waiting <= 8
    assert found.oldest_ready is not None and found.oldest_ready >= 5 * MINUTE
    everything = fetch_queue_state()
    assert (everything.ready, everything.later, everything.waiting) == (6, 6, 12)


@pytest.mark.parametrize(
    ("fields", "workers", "is_unattended"),
    [
        ({"available_at": EARLIER}, [], True),
        ({"available_at": EARLIER}, [{"heartbeat_at": EARLIER}], True),
        ({"available_at": EARLIER}, [{}], False),
        ({}, [], False),
        ({"available_at": SOON}, [], False),
        ({"available_at": EARLIER, "status": RunStatus.CANCELLED, "ended_at": Now()}, [], False),
    ],
)
def test_a_run_that_is_ready_for_long_without_a_worker_is_unattended(
    fields: dict[str, Any], workers: list[dict[str, Any]], is_unattended: bool
) -> None:
    make_run(**fields)
    for worker in workers:
        make_worker(**worker)
    assert fetch_queue_state().is_unattended is is_unattended
    assert runs_without_worker().exists() is is_unattended
