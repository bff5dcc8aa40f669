"""Statistics of flows and of everything: sums of daily rows, never of the runs themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from functools import partial
from typing import Any, Literal

from django.shortcuts import get_object_or_404
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.models import Flow, FlowVersion
from runs.api.access import READ_RUNS
from runs.api.base import ApiView, operation
from runs.api.figures import AuditStatistics, FlowStatistics, Group, Overview, StepFigures, UsageStatistics
from runs.api.problems import InvalidQuery
from runs.documents.base import Day, Name, Omitted, Query, RowNumber
from runs.models import Run
from runs.statistics.figures import (
    FLOW,
    GROUPS,
    MAX_AUDITS,
    VERSION,
    DayRuns,
    Scope,
    StepGroup,
    compare_today,
    fetch_audits,
    fetch_issues,
    fetch_runs,
    fetch_steps,
    fetch_steps_by_day,
    fetch_usage,
    sum_models,
)
from runs.statistics.queue_state import fetch_queue_state
from runs.statistics.sums import WEEK, Period, RunSums, StepSums, last_days, split_cost_of_runs, sum_by, sum_by_slot

_operation = partial(operation, tag="Statistics")
MAX_DAYS = 1_000
"""Days that one request may ask for."""
DEFAULT_DAYS = 30
MAX_ITEMS = 1_000
"""Items of an answer about usage."""
MAX_VERSIONS = 100
MAX_ISSUES = 50
MAX_RUNNING = 20
MAX_COUNTED = 1_000
"""Running runs that are listed, and that are counted."""


# ---------------------------------------------------------------------------------------------------------------------
# Parameters


class OverviewQuery(Query):
    """Which runs are meant."""

    simulated: Literal["true", "false"] = Field("false", description="Simulated runs or real ones, never both.")

    @property
    def is_simulated(self) -> bool:
        return self.simulated == "true"


class SpanQuery(OverviewQuery):
    """Which days and which version are meant."""

    first: Day | Omitted = Field(
        None,
        alias="from",
        description=f"The first day (UTC) on which runs ended. By default the span has {DEFAULT_DAYS} days; it may "
        f"have {MAX_DAYS:,}.",
    )
    last: Day | Omitted = Field(None, alias="to", description="The last day (UTC), counted in; by default today.")
    version: RowNumber | Omitted = Field(None, description="Only runs of the version of this number.")


class FlowStatisticsQuery(SpanQuery):
    """Which figures of a flow are read."""

    model: Name | Omitted = Field(None, description="Only attempts that this model answered.")
    group_by: Literal["day", "week", "none"] = Field(
        "day", description="The length of a period; `none` omits `periods`."
    )


class AuditQuery(SpanQuery):
    """Which audits of a flow come first."""

    sort: Literal["fired", "cost"] = Field("fired", description="Order by number of issues or by cost.")


class UsageQuery(SpanQuery):
    """Which usage is read, and what it is grouped by."""

    flow: Name | Omitted = Field(None, description="Only runs of the flow of this name.")
    version: RowNumber | Omitted = Field(None, description="Only runs of this version of `flow`, which it needs.")
    model: Name | Omitted = Field(None, description="Only attempts that this model answered.")
    group_by: list[Group] = Field(
        ["flow"],
        description="The keys to group usage by, separated by commas: any of `flow`, `version`, `model` and `day`. "
        "Versions are numbered within their flow, so `version` includes the flow.",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Operations


class Statistics(ApiView):
    """Sums of flows and of everything."""

    @_operation("GET flows/<slug:name>/statistics", "Read the statistics of a flow", READ_RUNS)
    def get_flow_statistics(self, request: Request, name: str, query: FlowStatisticsQuery) -> FlowStatistics:
        """Runs that ended in a span of days: rates, durations, tokens and cost; by version, model, step and day. The
        same figures as on the page of the flow.
        """
        flow = _load_flow(name)
        scope = _build_scope(query, flow)
        groups, days = fetch_steps(scope), fetch_runs(scope)
        # Of one model there are attempts, and no runs.
        has_runs = query.model is None
        shown = groups if has_runs else [group for group in groups if group.model == query.model]
        by_version = sum_by((day.version_id, day.sums) for day in days) if has_runs else {}
        by_model = sum_by((group.model, group.sums) for group in groups)
        by_step = sum_by(((group.step, group.name), group.sums) for group in shown)
        figures = {
            **_describe_scope(query, scope),
            "flow": name,
            "model": query.model,
            "group_by": query.group_by,
            **_build_figures(
                RunSums.join(by_version.values()) if has_runs else None,
                StepSums.join(group.sums for group in shown),
                is_of_model=not has_runs,
            ),
            "periods": None if query.group_by == "none" else _build_periods(query, scope, days),
            "versions": _build_versions(flow, by_version if has_runs else None, shown),
            "runs_by_model": [
                {"model": model, "has_several": has_several} | dict.fromkeys(("runs", "steps", "tokens", "cost"), sums)
                for (model, has_several), sums in sum_models(days).items()
            ],
            # The one with the most attempts first, and what none answered last.
            "models": [
                {"model": model, **_build_figures(None, sums, is_of_model=True)}
                for model, sums in sorted(by_model.items(), key=lambda one: (not one[0], -one[1].attempts, one[0]))
            ],
            "by_step": [
                {"step": step, "name": step_name, **_build_figures(None, sums, is_of_model=not has_runs)}
                for (step, step_name), sums in sorted(by_step.items())
            ],
            "issues": fetch_issues(scope, limit=MAX_ISSUES) if has_runs else None,
        }
        return FlowStatistics.model_validate(figures, context={"is_simulated": query.is_simulated})

    @_operation(
        "GET flows/<slug:name>/statistics/audits",
        "Read how often the audits of a flow fired, and what their retries cost",
        READ_RUNS,
    )
    def get_flow_audit_statistics(self, request: Request, name: str, query: AuditQuery) -> AuditStatistics:
        """Each audit by step, the 100 that come first; what ToolFlow itself raised by code. If several fired in one
        attempt, the next attempt counts as the retry of each: their costs may add up to more than all retries cost.
        """
        scope = _build_scope(query, _load_flow(name))
        found = fetch_audits(scope, fetch_steps(scope), by_cost=query.sort == "cost", limit=MAX_AUDITS + 1)
        figures = {
            **_describe_scope(query, scope),
            "flow": name,
            "items": found[:MAX_AUDITS],
            "is_truncated": len(found) > MAX_AUDITS,
        }
        return AuditStatistics.model_validate(figures, context={"is_simulated": query.is_simulated})

    @_operation("GET statistics/usage", "Read the tokens and cost of flows by flow, version, model and day", READ_RUNS)
    def get_usage(self, request: Request, query: UsageQuery) -> UsageStatistics:
        """Usage of the runs that ended in a span of days. An answer has at most 1,000 items; what makes more is refused
        with 400: ask for fewer days, filter, or group by less.
        """
        flow = None if query.flow is None else Flow.objects.filter(name=query.flow).only("pk", "name").first()
        if flow is None and query.flow is not None:
            raise InvalidQuery([Problem("flow", "This flow does not exist.")])
        scope = _build_scope(query, flow, query.model)
        wanted = {*query.group_by, FLOW} if VERSION in query.group_by else {*query.group_by}
        group_by = [name for name in GROUPS if name in wanted]
        groups = fetch_usage(scope, group_by, limit=MAX_ITEMS + 1)
        if len(groups) > MAX_ITEMS:
            sentence = (
                f"The result has more than {MAX_ITEMS:,} items. Request fewer days, filter, or group by fewer keys."
            )
            raise InvalidQuery([Problem("group_by", sentence)])
        figures = {
            **_describe_scope(query, scope),
            "flow": query.flow,
            "model": query.model,
            "group_by": group_by,
            "items": groups,
        }
        return UsageStatistics.model_validate(figures, context={"is_simulated": query.is_simulated})

    @_operation("GET statistics/overview", "Read current activity, and today against the 7-day median", READ_RUNS)
    def get_overview(self, request: Request, query: OverviewQuery) -> Overview:
        """Runs under way, the queue and its workers; and the runs that ended today so far beside the median of the 7
        days before. Days are those of UTC.
        """
        now = timezone.now()
        day = now.astimezone(UTC).date()
        so_far, median = compare_today(day, is_simulated=query.is_simulated)
        queue = fetch_queue_state()
        states = [worker.state for worker in queue.workers]
        silent = states.count("silent")
        figures = {
            "now": now,
            "running": _fetch_running(),
            "queue": queue,
            "workers": {
                "alive": len(states) - silent,
                "silent": silent,
                "slots": queue.slots,
                "in_flight": queue.in_flight,
            },
            "is_simulated": query.is_simulated,
            "today": {
                "day": day,
                "runs": so_far,
                "tokens": so_far.total_tokens,
                "cost": so_far.known_cost,
                "unpriced": so_far.unpriced,
            },
            "median": median,
        }
        return Overview.model_validate(figures, context={"is_simulated": query.is_simulated})


def _fetch_running() -> dict[str, Any]:
    columns = ("pk", "flow__name", "version__number", "started_at", "steps_passed", "step_count")
    running = Run.objects.running()
    newest = running.order_by("-created_at", "-pk").values(*columns)[:MAX_RUNNING]
    return {"count": running.order_by()[:MAX_COUNTED].count(), "items": list(newest)}


# ---------------------------------------------------------------------------------------------------------------------
# What is asked for


def _load_flow(name: str) -> Flow:
    return get_object_or_404(Flow.objects.only("pk", "name", "live_version"), name=name)


def _build_scope(query: SpanQuery, flow: Flow | None, model: str | None = None) -> Scope:
    """The rows that are meant. Raises ``InvalidQuery`` for days the wrong way round, too many, or no such version."""
    last = query.last or timezone.now().astimezone(UTC).date()
    first = query.first or last_days(DEFAULT_DAYS, last).first
    if not 0 <= (last - first).days < MAX_DAYS:
        sentence = f"“from” and “to” span 1 to {MAX_DAYS:,} days; these are from {first} to {last}."
        raise InvalidQuery([Problem("from", sentence)])
    version_id = None
    if query.version is not None:
        version_id = FlowVersion.objects.filter(flow=flow, number=query.version).values_list("pk", flat=True).first()
        if version_id is None:
            raise InvalidQuery([Problem("version", "This version does not exist. Send its flow, too.")])
    return Scope(first, last, query.is_simulated, flow, version_id, model)


def _describe_scope(query: SpanQuery, scope: Scope) -> dict[str, Any]:
    return {
        "first": scope.first,
        "last": scope.last,
        "version": query.version,
        "is_simulated": scope.is_simulated,
    }


# ---------------------------------------------------------------------------------------------------------------------
# What is answered


def _build_figures(runs: RunSums | None, steps: StepSums, *, is_of_model: bool) -> dict[str, Any]:
    """What ``Figures`` are made of; without ``runs`` only what is known of steps.

    ``is_of_model`` says that these are attempts by one model: another one may have begun or passed the same step.
    """
    spent = runs or steps
    # Means of no runs are None.
    by_run = runs or RunSums()
    own = StepFigures.model_validate(steps)
    return {
        "runs": runs,
        "steps": own.model_copy(update={"pass_rate": None, "attempts_per_step": None}) if is_of_model else own,
        "tokens": {
            "total": spent.total_tokens,
            "per_run": by_run.tokens_per_run,
            "per_accepted_output": by_run.tokens_per_accepted,
            "per_attempt": spent.tokens_for(spent.attempts),
            "per_passed_attempt": steps.tokens_per_passed,
        },
        "cost": {
            "total": spent.known_cost,
            "per_run": by_run.cost_per_run,
            "per_accepted_output": by_run.cost_per_accepted,
            "per_attempt": spent.cost_for(spent.attempts),
            "per_passed_attempt": steps.cost_per_passed,
            "unpriced": spent.unpriced,
        },
        "retry_bill": runs and split_cost_of_runs(runs)[0],
    }


def _build_periods(query: FlowStatisticsQuery, scope: Scope, days: Sequence[DayRuns]) -> list[dict[str, Any]]:
    """The figures of each day or week, also of those in which nothing ran."""
    if query.group_by == "week":
        period = Period(scope.first - timedelta(days=scope.first.weekday()), scope.last, WEEK)
    else:
        period = Period(scope.first, scope.last)
    has_runs = query.model is None
    steps = sum_by_slot(period, fetch_steps_by_day(scope, query.model))
    runs = sum_by_slot(period, ((day.day, day.sums) for day in days))
    return [
        {
            "first": max(slot.first, scope.first),
            "last": min(slot.last, scope.last),
            **_build_figures(
                (own_runs or RunSums()) if has_runs else None, own_steps or StepSums(), is_of_model=not has_runs
            ),
        }
        for slot, own_runs, own_steps in zip(period.slots, runs, steps, strict=True)
    ]


def _build_versions(
    flow: Flow, runs: Mapping[int, RunSums] | None, groups: Sequence[StepGroup]
) -> list[dict[str, Any]]:
    """The figures of each version that ran, the newest first; ``runs`` is None where figures are of one model."""
    numbers = dict(FlowVersion.objects.filter(flow=flow).values_list("pk", "number"))
    steps = sum_by((group.version_id, group.sums) for group in groups)
    newest = sorted(steps if runs is None else runs, key=lambda key: -numbers[key])[:MAX_VERSIONS]
    return [
        {
            "version": numbers[key],
            "is_live": key == flow.live_version_id,
            **_build_figures(None if runs is None else runs[key], steps.get(key, StepSums()), is_of_model=runs is None),
        }
        for key in newest
    ]
