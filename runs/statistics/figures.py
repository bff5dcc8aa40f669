"""Reading statistics: sums of daily rows, never of runs. Each function costs one query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from operator import attrgetter, itemgetter
from statistics import median
from typing import Any, TypeVar

from django.db.models import QuerySet, Sum

from flows.models import Flow
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps
from runs.models.statistics import DailyCounts
from runs.statistics.sums import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    Period,
    RunSums,
    StepSums,
    find_known_cost,
    last_days,
    share_of,
    sum_by,
    sum_by_slot,
)

MAX_AUDITS = 100
MAX_ISSUES = 15
CHART_DAYS = 15
"""Days that charts of all flows show, today among them."""
MEDIAN_DAYS = 7
"""Days before today that the median is taken of."""
FLOW, VERSION, MODEL, DAY = "flow", "version", "model", "day"
GROUPS: Mapping[str, str] = {FLOW: "flow__name", VERSION: "version__number", MODEL: "model", DAY: "day"}
"""What usage can be grouped by, with the column of each. Versions are numbered within their flow."""

_Row = TypeVar("_Row", bound=DailyCounts)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows are meant: from ``first`` to ``last``, of one flow, version or model if they are given."""

    first: date
    last: date
    is_simulated: bool
    flow: Flow | None = None
    version_id: int | None = None
    model: str | None = None

    def narrow(self, rows: QuerySet[_Row]) -> QuerySet[_Row]:
        """Those of ``rows`` that are meant, in no order."""
        # The indexes begin with the flow.
        flows = Flow.objects.values("pk") if self.flow is None else [self.flow.pk]
        rows = rows.filter(flow__in=flows, day__range=(self.first, self.last), is_simulated=self.is_simulated)
        if self.version_id is not None:
            rows = rows.filter(version=self.version_id)
        if self.model is not None:
            rows = rows.filter(model=self.model)
        return rows.order_by()


@dataclass(frozen=True, slots=True)
class DayRuns:
    """Runs of a version that ended on a day and ask one model, several (then it is empty), or none (then too)."""

    day: date
    version_id: int
    model: str
    has_several: bool
    sums: RunSums


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Attempts of one step of a version by one model, in the whole span."""

    version_id: int
    step: int
    name: str
    model: str
    sums: StepSums


@dataclass(frozen=True, slots=True)
class AuditSums:
    """How often an audit of a step fired and what came of it; an issue of ToolFlow's own has a code and no audit.

    A step of another name is another one, even at the same position of a later version.
    """

    step: int
    step_name: str
    """Empty where it is not known."""
    audit: str
    code: str
    fired: int
    retried: int
    fixed: int
    retry_tokens: int
    retry_cost: Decimal
    retry_unpriced: int

    @property
    def fixed_rate(self) -> float | None:
        """The share of retried attempts that the next attempt fixed."""
        return share_of(self.fixed, self.retried)

    @property
    def known_cost(self) -> Decimal | None:
        """The cost of the retries in USD, None where no price is known."""
        return find_known_cost(self.retry_cost, self.retry_unpriced)


@dataclass(frozen=True, slots=True)
class IssueSums:
    code: str
    audit: str
    severity: str
    issues: int
    runs: int


@dataclass(frozen=True, slots=True)
class FlowDay:
    """Runs of one flow that ended on one day, without their durations."""

    flow_id: int
    name: str
    title: str
    day: date
    sums: RunSums


def fetch_kinds(flow: Flow, first: date, last: date) -> frozenset[bool]:
    """Whether simulated (True) and real (False) runs of a flow were counted in a span."""
    rows = DailyRuns.objects.filter(flow=flow, day__range=(first, last)).order_by()
    return frozenset(rows.values_list("is_simulated", flat=True).distinct())


def fetch_runs(scope: Scope) -> list[DayRuns]:
    """Runs by day, version and the models that they ask."""
    rows = scope.narrow(DailyRuns.objects.all()).order_by("day")
    return [
        DayRuns(day, version_id, model, has_several, RunSums(*columns))
        for day, version_id, model, has_several, *columns in rows.values_list(
            "day", "version", "model", "has_several", *RUN_COLUMNS
        )
    ]


def fetch_steps(scope: Scope) -> list[StepGroup]:
    """Attempts by version, step and model."""
    groups = _group(scope.narrow(DailySteps.objects.all()), ("version", "step", "name", "model"), STEP_COLUMNS)
    return [
        StepGroup(version_id, step, name, model, StepSums(*columns))
        for version_id, step, name, model, *columns in groups.order_by("step", "model", "version")
    ]


def fetch_steps_by_day(scope: Scope, model: str | None = None) -> list[tuple[date, StepSums]]:
    """Attempts of all steps by day: those by all models, or by one."""
    groups = _group(replace(scope, model=model).narrow(DailySteps.objects.all()), ("day",), STEP_COLUMNS)
    return [(day, StepSums(*columns)) for day, *columns in groups.order_by("day")]


def fetch_audits(
    scope: Scope, groups: Sequence[StepGroup], *, by_cost: bool, limit: int = MAX_AUDITS
) -> list[AuditSums]:
    """Up to ``limit`` audits that fired, by step: those that fired most, or whose retries cost most, come first.

    ``groups`` are those of the same scope: they have the names of each version's steps.
    """
    names = {(group.version_id, group.step): group.name for group in groups}
    columns = ("fired", "retried", "fixed", "retry_tokens", "retry_cost", "retry_unpriced")
    found: dict[tuple[int, str, str, str], list[Sequence[Any]]] = {}
    rows = _group(scope.narrow(DailyAudits.objects.all()), ("version", "step", "audit", "code"), columns)
    for version_id, step, audit, code, *sums in rows:
        found.setdefault((step, names.get((version_id, step), ""), audit, code), []).append(sums)
    audits = []
    for key, parts in sorted(found.items(), key=itemgetter(0)):
        totals: list[Any] = [sum(column) for column in zip(*parts, strict=True)]
        audits.append(AuditSums(*key, *totals))
    order = ("retry_cost", "retry_tokens", "fired") if by_cost else ("fired", "retry_tokens", "retry_cost")
    return sorted(audits, key=attrgetter(*order), reverse=True)[:limit]


def fetch_issues(scope: Scope, *, limit: int = MAX_ISSUES) -> list[IssueSums]:
    """Up to ``limit`` kinds of issues, those that were raised most often first."""
    keys = ("code", "audit", "severity")
    groups = _group(scope.narrow(DailyIssues.objects.all()), keys, ("issues", "runs"))
    return [IssueSums(*group) for group in groups.order_by("-issues__sum", *keys)[:limit]]


def fetch_usage(scope: Scope, by: Collection[str], *, limit: int) -> list[dict[str, Any]]:
    """What up to ``limit`` groups ``by`` some of ``GROUPS`` used, in the order of flow, version, model and day.

    Each has its keys, ``runs``, ``attempts`` and ``usage``. The model is empty where none answered. Runs, cached and
    reasoning tokens are None in groups by model.
    """
    has_models = MODEL in by or scope.model is not None
    names = [name for name in GROUPS if name in by]
    keys = [GROUPS[name] for name in names]
    columns = ["total_tokens", "cost", "unpriced", "attempts", "prompt_tokens", "completion_tokens"]
    if not has_models:
        columns += ["runs", "cached_tokens", "reasoning_tokens"]
    rows: QuerySet[Any] = (DailySteps if has_models else DailyRuns).objects.all()
    found = []
    for values in _group(scope.narrow(rows), keys, columns).order_by(*keys)[:limit]:
        own: dict[str, Any] = dict.fromkeys(("runs", "cached_tokens", "reasoning_tokens")) | dict(
            zip((*keys, *columns), values, strict=True)
        )
        usage = {**own, "known_cost": find_known_cost(own["cost"], own["unpriced"])}
        about = dict(zip(names, values, strict=False))
        found.append({**about, "runs": own["runs"], "attempts": own["attempts"], "usage": usage})
    return found


def load_flow_days(period: Period) -> Mapping[bool, Sequence[FlowDay]]:
    """The runs of each flow on each day of a period: simulated ones under True, real ones under False."""
    rows = DailyRuns.objects.filter(day__range=(period.first, period.last)).order_by()
    groups = _group(rows, ("is_simulated", "flow", "flow__name", "flow__title", "day"), RUN_COLUMNS[:-1])
    by_kind: dict[bool, list[FlowDay]] = {}
    for is_simulated, flow, name, title, day, *columns in groups:
        by_kind.setdefault(is_simulated, []).append(FlowDay(flow, name, title, day, RunSums(*columns)))
    return by_kind


def compare_today(today: date, *, is_simulated: bool) -> tuple[RunSums, dict[str, Any] | None]:
    """Runs of all flows that ended today so far, and the median of the ``MEDIAN_DAYS`` before on which any ended.

    The median has a value for each figure, None where no day has one; it is None where no run ended on these days.
    """
    period = last_days(MEDIAN_DAYS + 1, today)
    rows = Scope(period.first, period.last, is_simulated).narrow(DailyRuns.objects.all())
    days = ((day, RunSums(*columns)) for day, *columns in rows.values_list("day", *RUN_COLUMNS))
    *before, so_far = sum_by_slot(period, days)
    return so_far or RunSums(), _find_median([sums for sums in before if sums])


def sum_models(days: Iterable[DayRuns]) -> dict[tuple[str, bool], RunSums]:
    """Runs by the model that they ask and whether they ask several; the one with the most runs first."""
    sums = sum_by(((day.model, day.has_several), day.sums) for day in days)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].runs, item[0][0])))


def _group(rows: QuerySet[Any], keys: Sequence[str], columns: Iterable[str]) -> QuerySet[Any, Any]:
    """Rows of ``keys`` and the sums of ``columns``, which are called ``name__sum``."""
    groups: QuerySet[Any, Any] = rows.values_list(*keys).annotate(*map(Sum, columns))
    return groups


def _find_median(days: Sequence[RunSums]) -> dict[str, Any] | None:
    if not days:
        return None

    def find(name: str) -> Any:
        known = [value for value in (getattr(sums, name) for sums in days) if value is not None]
        return median(known) if known else None

    return {
        "days": len(days),
        "runs": round(find("runs")),
        "pass_rate": find("pass_rate"),
        "first_rate": find("first_rate"),
        "duration_p50": find("median"),
        "duration_p95": find("p95"),
        "total_tokens": round(find("total_tokens")),
        "cost": find("known_cost"),
        # Of all days together: costs are without them.
        "unpriced": sum(sums.unpriced for sums in days),
    }
