"""Daily statistics as counting leaves them, with as little as the case at hand needs."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from flows.models import FlowVersion
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps
from runs.statistics.sums import find_bucket


def day_ago(days: int) -> date:
    """The day so long before today, UTC."""
    return datetime.now(UTC).date() - timedelta(days=days)


def stop_clock(monkeypatch: pytest.MonkeyPatch, at: time = time(12)) -> None:
    """Let it be noon (UTC) of today for the website, or another time, whenever the test runs."""
    now = datetime.combine(day_ago(0), at, tzinfo=UTC)
    monkeypatch.setattr(timezone, "now", lambda: now)


def add_runs(
    version: FlowVersion,
    day: date,
    *,
    took: float = 10.0,
    cost: str = "0",
    is_simulated: bool = False,
    **counts: int,
) -> DailyRuns:
    """Runs that ended on a day, by status; each took ``took`` seconds, all together cost ``cost``."""
    statuses = ("succeeded", "failed", "errored", "cancelled")
    runs = sum(counts.get(status, 0) for status in statuses)
    values = {"total_tokens": 100 * runs, "first_tokens": 100 * runs, **counts}
    return DailyRuns.objects.create(
        flow=version.flow,
        version=version,
        day=day,
        is_simulated=is_simulated,
        runs=runs,
        durations={str(find_bucket(took)): runs},
        cost=Decimal(cost),
        first_cost=Decimal(cost),
        **values,
    )


def add_models(version: FlowVersion, day: date, model: str, *, took: float = 10.0, runs: int, **values: Any) -> None:
    """Runs that ask a model; each took ``took`` seconds."""
    DailyRuns.objects.create(
        flow=version.flow,
        version=version,
        day=day,
        model=model,
        runs=runs,
        durations={str(find_bucket(took)): runs},
        **values,
    )


def add_steps(version: FlowVersion, day: date, *, step: int = 1, model: str = "gpt-5-mini", **values: Any) -> None:
    """Attempts of one step by a model."""
    values = {"name": f"Step {step}", **values}
    DailySteps.objects.create(flow=version.flow, version=version, day=day, step=step, model=model, **values)


def add_audit(version: FlowVersion, day: date, audit: str, *, step: int = 1, **values: Any) -> None:
    """How often an audit fired on a day."""
    DailyAudits.objects.create(flow=version.flow, version=version, day=day, step=step, audit=audit, **values)


def add_issues(version: FlowVersion, day: date, code: str, severity: str = "high", **values: Any) -> None:
    """How often an issue was raised on a day."""
    DailyIssues.objects.create(flow=version.flow, version=version, day=day, code=code, severity=severity, **values)
