"""Sums over years of days."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from flows.models import Flow, FlowVersion
from runs.metrics.counted_days import Counted, read_counted
from runs.models import DailyRuns, DailySteps, Run
from runs.rollup import count_ended_runs
from tests.engine.builders import make_attempt, make_flow, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import store_attempt

pytestmark = pytest.mark.django_db

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
    assert count_ended_runs(limit=1_000) == 20
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


def test_days_of_all_years_are_added_up() -> None:
    fill()
    assert read(read_counted()) == add_up_plainly()


def test_flows_may_be_renamed() -> None:
    version, _ = fill()
    Flow.objects.filter(pk=version.flow_id).update(name="mail")
    assert read(read_counted())[0] == {"mail": 11, "invoices": 9}
