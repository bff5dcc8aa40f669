"""The page of a flow: what it does, its figures, its last runs, audits and versions, from what an address asks for.

Figures come from daily rows, the grid from the last runs: the page costs the same whatever the flow's history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.urls import reverse

from flows.models import Flow, FlowVersion
from runs.formatting import NOTHING, format_count, format_large, format_plural, format_share
from runs.history.json_lines import show_invisible
from runs.models import Run
from runs.pages.addresses import find_address, link_runs
from runs.pages.flow_definition import Definition, build_definition, load_specs
from runs.pages.flow_grid import Grid, load_grid
from runs.pages.flow_tables import (
    ATTEMPT_HEADS,
    RUN_HEADS,
    STEP_HEADS,
    AuditRow,
    Formatter,
    IssueRow,
    RetryCost,
    Row,
    Table,
    VersionRow,
    fetch_version_sums,
    list_audit_rows,
    list_issue_rows,
    list_versions,
    sum_step_groups,
)
from runs.pages.flow_trends import (
    DEFAULT_PERIOD,
    PERIODS,
    NamedPeriod,
    Trend,
    VersionMarks,
    build_period,
    mark_versions,
    plot_trend,
)
from runs.statistics.figures import (
    MAX_AUDITS,
    MAX_ISSUES,
    DayRuns,
    Scope,
    StepGroup,
    fetch_audits,
    fetch_first_days,
    fetch_issues,
    fetch_kinds,
    fetch_runs,
    fetch_steps,
    fetch_steps_by_day,
    sum_models,
)
from runs.statistics.sums import RunSums, StepSums, sum_by_slot

REAL, SIMULATED = "real", "simulated"
COST, TOKENS = "cost", "tokens"
FIRED = "fired"
NAMES = ("period", "version", "model", "runs", "measure", "sort")
"""What an address may ask for."""
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class FlowQuery:
    """What is asked for; an empty value leaves it to the page."""

    flow: str
    period: str = DEFAULT_PERIOD
    version: int | None = None
    model: str = ""
    runs: str = ""
    """``real`` or ``simulated``."""
    measure: str = ""
    """``cost`` or ``tokens``: what the third figure counts."""
    sort: str = FIRED
    """``fired`` or ``cost``: the order of audits."""

    def build_url(self, anchor: str = "", **changes: str | int | None) -> str:
        """The address of the page with ``changes``."""
        changed = replace(self, **changes)  # type: ignore[arg-type]  # each has the type of its field
        values = {
            "period": "" if changed.period == DEFAULT_PERIOD else changed.period,
            "version": changed.version or "",
            "model": changed.model,
            "runs": changed.runs,
            "measure": changed.measure,
            "sort": "" if changed.sort == FIRED else changed.sort,
        }
        query = urlencode({name: value for name, value in values.items() if value})
        address = find_address("runs:flow", self.flow)
        return f"{address}{f'?{query}' if query else ''}{f'#{anchor}' if anchor else ''}"


@dataclass(frozen=True, slots=True)
class Choice:
    """A link that changes what the page shows."""

    words: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the three figures: its value in the period, its trend, and what the latest version changed."""

    id: str
    title: str
    value: str
    note: str
    change: str
    """``+7 points``; empty where there is nothing to compare with."""
    change_note: str
    tone: str
    """``passed`` for a better value, ``failed`` for a worse one, else empty."""
    trend: Trend | None


@dataclass(frozen=True, slots=True)
class FlowPage:
    """The page of one flow; what needs counted runs is empty where nothing was counted in the period."""

    flow: Flow
    query: FlowQuery
    period: NamedPeriod
    problems: tuple[str, ...]
    is_simulated: bool
    kinds: tuple[Choice, ...]
    """Real or simulated runs, where there are both."""
    periods: tuple[Choice, ...]
    measures: tuple[Choice, ...]
    version_numbers: tuple[int, ...]
    models: tuple[str, ...]
    shown: FlowVersion | None
    """The version whose definition is shown."""
    definition: Definition | None
    facts: tuple[str, ...]
    has_any_run: bool
    is_counted: bool
    figures: tuple[Figure, ...]
    marks: VersionMarks
    grid: Grid | None
    audits: tuple[AuditRow, ...]
    has_more_audits: bool
    versions: tuple[VersionRow, ...]
    retry_cost: RetryCost | None
    tables: tuple[Table, ...]
    issues: tuple[IssueRow, ...]
    runs_url: str
    failed_url: str
    failed: str
    by_fired_url: str
    by_cost_url: str


def load_flow_page(
    flow: Flow, query: Mapping[str, str], now: datetime, user: AbstractBaseUser | AnonymousUser | None = None
) -> FlowPage:
    """Read what a query string asks for of a flow; values that are not valid are named in ``problems``.

    ``flow`` comes with its live version. ``user`` decides which links there are.
    """
    return _Loader(flow, query, now, user).load()


class _Loader:
    def __init__(self, flow: Flow, query: Mapping[str, str], now: datetime, user: Any) -> None:
        self._flow, self._now = flow, now
        versions = FlowVersion.objects.filter(flow=flow).select_related("created_by").order_by("-number")
        self._versions = list(versions.only("number", "digest", "note", "created_at", "flow", "created_by__username"))
        self._numbers = {version.pk: version.number for version in self._versions}
        keys = {number: key for key, number in self._numbers.items()}
        self._query, self._problems = parse_flow_query(query, flow.name, keys)
        self._period = build_period(self._query.period, now.astimezone(UTC).date())
        period = self._period
        kinds = fetch_kinds(flow, period.first, period.last)
        self._kinds = kinds
        self._is_simulated = self._query.runs == SIMULATED or (self._query.runs != REAL and kinds == {True})
        self._scope = Scope(period.first, period.last, self._is_simulated, flow, keys.get(self._query.version or 0))
        self._format = Formatter(is_simulated=self._is_simulated)
        key = self._scope.version_id or flow.live_version_id
        self._shown = next((one for one in self._versions if one.pk == key), None)
        can_compare = user is not None and user.is_staff and user.has_perm("flows.view_flow")
        self._compare_url = reverse("admin:flows_flow_compare", args=[flow.pk]) if can_compare else ""

    def load(self) -> FlowPage:
        flow, period, scope = self._flow, self._period, self._scope
        groups = fetch_steps(scope)
        models = tuple(sorted({group.model for group in groups if group.model}))
        if self._query.model and self._query.model not in models:
            self._problems.append(
                f"No attempt by a model “{_quote(self._query.model)}” in this period. All models are shown."
            )
            self._query = replace(self._query, model="")
        query = self._query
        spec = load_specs([self._shown]).get(self._shown.pk) if self._shown else None
        definition = build_definition(spec) if spec else None
        first_days = fetch_first_days(flow)
        days = fetch_runs(scope)
        runs = RunSums.join(day.sums for day in days) if days else RunSums()
        own = [group for group in groups if group.model == query.model] if query.model else groups
        steps = StepSums.join(group.sums for group in own) if own else StepSums()
        slots: Sequence[RunSums | StepSums | None] = (
            sum_by_slot(period, fetch_steps_by_day(scope, query.model))
            if query.model
            else sum_by_slot(period, ((day.day, day.sums) for day in days))
        )
        year = replace(scope, first=build_period("12m", period.last).first, version_id=None, model=query.model or None)
        by_version = fetch_version_sums(year, StepSums if query.model else RunSums)
        has_cost = not self._is_simulated and bool((steps if query.model else runs).cost)
        measure = query.measure or (COST if has_cost else TOKENS)
        if measure == COST and not has_cost and days:
            self._problems.append("No cost is known of these runs. Tokens are shown.")
        measure = measure if has_cost else TOKENS
        marks = mark_versions(
            period,
            days,
            self._numbers,
            {key: day for (key, is_simulated), day in first_days.items() if is_simulated == self._is_simulated},
        )
        audits = fetch_audits(scope, groups, by_cost=query.sort == COST, limit=MAX_AUDITS + 1) if days else []
        issues = fetch_issues(scope, limit=5 * MAX_AUDITS) if days else []
        filters = {"version": query.version, "since": period.first}
        return FlowPage(
            flow=flow,
            query=query,
            period=period,
            problems=tuple(self._problems),
            is_simulated=self._is_simulated,
            kinds=self._list_kinds(),
            periods=tuple(
                Choice(words, query.build_url(period=name), name == query.period) for name, words in PERIODS.items()
            ),
            measures=tuple(
                Choice(name.capitalize(), query.build_url(measure=name), name == measure) for name in (COST, TOKENS)
            )
            if has_cost
            else (),
            version_numbers=tuple(version.number for version in self._versions),
            models=models,
            shown=self._shown,
            definition=definition,
            facts=self._list_facts(definition, runs),
            has_any_run=bool(first_days) or Run.objects.filter(flow=flow).exists(),
            is_counted=bool(days),
            figures=self._build_figures(steps if query.model else runs, slots, by_version, measure) if days else (),
            marks=marks,
            grid=load_grid(flow, self._shown, only=self._shown if query.version else None, now=self._now),
            audits=list_audit_rows(
                spec,
                audits[:MAX_AUDITS],
                issues,
                flow=flow.name,
                filters={"version": query.version},
                price=self._format.price,
            ),
            has_more_audits=len(audits) > MAX_AUDITS,
            versions=list_versions(
                flow, self._versions, by_version, price=self._format.price, compare_url=self._compare_url
            ),
            retry_cost=self._format.split_cost(runs) if not query.model else None,
            tables=tuple(self._list_tables(days, groups, own, slots, marks)) if days else (),
            issues=list_issue_rows(issues[:MAX_ISSUES], flow=flow.name, filters=filters),
            runs_url=link_runs(flow=flow.name),
            failed_url=link_runs(flow=flow.name, status="failed,errored", model=query.model, **filters),
            failed=f"{format_count(runs.failed)} failed, {format_count(runs.errored)} errored"
            if (runs.failed or runs.errored) and not query.model
            else "",
            by_fired_url=query.build_url("audits", sort=FIRED),
            by_cost_url=query.build_url("audits", sort=COST),
        )

    def _list_kinds(self) -> tuple[Choice, ...]:
        if len(self._kinds | {self._is_simulated}) < 2:
            return ()
        return tuple(
            Choice(words, self._query.build_url(runs=name), self._is_simulated == (name == SIMULATED))
            for name, words in ((REAL, "Real"), (SIMULATED, "Simulated"))
        )

    def _list_facts(self, definition: Definition | None, runs: RunSums) -> tuple[str, ...]:
        facts = []
        if definition:
            facts = [format_plural(len(definition.steps), "step"), format_plural(definition.audit_count, "audit")]
        running = Run.objects.running().filter(flow=self._flow).count()
        return (
            *facts,
            f"{format_plural(runs.runs, 'run')} in {self._period.words}",
            *([f"{format_count(running)} running"] if running else []),
        )

    def _build_figures(
        self,
        whole: RunSums | StepSums,
        slots: Sequence[RunSums | StepSums | None],
        by_version: Mapping[int, RunSums | StepSums],
        measure: str,
    ) -> tuple[Figure, ...]:
        is_of_runs = isinstance(whole, RunSums)
        output = "accepted output" if is_of_runs else "passed attempt"
        amount = "cost_per_" if measure == COST else "tokens_per_"
        amount += "accepted" if is_of_runs else "passed"
        rate = "pass_rate" if is_of_runs else "attempt_rate"
        title = "Pass rate" if is_of_runs else "Attempts that passed"
        counted = format_plural(*((whole.runs, "run") if isinstance(whole, RunSums) else (whole.attempts, "attempt")))
        price = self._format.price if measure == COST else format_large
        figures = []
        for id, name, words, note in (
            ("pass", rate, title, counted),
            (
                "first",
                "first_rate",
                "First-attempt pass rate",
                "without any retry" if is_of_runs else "of first attempts",
            ),
            ("use", amount, f"{measure.capitalize()} per {output}", self._describe_whole(whole, measure)),
        ):
            write: Callable[..., str] = price if id == "use" else format_share
            values = [None if sums is None else getattr(sums, name) for sums in slots]
            known = [float(value) for value in values if value is not None]
            change, change_note, tone = self._compare(by_version, name, write, is_rate=id != "use")
            figures.append(
                Figure(
                    id=id,
                    title=words,
                    value=write(getattr(whole, name), whole.unpriced)
                    if write == self._format.price
                    else write(getattr(whole, name)),
                    note=note,
                    change=change,
                    change_note=change_note,
                    tone=tone,
                    trend=plot_trend(
                        [None if value is None else float(value) for value in values],
                        scale=1.0 if id != "use" else max(known, default=0.0) * 1.1,
                        format_value=lambda value, write=write, id=id: write(  # type: ignore[misc]
                            Decimal(repr(value))
                            if write == self._format.price
                            else value
                            if id != "use"
                            else round(value)
                        ),
                    ),
                )
            )
        return tuple(figures)

    def _describe_whole(self, whole: RunSums | StepSums, measure: str) -> str:
        if measure == TOKENS:
            return f"{format_large(whole.total_tokens)} tokens in all"
        return f"{self._format.price(whole.known_cost, whole.unpriced)} in all"

    def _compare(
        self, by_version: Mapping[int, RunSums | StepSums], name: str, write: Callable[..., str], *, is_rate: bool
    ) -> tuple[str, str, str]:
        """The change from the version before the one shown to it, in words, and whether it is for the better."""
        ran = [version for version in self._versions if version.pk in by_version]
        shown = self._shown
        new = next((one for one in ran if shown is None or one.number <= shown.number), None)
        old = next((one for one in ran if new is not None and one.number < new.number), None)
        if new is None or old is None:
            return "", "", ""
        values = [getattr(by_version[one.pk], name) for one in (old, new)]
        if None in values:
            return "", "", ""
        note = f"v{new.number} since v{old.number}"
        difference = values[1] - values[0]
        points = round(100 * float(difference)) if is_rate else 0
        if (is_rate and not points) or not difference:
            return "No change", note, ""
        sign = "+" if difference > 0 else "\N{MINUS SIGN}"
        size = f"{abs(points)} {'point' if abs(points) == 1 else 'points'}" if is_rate else write(abs(difference))
        return f"{sign}{size}", note, "passed" if (difference > 0) == is_rate else "failed"

    def _list_tables(
        self,
        days: Sequence[DayRuns],
        groups: Sequence[StepGroup],
        own: Sequence[StepGroup],
        slots: Sequence[RunSums | StepSums | None],
        marks: VersionMarks,
    ) -> list[Table]:
        """The tables below: days, steps, and models by what they were asked and by what they answered."""
        write, query = self._format, self._query
        by_step = sum_step_groups(own, lambda group: (group.step, group.name))
        step_cells = write.attempt_cells if query.model else write.step_cells
        by_model = sum_step_groups(groups, lambda group: group.model)
        answered = {name for name, _ in by_model}
        asked = [
            Row(
                model or ("Several models" if has_several else "None: local steps only"),
                write.run_cells(sums, sums),
                query.build_url(model=model) if model and model in answered else "",
            )
            for (model, has_several), sums in sum_models(days).items()
        ]
        attempts = [
            Row(
                name or "None: local or no answer",
                write.attempt_cells(sums),
                query.build_url(model=name) if name else "",
            )
            for name, sums in sorted(by_model, key=lambda item: (not item[0], -item[1].attempts, item[0]))
        ]
        of_all = "Counted for all models." if query.model else ""
        return [
            write.list_days(self._period, slots, marks.notes),
            Table(
                "steps", "Steps", "", "Step", ATTEMPT_HEADS if query.model else STEP_HEADS,
                tuple(Row(f"{step}. {name}", step_cells(sums)) for (step, name), sums in by_step),
            ),
            Table("models", "Runs by the model that their steps ask", of_all, "Model asked", RUN_HEADS, tuple(asked)),
            Table("answers", "Attempts by the model that answered", of_all, "Model", ATTEMPT_HEADS, tuple(attempts)),
        ]  # fmt: skip


def parse_flow_query(query: Mapping[str, str], flow: str, versions: Collection[int]) -> tuple[FlowQuery, list[str]]:
    """What a query string asks for, with a sentence for each value or name that is not valid and is left out.

    Whether there is such a model is not checked here.
    """
    problems = []
    if unknown := [f"“{_quote(name)}”" for name in query if name not in NAMES]:
        shown = ", ".join(unknown[:_MAX_NAMED])
        problems.append(f"Unknown parameter {shown}. Parameters are {', '.join(NAMES)}.")
    period = query.get("period") or DEFAULT_PERIOD
    if period not in PERIODS:
        problems.append(f"“{_quote(period)}” is not a valid period. It can be {', '.join(PERIODS)}.")
        period = DEFAULT_PERIOD
    text = query.get("version", "").removeprefix("v")
    version = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if text and version not in versions:
        problems.append(f"This flow has no version “{_quote(text)}”. All versions are shown.")
        version = None
    chosen = {}
    for name, choices in (("runs", (REAL, SIMULATED)), ("measure", (COST, TOKENS)), ("sort", (FIRED, COST))):
        value = query.get(name, "")
        if value and value not in choices:
            problems.append(f"“{_quote(value)}” is not a valid value of “{name}”. It can be {' or '.join(choices)}.")
            value = ""
        chosen[name] = value
    sort = chosen["sort"] or FIRED
    found = FlowQuery(flow, period, version, query.get("model", ""), chosen["runs"], chosen["measure"], sort)
    return found, problems


def _quote(text: str) -> str:
    return show_invisible(text[:40]) + ("…" if len(text) > 40 else "")


def describe_version(sums: RunSums | None, price: Callable[..., str]) -> tuple[tuple[str, str], ...]:
    """Titles and values of the figures of one version."""
    if sums is None:
        return (("Runs", "0"), ("Pass rate", NOTHING))
    return (
        ("Runs", format_count(sums.runs)),
        ("Pass rate", format_share(sums.pass_rate)),
        ("First-attempt pass rate", format_share(sums.first_rate)),
        ("Cost per accepted output", price(sums.cost_per_accepted, sums.unpriced)),
        ("Tokens per accepted output", format_large(sums.tokens_per_accepted)),
        ("Cost of all", price(sums.known_cost, sums.unpriced)),
    )
