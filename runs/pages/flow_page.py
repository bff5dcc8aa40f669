"""What the page of a flow shows, as plain values: built from daily statistics, laid out by templates.

The page costs the same queries whatever the flow's history; all of them read daily rows, none reads runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from flows.models import Flow, FlowVersion
from runs.models import Run
from runs.pages.addresses import link_runs
from runs.pages.flow_query import COST, FIRED, REAL, SIMULATED, FlowQuery, quote_model, read_flow_query
from runs.pages.flow_summary import Choice, FlowSummary, SummaryReader
from runs.pages.periods import PERIODS, NamedPeriod, build_period
from runs.statistics.figures import Scope, fetch_first_days, fetch_kinds, fetch_runs, fetch_steps


@dataclass(frozen=True, slots=True)
class FlowPage:
    """The page of one flow; ``summary`` is None where nothing was counted in the period."""

    flow: Flow
    query: FlowQuery
    period: NamedPeriod
    problems: tuple[str, ...]
    is_simulated: bool
    kinds: tuple[Choice, ...]
    """Real or simulated runs, where there are both."""
    periods: tuple[Choice, ...]
    versions: tuple[int, ...]
    models: tuple[str, ...]
    summary: FlowSummary | None
    has_any_run: bool
    runs_url: str
    failed_url: str

    @property
    def by_fired_url(self) -> str:
        """The page with audits in the order of how often they fired."""
        return self.query.build_url("audits", sort=FIRED)

    @property
    def by_cost_url(self) -> str:
        """The page with audits in the order of what their retries cost."""
        return self.query.build_url("audits", sort=COST)

    @property
    def all_models_url(self) -> str:
        return self.query.build_url(model="")


def load_flow_page(flow: Flow, query: Mapping[str, str], now: datetime) -> FlowPage:
    """Read what a query string asks for of a flow; values that make no sense are named in ``problems``."""
    versions = list(FlowVersion.objects.filter(flow=flow).only("number", "created_at").order_by("-number"))
    ids = {version.number: version.pk for version in versions}
    asked, problems = read_flow_query(query, flow.name, ids)
    period = build_period(asked.period, now.astimezone(UTC).date())
    kinds = fetch_kinds(flow, period.first, period.last)
    is_simulated = asked.runs == SIMULATED or (asked.runs != REAL and kinds == {True})
    scope = Scope(period.first, period.last, is_simulated, flow, ids.get(asked.version or 0))
    groups = fetch_steps(scope)
    models = tuple(sorted({group.model for group in groups if group.model}))
    if asked.model and asked.model not in models:
        problems.append(quote_model(asked.model))
        asked = replace(asked, model="")
    days = fetch_runs(scope)
    first_days = fetch_first_days(flow)
    summary = None
    if days:
        summary = SummaryReader(flow, asked, period, scope, versions, first_days).read(days, groups, problems)
    return FlowPage(
        flow=flow,
        query=asked,
        period=period,
        problems=tuple(problems),
        is_simulated=is_simulated,
        kinds=tuple(
            Choice(words, asked.build_url(runs=name), is_simulated == (name == SIMULATED))
            for name, words in ((REAL, "Real"), (SIMULATED, "Simulated"))
        )
        if len(kinds | {is_simulated}) > 1
        else (),
        periods=tuple(
            Choice(words, asked.build_url(period=name), name == asked.period) for name, words in PERIODS.items()
        ),
        versions=tuple(version.number for version in versions),
        models=models,
        summary=summary,
        has_any_run=bool(first_days) or Run.objects.filter(flow=flow).exists(),
        runs_url=link_runs(flow=flow.name),
        failed_url=link_runs(
            flow=flow.name, status="failed,errored", since=period.first, version=asked.version, model=asked.model
        ),
    )
