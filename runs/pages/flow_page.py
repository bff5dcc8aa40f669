"""The page of a flow: what it does, its figures, its last runs, audits and versions.

Figures come from daily rows, the grid from the last runs: the page costs the same whatever the flow's history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from flows.engine.backtest_result import BacktestReason
from flows.models import Flow, FlowVersion
from runs import issue_groups
from runs.backtests.predictions import load_without_each
from runs.backtests.totals import Totals, WithoutAudit, format_retries
from runs.filter_fields import shorten
from runs.formatting import NOTHING, format_cost, format_count, format_plural, format_share
from runs.models import Backtest, DailyRuns, Run, Worker
from runs.pages.access import require_viewer
from runs.pages.addresses import build_issues_url, link_runs
from runs.pages.flow_figures import (
    OF_VERSION,
    OF_VERSION_BY_MODEL,
    Counted,
    build_figures,
    find_versions,
    list_tables,
    load_counted,
    mark_versions,
)
from runs.pages.flow_grid import load_grid
from runs.pages.flow_version import (
    YEAR,
    build_definition,
    fetch_flow,
    fetch_version_sums,
    list_versions,
    load_specs,
)
from runs.statistics.figures import MAX_AUDITS, AuditSums, IssueSums, Scope, fetch_audits, fetch_issues, fetch_kinds
from runs.statistics.sums import DAY, WEEK, Period

REAL, SIMULATED = "real", "simulated"
COST, TOKENS = "cost", "tokens"
FIRED = "fired"
NAMES = ("period", "version", "model", "runs", "measure", "sort")
"""What an address may ask for."""
DEFAULTS = {"period": "14d", "sort": FIRED}
PERIODS: Mapping[str, tuple[str, int, int]] = {
    "7d": ("7 days", 7, DAY),
    "14d": ("14 days", 14, DAY),
    "30d": ("30 days", 30, DAY),
    "90d": ("90 days", 90, DAY),
    "12m": ("12 months", 52 * 7, WEEK),
}
"""Words, days, and days of a slot, by the names in addresses."""
_MAX_NAMED = 3


@require_viewer
def show_flow(request: HttpRequest, flow_name: str) -> HttpResponse:
    """What one flow does and how its runs went."""
    return render(request, "runs/flow.html", load_flow_page(fetch_flow(flow_name), request.GET, timezone.now()))


def load_flow_page(flow: Flow, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the template shows of a flow, which comes with its live version."""
    columns = ("number", "digest", "note", "created_at", "flow", "created_by__username")
    rows = FlowVersion.objects.filter(flow=flow).select_related("created_by").order_by("-number")
    found = list(rows.only(*columns))
    versions = {version.pk: version for version in found}
    asked, problems = parse_flow_query(query, {version.number for version in found})
    today = now.astimezone(UTC).date()
    period = build_period(asked["period"], today)
    kinds = fetch_kinds(flow, period.first, period.last) or fetch_kinds(flow, today - YEAR, today)
    is_simulated = asked["runs"] == SIMULATED or (not asked["runs"] and kinds == {True})
    only = next((version for version in found if str(version.number) == asked["version"]), None)
    shown = only or versions.get(flow.live_version_id or 0)
    spec = load_specs([shown])[shown.pk] if shown else None
    definition = build_definition(spec) if spec else None
    scope = Scope(period.first, period.last, is_simulated, flow, only.pk if only else None)
    counted = load_counted(scope, period, asked["model"])
    if asked["model"] != counted.model:
        problems.append(f"No attempt by a model “{shorten(asked['model'])}” in this period. All models are shown.")
        asked["model"] = ""
    measure = (asked["measure"] or COST) if counted.has_cost else TOKENS
    if asked["measure"] not in ("", measure) and counted.days:
        problems.append("No cost is known of these runs. Tokens are shown.")
    by_version = fetch_version_sums(flow, today, is_simulated=is_simulated, model=counted.model)
    # The version shown, or else the newest before it that ran, and the one before that.
    ran = [one for one in found if one.pk in by_version and (shown is None or one.number <= shown.number)][:2]
    nothing = type(counted.whole)()
    version_columns = OF_VERSION_BY_MODEL if counted.model else OF_VERSION[:4]
    leading = find_versions(period, counted.days, {key: one.number for key, one in versions.items()})
    return {
        "flow": flow,
        "asked": asked,
        "warnings": problems,
        "choices": list_choices(flow, asked, measure if counted.has_cost else "", kinds | {is_simulated}, counted),
        "counted": counted,
        "has_history": counted.days
        or DailyRuns.objects.filter(flow=flow).exists()
        or Run.objects.filter(flow=flow).exists(),
        "period_words": PERIODS[asked["period"]][0],
        "runs_url": link_runs(flow=flow.name),
        "running": Run.objects.running().filter(flow=flow).count(),
        "has_ended_runs": shown is not None
        and (shown.pk in by_version or Run.objects.filter(version=shown).exclude(ended_at=None).exists()),
        "versions": found,
        "only": only,
        "models": sorted({group.model for group in counted.groups if group.model}),
        "shown": shown,
        "definition": definition,
        "figures": build_figures(counted, by_cost=measure == COST, versions=[by_version[one.pk] for one in ran])
        if counted.days
        else (),
        "change_note": f"v{ran[0].number} since v{ran[1].number}" if len(ran) > 1 else "",
        "failed_url": link_runs(
            flow=flow.name, status="failed,errored", version=asked["version"], since=f"{period.first}T00:00Z"
        )
        if not counted.model and (counted.runs.failed or counted.runs.errored)
        else "",
        "marks": mark_versions(period, leading),
        "grid": load_grid(flow, versions, shown, only=only, now=now),
        "audits": load_audits(definition, scope, counted, asked, load_without_each(shown) if shown else None),
        "version_columns": version_columns,
        "version_rows": [
            (version, *rest, counted.list_cells(version_columns, by_version.get(version.pk, nothing)))
            for version, *rest in list_versions(found)
        ],
        "tables": list_tables(counted, leading, lambda model: build_flow_url(flow, asked, model=model) if model else "")
        if counted.days
        else (),
        "by_fired_url": build_flow_url(flow, asked, "audits", sort=FIRED),
        "by_cost_url": build_flow_url(flow, asked, "audits", sort=COST),
    }


# What an address asks for


def parse_flow_query(query: Mapping[str, str], versions: Collection[int]) -> tuple[dict[str, str], list[str]]:
    """The values of ``NAMES``, with a sentence for each value or name that is not valid and is left out.

    Whether there is such a model is not checked here.
    """
    problems = []
    if unknown := [f"“{shorten(name)}”" for name in query if name not in NAMES]:
        problems.append(f"Unknown parameter {', '.join(unknown[:_MAX_NAMED])}. Parameters are {', '.join(NAMES)}.")
    asked = {name: query.get(name) or DEFAULTS.get(name, "") for name in NAMES}
    asked["version"] = asked["version"].removeprefix("v")
    if asked["version"] not in {"", *map(str, versions)}:
        problems.append(f"This flow has no version “{shorten(asked['version'])}”. All versions are shown.")
        asked["version"] = ""
    allowed = {"period": tuple(PERIODS), "runs": (REAL, SIMULATED), "measure": (COST, TOKENS), "sort": (FIRED, COST)}
    for name, choices in allowed.items():
        if asked[name] and asked[name] not in choices:
            problems.append(
                f"“{shorten(asked[name])}” is not a valid value of “{name}”. It can be {', '.join(choices)}."
            )
            asked[name] = DEFAULTS.get(name, "")
    return asked, problems


def build_flow_url(flow: Flow, asked: Mapping[str, str], anchor: str | None = None, **changes: str) -> str:
    """The address of the page as it is, with ``changes``."""
    values = {**asked, **changes}
    query = {name: values[name] for name in NAMES if values[name] != DEFAULTS.get(name, "")}
    return reverse("runs:flow", args=[flow.name], query=query, fragment=anchor)


def build_period(name: str, today: date) -> Period:
    """The period of that name that ends today; the one by weeks begins on a Monday. Raises ``KeyError``."""
    _, days, slot_days = PERIODS[name]
    first = today - timedelta(days=days - 1)
    if slot_days == WEEK:
        first = today - timedelta(days=today.weekday() + days - WEEK)
    return Period(first, today, slot_days)


def list_choices(
    flow: Flow, asked: Mapping[str, str], measure: str, kinds: Collection[bool], counted: Counted
) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """The choices above the figures: words, address and whether it is current. Without ``measure`` none of that."""
    kind = SIMULATED if counted.is_simulated else REAL
    choices = [("Period", "period", {name: words for name, (words, _, _) in PERIODS.items()}, asked["period"])]
    if len(kinds) > 1:
        choices.append(("Real or simulated runs", "runs", {REAL: "Real", SIMULATED: "Simulated"}, kind))
    if measure:
        choices.append(("Cost or tokens", "measure", {COST: "Cost", TOKENS: "Tokens"}, measure))
    return [
        (
            title,
            [
                (words, build_flow_url(flow, asked, **{name: value}), value == current)
                for value, words in values.items()
            ],
        )
        for title, name, values, current in choices
    ]


# Audits


_REASONS = {
    BacktestReason.IMPURE_PLUGIN: "plug-in that is not pure",
    BacktestReason.MISSING_PLUGIN: "plug-in missing",
    BacktestReason.PLUGIN_CHANGED: "plug-in changed",
    BacktestReason.REDACTED: "redacted",
    BacktestReason.DIFFERS: "not as stored, or too slow",
    BacktestReason.OUTPUTS_REMOVED: "outputs removed",
}
"""Why a run can't be judged."""


def load_audits(
    definition: Mapping[str, Any] | None,
    scope: Scope,
    counted: Counted,
    asked: Mapping[str, str],
    without: Backtest | None = None,
) -> dict[str, Any]:
    """The audits that fired, in the order asked for, then those of ``definition`` that never did. Two queries.

    What fired in a step of the same name is one audit, at whatever position the step was. ``without`` is the backtest
    of the version shown that leaves out each of its audits.
    """
    totals = Totals.from_document(without.totals if without and not without.is_unfinished else {})
    left_out = {(one.step, one.audit): one for one in totals.without}
    audits = fetch_audits(scope, counted.groups, by_cost=asked["sort"] == COST, limit=MAX_AUDITS + 1)
    steps = definition["steps"] if definition else ()
    known = {(step["spec"].name, line["name"]): (step["number"], line) for step in steps for line in step["audits"]}
    names = {step["number"]: step["spec"].name for step in steps}
    merged: dict[tuple[str, str, str], AuditSums] = {}
    for sums in audits[:MAX_AUDITS]:
        key = (sums.step_name or names.get(sums.step, ""), sums.audit, sums.code)
        merged[key] = _add(merged[key], sums) if key in merged else sums
    for (name, audit), (number, _) in known.items():
        merged.setdefault((name, audit, ""), AuditSums(number, name, audit, "", 0, 0, 0, 0, Decimal(0), 0))
    runs = _count_runs(fetch_issues(scope, limit=5 * MAX_AUDITS), [(audit, code) for _, audit, code in merged])
    build_url = partial(
        build_issues_url,
        scope.flow.name if scope.flow else "",
        version=asked["version"],
        period=asked["period"] if asked["period"] in issue_groups.PERIODS else "90d",
    )
    rows = []
    for (name, audit, code), sums in merged.items():
        number, line = known.get((name, audit), (sums.step, None))
        rows.append(
            {
                "name": audit or code,
                "is_code": not audit,
                "url": build_url(audit=audit, code=code),
                "step": f"{number} {name}".strip(),
                # None for what the version shown doesn't have.
                "line": line,
                "sums": sums,
                "runs": runs.get((audit, code), "") if sums.fired else "never fired",
                "fixed": format_share(sums.fixed_rate),
                "bar": "" if sums.fixed_rate is None else f"{100 * sums.fixed_rate:.1f}%",
                "without": _describe_without(left_out.get((number, audit))) if line else None,
                "cost": NOTHING if counted.is_simulated else format_cost(sums.known_cost, sums.retry_unpriced),
            }
        )
    note = f"the first {MAX_AUDITS}" if len(audits) > MAX_AUDITS else ""
    return {
        "rows": rows,
        "note": note,
        "issues_url": build_url(),
        "without": without,
        "judged": totals.result.runs - totals.unjudged,
        "unjudged": [
            f"{format_count(count)} {_REASONS.get(reason, reason)}" for reason, count in totals.result.reasons.items()
        ],
        "has_no_worker": without is not None and without.is_unfinished and not Worker.objects.alive().exists(),
    }


def _describe_without(found: WithoutAudit | None) -> dict[str, Any] | None:
    """What leaving out an audit would change in the runs that could be judged; None where none could be."""
    if found is None or not found.judged:
        return None
    if not found.sooner:
        return {
            "retries": format_retries(0),
            "lines": [f"all {format_count(found.judged)} judged the same"],
            "tone": "quiet",
        }
    kept = found.sooner - found.freed
    lines = [f"{format_plural(kept, 'run')} of {format_count(found.judged)} sooner"] if kept else []
    if found.freed:
        lines.append(f"{format_plural(found.freed, 'run')} that never passed would pass here")
    if found.saved.cost:
        lines[0] += f", \N{MINUS SIGN}{format_cost(found.saved.cost, found.saved.unpriced)}"
    return {
        "retries": f"\N{MINUS SIGN}{format_retries(found.retries_saved)}",
        "lines": lines,
        "tone": "errored" if found.freed else "passed",
        # All runs that it kept from passing at once passed the step in the end.
        "only_costs": not found.unpassed,
    }


def _add(one: AuditSums, other: AuditSums) -> AuditSums:
    columns = ("fired", "retried", "fixed", "retry_tokens", "retry_cost", "retry_unpriced")
    return replace(one, **{column: getattr(one, column) + getattr(other, column) for column in columns})


def _count_runs(issues: Sequence[IssueSums], names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """In how many runs each audit fired, as far as daily counts say: they have codes and severities, not steps."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in issues:
        found.setdefault((one.audit, "" if one.audit else one.code), []).append(one.runs)
    return {
        key: f"{'≥ ' if len(counts) > 1 else ''}{format_plural(max(counts), 'run')}"
        for key, counts in found.items()
        if names.count(key) == 1
    }
