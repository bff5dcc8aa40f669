"""Reading what was counted of one flow's runs: sums of daily rows, never the runs themselves.

Each function costs one query, over the rows of one flow and one span of days: the unique index of each table begins
with those. Sums that one slot of a chart needs are read by day, all others are made by the database. Statements are
prepared: to build the ten of a page takes longer than to execute them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from django.db.models import Min, QuerySet, Sum

from flows.models import Flow
from runs.figures.means import share_of
from runs.figures.sums import RUN_COLUMNS, STEP_COLUMNS, RunSums, StepSums
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps
from runs.models.statistics import DailyCounts
from runs.prepared_select import PreparedSelect
from runs.statistics.durations import merge_counts

MOST_AUDITS = 100
"""Audits that are shown; whoever asks for one more sees if there are others."""
MOST_ISSUES = 15
MOST_GROUPS = 101
"""Kinds of issues that are read; whoever asks takes what is shown, or one more to see if there are others."""
_Key = TypeVar("_Key")
_Rows = QuerySet[Any, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows are meant: those of a flow from ``first`` to ``last``, of one version if it is given."""

    flow: Flow
    first: date
    last: date
    is_simulated: bool
    version_id: int | None = None


class _ScopedSelect:
    """A query of the daily rows of a scope, prepared once for each shape that scopes have."""

    def __init__(
        self, model: type[DailyCounts], select: Callable[..., _Rows], *, kinds: Sequence[type[str]] = ()
    ) -> None:
        """``select`` makes the query of rows that are narrowed down already; ``kinds`` are those of its own values."""
        self._model = model
        self._select = select
        self._kinds = kinds
        self._prepared: dict[tuple[bool, bool], PreparedSelect] = {}

    def fetch(self, scope: Scope, *values: str) -> list[tuple[Any, ...]]:
        """The rows of ``scope``, with ``values`` of the query's own."""
        shape = (scope.is_simulated, scope.version_id is not None)
        if shape not in self._prepared:
            self._prepared[shape] = self._prepare(*shape)
        versions = () if scope.version_id is None else (scope.version_id,)
        return self._prepared[shape].fetch((scope.flow.pk, scope.first, scope.last, *versions, *values))

    def _prepare(self, is_simulated: bool, has_version: bool) -> PreparedSelect:
        def build(values: Sequence[Any]) -> _Rows:
            flow, first, last, *others = values
            rows = self._model._default_manager.filter(flow=flow, day__range=(first, last), is_simulated=is_simulated)
            if has_version:
                rows = rows.filter(version=others.pop(0))
            return self._select(rows.order_by(), *others)

        return PreparedSelect(build, kinds=(int, date, date, *((int,) if has_version else ()), *self._kinds))


@dataclass(frozen=True, slots=True)
class DayRuns:
    """Runs of a version that ended on a day, or some of them."""

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
class ModelRuns:
    """Runs whose steps all ask one model, several (then it is empty), or none (then too)."""

    model: str
    has_several: bool
    runs: RunSums
    steps: StepSums
    """Without what passed and what attempts used."""


@dataclass(frozen=True, slots=True)
class AuditSums:
    """How often an audit of a step fired and what came of it; a finding of ToolFlow's own has a code and no audit.

    A step of another name is another one, even if it stands in the same place of a later version.
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
    return frozenset(is_simulated for (is_simulated,) in _KINDS.fetch((flow.pk, first, last)))


def read_runs(scope: Scope) -> list[DayRuns]:
    """Runs by day and version, those that ask different models apart."""
    return [DayRuns(day, version_id, RunSums(*columns)) for day, version_id, *columns in _RUNS.fetch(scope)]


def read_steps(scope: Scope) -> list[StepGroup]:
    """Attempts by version, step and model."""
    return [
        StepGroup(version_id, step, name, model, StepSums(*columns))
        for version_id, step, name, model, *columns in _STEPS.fetch(scope)
    ]


def read_steps_by_day(scope: Scope, model: str | None = None) -> list[tuple[date, StepSums]]:
    """Attempts of all steps by day: those by all models, or by one."""
    rows = _STEP_DAYS.fetch(scope) if model is None else _STEP_DAYS_OF_MODEL.fetch(scope, model)
    return [(day, StepSums(*columns)) for day, *columns in rows]


def read_model_runs(scope: Scope) -> list[ModelRuns]:
    """Runs by the model that they ask, the one with the most runs first."""
    found: dict[tuple[str, bool], list[Sequence[Any]]] = {}
    for model, has_several, *columns in _MODELS.fetch(scope):
        found.setdefault((model, has_several), []).append(columns)
    rows = []
    for key, parts in found.items():
        # A year has hundreds of rows: adding up columns takes half as long as adding up objects.
        *columns, durations = zip(*parts, strict=True)
        begun, retries, *sums = (sum(column) for column in columns)
        counts: dict[str, Any] = dict(zip(_MODEL_SUMS, sums, strict=True))
        runs = RunSums(**counts, durations=merge_counts(durations))
        rows.append(ModelRuns(*key, runs, StepSums(begun=begun, retries=retries, attempts=runs.attempts)))
    return sorted(rows, key=lambda row: (-row.runs.runs, row.model))


def read_audits(
    scope: Scope, groups: Sequence[StepGroup], *, by_cost: bool, limit: int = MOST_AUDITS
) -> list[AuditSums]:
    """Up to ``limit`` audits that fired, by step: what fired most, or what cost most in retries, comes first.

    ``groups`` are those of the same scope: they know what the steps of each version are called.
    """
    names = {(group.version_id, group.step): group.name for group in groups}
    found: dict[tuple[int, str, str, str], list[Sequence[Any]]] = {}
    for version_id, step, audit, code, *sums in _AUDITS.fetch(scope):
        found.setdefault((step, names.get((version_id, step), ""), audit, code), []).append(sums)
    audits = [
        AuditSums(*key, *(sum(column) for column in zip(*parts, strict=True)))
        for key, parts in sorted(found.items(), key=itemgetter(0))
    ]
    order = (
        attrgetter("retry_cost", "retry_tokens", "fired")
        if by_cost
        else attrgetter("fired", "retry_tokens", "retry_cost")
    )
    return sorted(audits, key=order, reverse=True)[:limit]


def read_issues(scope: Scope, *, limit: int = MOST_ISSUES) -> list[IssueSums]:
    """Up to ``limit`` kinds of issues, those that were raised most often first."""
    return [IssueSums(*group) for group in _ISSUES.fetch(scope)[:limit]]


def read_first_days(flow: Flow) -> dict[tuple[int, bool], date]:
    """The day from which on runs of each version were counted, by its key and whether they are simulated."""
    return {(version_id, is_simulated): day for version_id, is_simulated, day in _FIRST_DAYS.fetch((flow.pk,))}


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


def _sums(names: Iterable[str]) -> list[Sum]:
    """The sum of each column, called ``name__sum``: the columns' own names stay free."""
    return [Sum(name) for name in names]


def _select_kinds(values: Sequence[Any]) -> _Rows:
    flow, *span = values
    rows = DailyRuns.objects.filter(flow=flow, day__range=span).order_by()
    return rows.values_list("is_simulated").distinct()


def _select_step_days(rows: _Rows) -> _Rows:
    groups: _Rows = rows.values_list("day").annotate(*_sums(STEP_COLUMNS))
    return groups.order_by("day")


def _select_audits(rows: _Rows) -> _Rows:
    names = ("fired", "retried", "fixed", "retry_tokens", "retry_cost", "retry_unpriced")
    # By version: only versions know what their steps are called.
    groups: _Rows = rows.values_list("version", "step", "audit", "code").annotate(*_sums(names))
    return groups


def _select_issues(rows: _Rows) -> _Rows:
    groups: _Rows = rows.values_list("code", "audit", "severity").annotate(*_sums(("issues", "runs")))
    return groups.order_by("-issues__sum", "code", "audit", "severity")[:MOST_GROUPS]


_KINDS = PreparedSelect(_select_kinds, kinds=(int, date, date))
_FIRST_DAYS = PreparedSelect(
    lambda keys: (
        DailyRuns.objects.filter(flow=keys[0]).order_by().values_list("version", "is_simulated").annotate(Min("day"))
    ),
    most=1,
)
_RUNS = _ScopedSelect(DailyRuns, lambda rows: rows.order_by("day").values_list("day", "version", *RUN_COLUMNS))
_MODEL_SUMS = (
    *("runs", "succeeded", "failed", "errored", "cancelled", "first_time"),
    *("attempts", "total_tokens", "cost", "unpriced"),
)
_MODELS = _ScopedSelect(
    DailyRuns,
    lambda rows: rows.values_list("model", "has_several", "begun", "retries", *_MODEL_SUMS, "durations"),
)
_STEPS = _ScopedSelect(
    DailySteps,
    lambda rows: (
        rows.order_by("step", "model", "version")
        .values_list("version", "step", "name", "model")
        .annotate(*_sums(STEP_COLUMNS))
    ),
)
_STEP_DAYS = _ScopedSelect(DailySteps, _select_step_days)
_STEP_DAYS_OF_MODEL = _ScopedSelect(
    DailySteps, lambda rows, model: _select_step_days(rows.filter(model=model)), kinds=(str,)
)
_AUDITS = _ScopedSelect(DailyAudits, _select_audits)
_ISSUES = _ScopedSelect(DailyIssues, _select_issues)
