"""What was counted of one flow in a period: its figures, charts and tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from flows.models import Flow, FlowVersion
from runs.pages.addresses import link_runs
from runs.pages.flow_charts import Chart, ChartMaker
from runs.pages.flow_query import COST, TOKENS, FlowQuery
from runs.pages.small_charts import BarPart, plot_bar
from runs.pages.version_marks import VersionMarks, mark_versions
from runs.statistics.figures import (
    MAX_AUDITS,
    AuditSums,
    DayRuns,
    IssueSums,
    Scope,
    StepGroup,
    fetch_audits,
    fetch_issues,
    fetch_steps_by_day,
    sum_groups,
    sum_models,
    sum_versions,
)
from runs.statistics.sums import (
    TITLES,
    BillPart,
    Period,
    RunSums,
    Spent,
    StepSums,
    is_by_cost,
    split_bill,
    sum_by_slot,
    use_of_runs,
)

MOST_VERSIONS = 30
"""Rows of the table of versions."""
SEVERAL_MODELS, NO_MODEL = "Several models", "None: local steps only"
"""Rows of runs that do not ask one model."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A link that changes what the page shows."""

    words: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class VersionRow:
    """Runs and steps of one version."""

    number: int
    name: str
    is_live: bool
    runs: RunSums
    steps: StepSums
    url: str


@dataclass(frozen=True, slots=True)
class ModelRow:
    """Runs by the model that they ask."""

    name: str
    """What the row is called."""
    is_name: bool
    """That is the name of a model, and not words of ours."""
    runs: RunSums
    steps: Spent
    url: str
    """The same of this model alone; empty where no attempt was answered under this name."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """Steps and attempts of one step, or by one model; ``name`` is empty for what no model answered."""

    name: str
    steps: StepSums
    url: str = ""


@dataclass(frozen=True, slots=True)
class BillRow(BillPart):
    """One part of the retry bill, with its name."""

    words: str


@dataclass(frozen=True, slots=True)
class AuditRow:
    sums: AuditSums
    url: str


@dataclass(frozen=True, slots=True)
class IssueRow:
    sums: IssueSums
    url: str


@dataclass(frozen=True, slots=True)
class FlowSummary:
    """What was counted in the period; with a model in the query, charts and figures are of its steps."""

    runs: RunSums
    steps: StepSums
    bill: tuple[BillRow, ...]
    bill_bar: tuple[BarPart, ...]
    is_bill_by_cost: bool
    """Whether shares of the bill are shares of the money; else of the tokens."""
    charts: tuple[Chart, ...]
    marks_sentence: str
    """What the marks of versions leave out."""
    versions: tuple[VersionRow, ...]
    version_count: int
    runs_by_model: tuple[ModelRow, ...]
    runs_of_model: ModelRow | None
    """Those that ask the model in the query, if any do."""
    models: tuple[StepRow, ...]
    by_step: tuple[StepRow, ...]
    audits: tuple[AuditRow, ...]
    has_more_audits: bool
    """Further ones fired than ``audits`` has."""
    issues: tuple[IssueRow, ...]
    measures: tuple[Choice, ...]
    """Cost or tokens; empty where there is no choice."""


class SummaryReader:
    """Reads the statistics of one page."""

    def __init__(
        self,
        flow: Flow,
        query: FlowQuery,
        period: Period,
        scope: Scope,
        versions: Sequence[FlowVersion],
        first_days: Mapping[tuple[int, bool], date],
    ) -> None:
        self._flow = flow
        self._query = query
        self._period = period
        self._scope = scope
        self._numbers = {version.pk: version.number for version in versions}
        self._first_days = {
            key: first_days[key, scope.is_simulated] for key in self._numbers if (key, scope.is_simulated) in first_days
        }

    def read(self, days: Sequence[DayRuns], groups: Sequence[StepGroup], problems: list[str]) -> FlowSummary:
        """Everything that is shown of the runs of ``days`` and the steps of ``groups``."""
        model = self._query.model
        shown = [group for group in groups if group.model == model] if model else list(groups)
        by_version = sum_versions(days)
        runs = RunSums.join(by_version.values())
        steps = StepSums.join(group.sums for group in shown)
        spent = steps if model else runs
        has_cost = not self._scope.is_simulated and bool(spent.cost)
        measure = self._query.measure or (COST if has_cost else TOKENS)
        if measure == COST and not has_cost:
            problems.append("No cost is known of these runs; their tokens are shown.")
            measure = TOKENS
        used = use_of_runs(runs)
        bill = split_bill(used) if not model and runs.total_tokens else ()
        versions = self._list_versions(by_version, shown)
        marks = mark_versions(self._period, days, self._numbers, self._first_days)
        audits = fetch_audits(self._scope, groups, by_cost=self._query.sort == COST, limit=MAX_AUDITS + 1)
        runs_by_model = self._list_model_runs(sum_models(days), {group.model for group in groups})
        return FlowSummary(
            runs=runs,
            steps=steps,
            bill=tuple(map(_name_part, bill)),
            bill_bar=plot_bar({part.kind: part.share or 0.0 for part in bill}),
            is_bill_by_cost=is_by_cost(used.values()),
            charts=self._make_charts(days, measure, marks),
            marks_sentence=marks.sentence,
            versions=versions[:MOST_VERSIONS],
            version_count=len(versions),
            runs_by_model=runs_by_model,
            runs_of_model=next((row for row in runs_by_model if row.is_name and row.name == model), None),
            models=self._list_models(groups),
            by_step=tuple(
                StepRow(f"{step}. {name}", sums)
                for (step, name), sums in sorted(sum_groups(shown, lambda group: (group.step, group.name)).items())
            ),
            audits=tuple(
                AuditRow(sums, self._link_runs(audit=sums.audit, code=sums.code)) for sums in audits[:MAX_AUDITS]
            ),
            has_more_audits=len(audits) > MAX_AUDITS,
            issues=tuple(IssueRow(sums, self._link_runs(code=sums.code)) for sums in fetch_issues(self._scope)),
            measures=tuple(
                Choice(name.capitalize(), self._query.build_url("use", measure=name), name == measure)
                for name in (COST, TOKENS)
            )
            if has_cost
            else (),
        )

    def _make_charts(self, days: Sequence[DayRuns], measure: str, marks: VersionMarks) -> tuple[Chart, ...]:
        maker = ChartMaker(self._period, marks.marks, marks.notes)
        if self._query.model:
            steps = sum_by_slot(self._period, fetch_steps_by_day(self._scope, self._query.model))
            return (
                maker.chart_attempts(steps),
                maker.chart_attempt_rates(steps),
                maker.chart_use(steps, measure=measure),
            )
        runs = sum_by_slot(self._period, ((day.day, day.sums) for day in days))
        return (
            maker.chart_runs(runs),
            maker.chart_run_rates(runs),
            maker.chart_durations(runs),
            maker.chart_use(runs, measure=measure),
        )

    def _list_versions(self, runs: Mapping[int, RunSums], groups: Sequence[StepGroup]) -> tuple[VersionRow, ...]:
        steps = sum_groups(groups, lambda group: group.version_id)
        rows = [
            VersionRow(
                number=self._numbers[key],
                name=f"v{self._numbers[key]}",
                is_live=key == self._flow.live_version_id,
                runs=sums,
                steps=steps.get(key, StepSums()),
                url=self._query.build_url(version=self._numbers[key]),
            )
            for key, sums in runs.items()
            if key in steps or not self._query.model
        ]
        return tuple(sorted(rows, key=lambda row: -row.number))

    def _list_model_runs(
        self, found: Mapping[tuple[str, bool], RunSums], answered: Collection[str]
    ) -> tuple[ModelRow, ...]:
        """The rows of models, those of several and of none after them."""
        rows = [
            ModelRow(
                name=model or (SEVERAL_MODELS if has_several else NO_MODEL),
                is_name=bool(model),
                runs=sums,
                steps=sums,
                url=self._query.build_url(model=model) if model and model in answered else "",
            )
            for (model, has_several), sums in found.items()
        ]
        return tuple(sorted(rows, key=lambda row: not row.is_name))

    def _list_models(self, groups: Sequence[StepGroup]) -> tuple[StepRow, ...]:
        rows = [
            StepRow(name, sums, self._query.build_url(model=name) if name else "")
            for name, sums in sum_groups(groups, lambda group: group.model).items()
        ]
        return tuple(sorted(rows, key=lambda row: (not row.name, -row.steps.attempts, row.name)))

    def _link_runs(self, *, audit: str = "", code: str = "") -> str:
        filters = {"since": self._period.first, "version": self._query.version, "audit": audit, "code": code}
        return link_runs(flow=self._flow.name, **filters)


def _name_part(part: BillPart) -> BillRow:
    return BillRow(
        tokens=part.tokens,
        cost=part.cost,
        unpriced=part.unpriced,
        kind=part.kind,
        share=part.share,
        words=TITLES[part.kind],
    )
