"""Tables of a flow's page as plain values: versions, audits, steps, models, issues, days and the retry cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.db.models import Sum
from django.urls import NoReverseMatch, reverse

from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from runs.formatting import (
    NOTHING,
    format_cost,
    format_count,
    format_duration,
    format_large,
    format_mean,
    format_plural,
    format_share,
)
from runs.models import DailyRuns, DailySteps
from runs.pages.addresses import link_runs
from runs.pages.badges import SEVERITIES, Badge
from runs.pages.flow_definition import find_role, list_audits, load_specs, summarise_version
from runs.pages.flow_trends import describe_slot
from runs.pages.small_charts import BarPart, plot_bar
from runs.statistics.figures import AuditSums, IssueSums, Scope, StepGroup
from runs.statistics.sums import TITLES, Period, RunSums, Spent, StepSums, is_by_cost, split_bill, use_of_runs

MAX_VERSIONS = 12
"""Rows of the table of versions, the newest first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its name, and cells as text."""

    name: str
    cells: tuple[str, ...]
    url: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of numbers."""

    id: str
    title: str
    note: str
    head: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One audit of one step; ``severity`` is None for what is no audit of the version shown."""

    name: str
    url: str
    step: str
    severity: Badge | None
    role: str
    role_help: str
    fired: str
    runs: str
    fixed: str
    """The share of retried attempts that the next attempt fixed."""
    bar: str
    """The same as a width; empty where nothing was retried."""
    retries: str
    retry_cost: str
    is_code: bool
    """ToolFlow itself raised it: ``name`` is a code."""


@dataclass(frozen=True, slots=True)
class IssueRow:
    code: str
    url: str
    severity: Badge
    audit: str
    issues: str
    runs: str


@dataclass(frozen=True, slots=True)
class VersionRow:
    number: int
    url: str
    is_live: bool
    change: str
    note: str
    created_at: datetime
    author: str
    figures: tuple[str, ...]
    """Runs, pass rate, first attempt, cost per accepted output."""
    compare_url: str
    """The difference to the version before it; empty where that page is not open to the user."""


@dataclass(frozen=True, slots=True)
class CostPart:
    kind: str
    words: str
    share: str
    tokens: str
    cost: str


@dataclass(frozen=True, slots=True)
class RetryCost:
    parts: tuple[CostPart, ...]
    bar: tuple[BarPart, ...]
    is_by_cost: bool


class Formatter:
    """Writes money: a dash for simulated runs, which cost nothing."""

    def __init__(self, *, is_simulated: bool) -> None:
        self._is_simulated = is_simulated

    def price(self, amount: Decimal | None, unpriced: int = 0) -> str:
        """US dollars, ``≥`` where attempts are missing in them."""
        return NOTHING if self._is_simulated else format_cost(amount, unpriced)

    def run_cells(self, runs: RunSums, steps: Spent) -> tuple[str, ...]:
        """Cells of ``RUN_HEADS``."""
        return (
            format_count(runs.runs),
            format_share(runs.pass_rate),
            format_share(runs.first_rate),
            format_mean(steps.attempts_per_step),
            format_duration(runs.median),
            format_duration(runs.p95),
            format_large(runs.tokens_per_run),
            format_large(runs.tokens_per_accepted),
            self.price(runs.cost_per_run, runs.unpriced),
            self.price(runs.cost_per_accepted, runs.unpriced),
        )

    def step_cells(self, steps: StepSums) -> tuple[str, ...]:
        """Cells of ``STEP_HEADS``."""
        return (
            format_count(steps.begun),
            format_share(steps.pass_rate),
            format_share(steps.first_rate),
            format_mean(steps.attempts_per_step),
            format_large(steps.total_tokens),
            format_large(steps.tokens_per_step),
            self.price(steps.known_cost, steps.unpriced),
            self.price(steps.cost_per_passed, steps.unpriced),
        )

    def attempt_cells(self, steps: StepSums) -> tuple[str, ...]:
        """Cells of ``ATTEMPT_HEADS``."""
        return (
            format_count(steps.attempts),
            format_share(steps.attempt_rate),
            format_share(steps.first_rate),
            format_mean(steps.attempts_per_passed),
            format_large(steps.total_tokens),
            format_large(steps.tokens_per_attempt),
            self.price(steps.known_cost, steps.unpriced),
            self.price(steps.cost_per_passed, steps.unpriced),
        )

    def list_days(self, period: Period, slots: Sequence[Any], notes: Mapping[int, str]) -> Table:
        """What was counted by day or week, the newest first; a slot without data has dashes."""
        is_of_runs = any(isinstance(sums, RunSums) for sums in slots)
        heads = DAY_HEADS if is_of_runs else ATTEMPT_HEADS
        rows = []
        for place, (slot, sums) in enumerate(zip(period.slots, slots, strict=True)):
            cells = (NOTHING,) * len(heads)
            if sums is not None:
                cells = self._day_cells(sums) if is_of_runs else self.attempt_cells(sums)
            rows.append(Row(describe_slot(slot), cells, note=notes.get(place, "")))
        return Table("days", period.unit.capitalize() + "s", "", period.unit.capitalize(), heads, tuple(rows[::-1]))

    def _day_cells(self, sums: RunSums) -> tuple[str, ...]:
        return (
            *map(format_count, (sums.runs, sums.succeeded, sums.failed, sums.errored, sums.cancelled)),
            format_share(sums.pass_rate),
            format_share(sums.first_rate),
            format_duration(sums.median),
            format_duration(sums.p95),
            format_large(sums.total_tokens),
            self.price(sums.known_cost, sums.unpriced),
        )

    def split_cost(self, runs: RunSums) -> RetryCost | None:
        """First attempts and retries, by what they cost; None where nothing was used."""
        if not runs.total_tokens:
            return None
        used = use_of_runs(runs)
        found = split_bill(used)
        parts = tuple(
            CostPart(
                part.kind,
                TITLES[part.kind],
                format_share(part.share),
                format_large(part.tokens),
                self.price(part.cost, part.unpriced),
            )
            for part in found
        )
        return RetryCost(parts, plot_bar({part.kind: part.share or 0.0 for part in found}), is_by_cost(used.values()))


RUN_HEADS = (
    "Runs", "Pass rate", "First attempt", "Attempts per step", "p50", "p95", "Tokens per run",
    "Tokens per accepted output", "Cost per run", "Cost per accepted output",
)  # fmt: skip
STEP_HEADS = (
    "With an output", "Passed in the end", "First attempt", "Attempts per step", "Tokens", "Tokens per step", "Cost",
    "Cost per passed step",
)  # fmt: skip
ATTEMPT_HEADS = (
    "Attempts", "Attempts that passed", "First attempt", "Attempts per passed attempt", "Tokens", "Tokens per attempt",
    "Cost", "Cost per passed attempt",
)  # fmt: skip
DAY_HEADS = (
    "Runs", "Succeeded", "Failed", "Errored", "Cancelled", "Pass rate", "First attempt", "p50", "p95", "Tokens", "Cost",
)  # fmt: skip


def link_issues(**filters: Any) -> str:
    """The page of issues with these filters; where there is none, the runs that have such issues."""
    values = {name: value for name, value in filters.items() if value}
    try:
        address = reverse("runs:issues")
    except NoReverseMatch:
        return link_runs(**values)
    return f"{address}?{urlencode(values)}"


def fetch_version_sums(scope: Scope, kind: type[RunSums] | type[StepSums]) -> dict[int, Any]:
    """What was counted in a scope of each version, by its key, without durations. One query."""
    own = ("runs", "succeeded", "cancelled", "first_time") if kind is RunSums else ("passed", "first_passed")
    columns = ("total_tokens", "cost", "unpriced", "attempts", "retries", "begun", *own)
    rows: Any = scope.narrow(DailyRuns.objects.all()) if kind is RunSums else scope.narrow(DailySteps.objects.all())
    groups = rows.values_list("version").annotate(*map(Sum, columns))
    return {version: kind(**dict(zip(columns, sums, strict=True))) for version, *sums in groups}


def list_versions(
    flow: Flow,
    versions: Sequence[FlowVersion],
    sums: Mapping[int, RunSums | StepSums],
    *,
    price: Callable[..., str],
    compare_url: str,
) -> tuple[VersionRow, ...]:
    """Rows of the newest ``versions``, which come newest first, with what each changed. At most one query."""
    shown = versions[: MAX_VERSIONS + 1]
    specs = load_specs(shown)
    rows = []
    for place, version in enumerate(shown[:MAX_VERSIONS]):
        before = shown[place + 1] if place + 1 < len(shown) else None
        found = sums.get(version.pk)
        rows.append(
            VersionRow(
                number=version.number,
                url=reverse("runs:version", args=[flow.name, version.number]),
                is_live=version.pk == flow.live_version_id,
                change=summarise_version(
                    version, specs[version.pk], (before.digest, specs[before.pk]) if before else None
                ),
                note=version.note,
                created_at=version.created_at,
                author=version.created_by.get_username() if version.created_by else "",
                figures=format_version(found, price),
                compare_url=f"{compare_url}?from={before.number}&to={version.number}" if compare_url and before else "",
            )
        )
    return tuple(rows)


def format_version(found: RunSums | StepSums | None, price: Callable[..., str]) -> tuple[str, ...]:
    """Runs, pass rate, first attempt, cost per accepted output; of one model the same of its attempts."""
    if isinstance(found, RunSums):
        rates, cost = (found.pass_rate, found.first_rate), found.cost_per_accepted
        return (format_count(found.runs), *map(format_share, rates), price(cost, found.unpriced))
    if found is not None:
        rates, cost = (found.attempt_rate, found.first_rate), found.cost_per_passed
        return (format_count(found.attempts), *map(format_share, rates), price(cost, found.unpriced))
    return ("0", NOTHING, NOTHING, NOTHING)


def list_audit_rows(
    spec: FlowSpec | None,
    sums: Sequence[AuditSums],
    issues: Sequence[IssueSums],
    *,
    flow: str,
    filters: Mapping[str, Any],
    price: Callable[..., str],
) -> tuple[AuditRow, ...]:
    """The audits that fired, in the order of ``sums``, then those of ``spec`` that never did.

    What fired in a step of the same name is one audit, at whatever position the step was.
    """
    known = {
        (step.name, audit.name): (number, step, audit) for number, step, audit in (list_audits(spec) if spec else ())
    }
    merged: dict[tuple[str, str, str], list[AuditSums]] = {}
    for one in sums:
        name = one.step_name
        if not name and spec and one.step <= len(spec.steps):
            name = spec.steps[one.step - 1].name
        merged.setdefault((name, one.audit, one.code), []).append(one)
    for name, audit in known:
        merged.setdefault((name, audit, ""), [])
    runs = _count_runs(issues, merged)
    rows = []
    for (step_name, audit, code), parts in merged.items():
        number, step, definition = known.get((step_name, audit), (parts[0].step if parts else 0, None, None))
        role, role_help = (
            find_role(definition, has_rule=bool(step.pass_expression)) if definition and step else ("", "")
        )
        fired, retried, fixed = (sum(getattr(part, name) for part in parts) for name in ("fired", "retried", "fixed"))
        cost, unpriced = sum((part.retry_cost for part in parts), Decimal(0)), sum(p.retry_unpriced for p in parts)
        rows.append(
            AuditRow(
                name=audit or code,
                url=link_issues(flow=flow, audit=audit, code=code, **filters),
                step=f"{number} {step_name}".strip(),
                severity=SEVERITIES[definition.severity.value] if definition else None,
                role=role,
                role_help=role_help,
                fired=format_count(fired),
                runs=runs.get((audit, code), "") if fired else "never fired",
                fixed=format_share(fixed / retried) if retried else NOTHING,
                bar=f"{100 * fixed / retried:.1f}%" if retried else "",
                retries=format_count(retried),
                retry_cost=price(cost if cost or not unpriced else None, unpriced) if retried else NOTHING,
                is_code=not audit,
            )
        )
    return tuple(rows)


def _count_runs(issues: Sequence[IssueSums], merged: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], str]:
    """In how many runs each audit fired, as far as daily counts say: they have codes and severities, not steps."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in issues:
        found.setdefault((one.audit, "" if one.audit else one.code), []).append(one.runs)
    names = [(audit, code) for _, audit, code in merged]
    return {
        key: format_plural(counts[0], "run") if len(counts) == 1 else f"≥ {format_plural(max(counts), 'run')}"
        for key, counts in found.items()
        if names.count(key) == 1
    }


def list_issue_rows(issues: Sequence[IssueSums], *, flow: str, filters: Mapping[str, Any]) -> tuple[IssueRow, ...]:
    """The issues that were raised most often."""
    return tuple(
        IssueRow(
            code=one.code,
            url=link_runs(flow=flow, code=one.code, **filters),
            severity=SEVERITIES[one.severity],
            audit=one.audit,
            issues=format_count(one.issues),
            runs=format_count(one.runs),
        )
        for one in issues
    )


def sum_step_groups(groups: Sequence[StepGroup], key: Callable[[StepGroup], Any]) -> list[tuple[Any, StepSums]]:
    """Attempts of the groups with the same ``key``, in its order."""
    found: dict[Any, list[StepSums]] = {}
    for group in groups:
        found.setdefault(key(group), []).append(group.sums)
    return [(name, StepSums.join(found[name])) for name in sorted(found)]
