"""What a backtest predicted of a version, beside what came; and what leaving out each of its audits would change."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from django.db.models import Sum

from flows.engine.backtest_result import BacktestKind
from flows.models import FlowVersion
from runs.backtests.totals import Totals, describe_totals
from runs.models import Backtest, DailyRuns, Run, WorkState

MIN_RUNS = 10
"""Runs of a version before anything is said of what came."""
MAX_SHARE_RUNNING = 0.1
"""Share of runs that may still be in progress: runs without retries end first and would distort the figures."""


def load_prediction(version: FlowVersion) -> dict[str, Any] | None:
    """What the newest finished backtest of a version said, from before it went live, and how it came; None without one.

    ``predicted`` is by how much retries would change, empty where there were none; ``since`` by how much they changed
    per run from the day of the backtest on, empty while too few ``runs`` of the version are counted. Three queries.
    """
    found = Backtest.objects.predicting().filter(digest=version.digest, flow=version.flow_id)
    backtest = found.defer("document", "run_ids").order_by("-pk").first()
    if backtest is None:
        return None
    totals = Totals.from_document(backtest.totals)
    judged = totals.result.runs - totals.get(BacktestKind.NOT_REPRODUCIBLE).runs - totals.get(BacktestKind.REMOVED).runs
    days = DailyRuns.objects.filter(version=version, day__gte=backtest.created_at.astimezone(UTC).date()).order_by()
    rows = days.values_list("is_simulated").annotate(Sum("runs"), Sum("retries"))
    came = {is_simulated: sums for is_simulated, *sums in rows}
    # Simulated runs only where there are no others.
    runs, retries = came.get(False) or came.get(True) or (0, 0)
    running = Run.objects.running().filter(version=version).count()
    since = ""
    if totals.retries and runs >= MIN_RUNS and running <= MAX_SHARE_RUNNING * runs:
        since = format_change(retries / runs / (totals.retries / judged) - 1)
    predicted = "" if totals.retry_change is None else format_change(totals.retry_change)
    return {
        "backtest": backtest,
        "sentence": describe_totals(totals),
        "predicted": predicted,
        "since": since,
        "runs": runs,
        "running": running,
        "needed": MIN_RUNS,
    }


def format_change(share: float) -> str:
    """A change in per cent with its sign: ``+0.5 %``, ``±0 %``."""
    percent = round(100 * share, 1)
    if not percent:
        return "±0 %"
    sign = "+" if percent > 0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(percent):g} %"


def load_without_each(version: FlowVersion) -> Backtest | None:
    """The newest backtest that leaves out each audit of a version, but a stopped one. One query."""
    rows = Backtest.objects.filter(flow=version.flow_id, version=version.pk, leaves_out_each=True)
    rows = rows.exclude(state=WorkState.STOPPED)
    return rows.defer("document", "run_ids").order_by("-pk").first()
