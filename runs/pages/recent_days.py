"""Today beside the days before, and what flows used by day: sums of what was counted of all flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from runs.formatting import NOTHING, format_cost, format_count
from runs.pages.flow_charts import Chart, ChartMaker
from runs.pages.small_charts import Sparkline, plot_sparkline
from runs.statistics.figures import CHART_DAYS, FlowDay, Today, compare_today, load_flow_days
from runs.statistics.sums import Period, RunSums, last_days, sum_by_slot

MOST_FLOWS = 8


@dataclass(frozen=True, slots=True)
class FlowUse:
    """What one flow used, day by day; ``name`` is empty for several flows together."""

    name: str
    title: str
    sums: RunSums
    spark: Sparkline
    is_by_cost: bool
    """The drawing shows cost; otherwise tokens, as no price is known."""
    cells: tuple[str, ...]
    """What is drawn, day by day."""


@dataclass(frozen=True, slots=True)
class RecentDays:
    """The days shown, what they came to, and whether these are simulated runs; None where nothing was counted."""

    period: Period
    today: Today
    chart: Chart
    flows: tuple[FlowUse, ...]
    is_simulated: bool
    has_both: bool
    """There are real runs and simulated ones."""


def load_recent_days(now: datetime, *, wants_simulated: bool = False) -> RecentDays | None:
    """Sum up today and the days before.

    Simulated runs are summed up if they are asked for, or if there are no others.
    """
    today = now.astimezone(UTC).date()
    period = last_days(CHART_DAYS, today)
    by_kind = load_flow_days(period)
    if not by_kind:
        return None
    is_simulated = wants_simulated if len(by_kind) == 2 else True in by_kind
    rows = by_kind[is_simulated]
    has_cost = not is_simulated and any(row.sums.cost for row in rows)
    chart = ChartMaker(period, (), {}).chart_use(
        sum_by_slot(period, ((row.day, row.sums) for row in rows)), measure="cost" if has_cost else "tokens"
    )
    return RecentDays(
        period=period,
        today=compare_today(today, is_simulated=is_simulated),
        chart=chart,
        flows=_list_flows(rows, period, has_cost=has_cost),
        is_simulated=is_simulated,
        has_both=len(by_kind) == 2,
    )


def _list_flows(rows: Sequence[FlowDay], period: Period, *, has_cost: bool) -> tuple[FlowUse, ...]:
    """What each flow used, the most expensive first; those beyond the first few are added up."""
    by_flow: dict[int, list[FlowDay]] = {}
    for row in rows:
        by_flow.setdefault(row.flow_id, []).append(row)
    groups = [(own[0].name, own[0].title, own) for own in by_flow.values()]
    groups.sort(key=lambda group: (-_sum_of(group[2]).cost, -_sum_of(group[2]).total_tokens, group[1]))
    if len(groups) > MOST_FLOWS + 1:
        others = groups[MOST_FLOWS:]
        groups[MOST_FLOWS:] = [("", f"{len(others)} other flows", [row for _, _, own in others for row in own])]
    slots = [sum_by_slot(period, ((row.day, row.sums) for row in own)) for _, _, own in groups]
    # One scale for all, so that flows can be compared.
    highest = max((float(sums.cost) for own in slots for sums in own if sums), default=0.0)
    most_tokens = max((sums.total_tokens for own in slots for sums in own if sums), default=0)
    uses = []
    for (name, title, own), days in zip(groups, slots, strict=True):
        total = _sum_of(own)
        is_by_cost = has_cost and total.known_cost is not None
        values = [
            None if sums is None else float(sums.cost) if is_by_cost else float(sums.total_tokens) for sums in days
        ]
        spark = plot_sparkline(
            values, most=highest if is_by_cost else float(most_tokens), kind="value" if is_by_cost else "tokens"
        )
        cells = tuple(_tell(sums, is_by_cost=is_by_cost) for sums in days)
        uses.append(FlowUse(name, title, total, spark, is_by_cost, cells))
    return tuple(uses)


def _tell(sums: RunSums | None, *, is_by_cost: bool) -> str:
    if sums is None:
        return NOTHING
    return format_cost(sums.known_cost, sums.unpriced) if is_by_cost else f"{format_count(sums.total_tokens)} tokens"


def _sum_of(rows: Sequence[FlowDay]) -> RunSums:
    return RunSums.join(row.sums for row in rows)
