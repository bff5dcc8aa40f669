"""Reading what was counted of one flow's runs: sums of daily rows, never the runs themselves.

Each function costs one query, over the rows of one flow and one span of days: the unique index of each table begins
with those. Sums that one slot of a chart needs are read by day, all others are made by the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TypeVar

from django.db.models import Min, QuerySet, Sum

from flows.models import Flow
from runs.figures.means import share_of
from runs.figures.sums import RUN_COLUMNS, STEP_COLUMNS, RunSums, StepSums
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps

MOST_AUDITS = 100
MOST_ISSUES = 15
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows are meant: those of a flow from ``first`` to ``last``, of one version if it is given."""

    flow: Flow
    first: date
    last: date
    is_simulated: bool
    version_id: int | None = None

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those of ``rows`` that are meant."""
        rows = rows.filter(flow=self.flow, day__range=(self.first, self.last), is_simulated=self.is_simulated)
        return rows if self.version_id is None else rows.filter(version=self.version_id)


@dataclass(frozen=True, slots=True)
class DayRuns:
    day: date
    version_id: int
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
    """How often an audit of a step fired and what came of it; a finding of ToolFlow's own has a code and no audit."""

    step: int
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
        """How many of the attempts that were retried the next attempt fixed."""
        return share_of(self.fixed, self.retried)

    @property
    def known_cost(self) -> Decimal | None:
        """What the attempts that followed cost in USD, None where no price is known."""
        return self.retry_cost if self.retry_cost or not self.retry_unpriced else None


@dataclass(frozen=True, slots=True)
class IssueSums:
    code: str
    audit: str
    severity: str
    issues: int
    runs: int


def find_kinds(flow: Flow, first: date, last: date) -> frozenset[bool]:
    """Whether simulated (True) and real (False) runs of a flow were counted in a span."""
    rows = DailyRuns.objects.filter(flow=flow, day__range=(first, last)).order_by()
    return frozenset(rows.values_list("is_simulated", flat=True).distinct())


def read_runs(scope: Scope) -> list[DayRuns]:
    """Runs by day and version."""
    rows = scope.narrow(DailyRuns.objects.order_by("day"))
    return [
        DayRuns(day, version_id, RunSums(*columns))
        for day, version_id, *columns in rows.values_list("day", "version", *RUN_COLUMNS)
    ]


def read_steps(scope: Scope) -> list[StepGroup]:
    """Attempts by version, step and model."""
    rows = scope.narrow(DailySteps.objects.order_by("step", "model", "version"))
    groups = rows.values_list("version", "step", "name", "model").annotate(*_sums(STEP_COLUMNS))
    return [
        StepGroup(version_id, step, name, model, _step_sums(columns))
        for version_id, step, name, model, *columns in groups
    ]


def read_steps_by_day(scope: Scope, model: str | None = None) -> list[tuple[date, StepSums]]:
    """Attempts of all steps by day: those by all models, or by one."""
    rows = scope.narrow(DailySteps.objects.order_by("day"))
    if model is not None:
        rows = rows.filter(model=model)
    return [(group[0], _step_sums(group[1:])) for group in rows.values_list("day").annotate(*_sums(STEP_COLUMNS))]


def read_audits(scope: Scope, *, by_cost: bool, limit: int = MOST_AUDITS) -> list[AuditSums]:
    """Up to ``limit`` audits that fired, by step: what fired most, or what cost most in retries, comes first."""
    order = ("-retry_cost__sum", "-retry_tokens__sum", "-fired__sum")
    if not by_cost:
        order = order[::-1]
    rows = scope.narrow(DailyAudits.objects.order_by())
    names = ("fired", "retried", "fixed", "retry_tokens", "retry_cost", "retry_unpriced")
    groups = rows.values_list("step", "audit", "code").annotate(*_sums(names)).order_by(*order, "step", "audit", "code")
    return [AuditSums(*group) for group in groups[:limit]]


def read_issues(scope: Scope, *, limit: int = MOST_ISSUES) -> list[IssueSums]:
    """Up to ``limit`` kinds of issues, those that were raised most often first."""
    rows = scope.narrow(DailyIssues.objects.order_by())
    groups = rows.values_list("code", "audit", "severity").annotate(*_sums(("issues", "runs")))
    return [IssueSums(*group) for group in groups.order_by("-issues__sum", "code", "audit", "severity")[:limit]]


def read_first_days(flow: Flow) -> dict[int, date]:
    """The day from which on runs of each version, by its key, were counted."""
    rows = DailyRuns.objects.filter(flow=flow).order_by()
    return dict(rows.values_list("version").annotate(Min("day")))


def sum_versions(days: Sequence[DayRuns]) -> dict[int, RunSums]:
    """Runs of each version, by its key."""
    found: dict[int, list[RunSums]] = {}
    for day in days:
        found.setdefault(day.version_id, []).append(day.sums)
    return {key: RunSums.join(sums) for key, sums in found.items()}


def sum_groups(groups: Sequence[StepGroup], key: Callable[[StepGroup], _Key]) -> dict[_Key, StepSums]:
    """Attempts of the groups that have the same ``key``."""
    found: dict[_Key, list[StepSums]] = {}
    for group in groups:
        found.setdefault(key(group), []).append(group.sums)
    return {name: StepSums.join(sums) for name, sums in found.items()}


def name_steps(groups: Sequence[StepGroup]) -> dict[int, str]:
    """The name of each step, by its position: the one in the newest version that tried it."""
    return {group.step: group.name for group in sorted(groups, key=lambda group: group.version_id)}


def _sums(names: Iterable[str]) -> list[Sum]:
    """The sum of each column, called ``name__sum``: the columns' own names stay free."""
    return [Sum(name) for name in names]


def _step_sums(columns: Iterable[Any]) -> StepSums:
    return StepSums(*columns)
