"""What is read of statistics: today beside the days before, usage by group, and each of it in one query."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from pytest_django import DjangoAssertNumQueries

from flows.models import FlowVersion
from runs.statistics.figures import (
    GROUPS,
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
    sum_versions,
)
from runs.statistics.sums import last_days
from tests.runs.builders import make_version
from tests.runs.pages.daily_rows import add_models, add_runs, add_steps
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
    assert {key: sums.runs for key, sums in sum_versions(days).items()} == {version.pk: 5, newer.pk: 9}
    assert [(key, sums.runs) for key, sums in sum_models(days).items()] == [(("", True), 9), (("gpt-5", False), 5)]


def test_usage_has_the_same_sum_however_it_is_grouped(version: FlowVersion) -> None:
    for one in (version, make_version(make_page_flow()), make_version(make_page_flow(name="other"))):
        for days_ago in range(2):
            add_runs(one, TODAY - timedelta(days=days_ago), succeeded=1)
            add_steps(one, TODAY - timedelta(days=days_ago), total_tokens=60)
            add_steps(one, TODAY - timedelta(days=days_ago), model="gpt-5", total_tokens=40)
    for size in range(1, len(GROUPS) + 1):
        for by in combinations(GROUPS, size):
            groups = fetch_usage(Scope(*SPAN, False), by, limit=100)
            assert sum(group["usage"]["total_tokens"] for group in groups) == 600, by


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
