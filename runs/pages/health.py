"""Today beside the days before, and what each flow used by day: sums of the daily statistics of all flows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.urls import reverse

from runs.formatting import (
    NOTHING,
    format_cost,
    format_count,
    format_duration,
    format_large,
    format_plural,
    format_share,
)
from runs.pages.flow_figures import Sparkline, plot_sparkline
from runs.statistics.figures import CHART_DAYS, MEDIAN_DAYS, FlowDay, MedianDay, compare_today, load_flow_days
from runs.statistics.sums import Period, RunSums, last_days, sum_by_slot

MAX_FLOWS = 8


class Figure(NamedTuple):
    """A number of today; ``baseline`` is its 7-day median, empty where there is none."""

    label: str
    value: str
    baseline: str
    trend: Sparkline | None


class FlowUse(NamedTuple):
    """The runs of one flow over the days shown; ``url`` is empty for several flows together."""

    title: str
    url: str
    trend: Sparkline
    runs: str
    pass_rate: str
    tokens: str
    cost: str
    cells: tuple[str, ...]
    """Cost or tokens, day by day."""


@dataclass(frozen=True, slots=True)
class Health:
    """Today beside the days before, over all flows."""

    figures: tuple[Figure, ...]
    baseline: str
    """What the medians are of."""
    days: tuple[str, ...]
    flows: tuple[FlowUse, ...]
    is_by_cost: bool
    """Trends of flows show cost; otherwise tokens, as no price is known."""
    is_simulated: bool
    has_both: bool
    """There are real runs and simulated ones."""


def load_health(now: datetime, *, wants_simulated: bool = False) -> Health | None:
    """Sum up today and the days before; None if no run ended. Two queries.

    Simulated runs are summed up if they are asked for, or if there are no others.
    """
    today = now.astimezone(UTC).date()
    period = last_days(CHART_DAYS, today)
    by_kind = load_flow_days(period)
    if not by_kind:
        return None
    is_simulated = wants_simulated if len(by_kind) == 2 else True in by_kind
    rows = by_kind[is_simulated]
    compared = compare_today(today, is_simulated=is_simulated)
    median = compared.median
    is_by_cost = not is_simulated and any(row.sums.cost for row in rows)
    return Health(
        figures=_build_figures(
            compared.so_far,
            median,
            sum_by_slot(period, ((row.day, row.sums) for row in rows)),
            is_simulated=is_simulated,
        ),
        baseline=_describe_baseline(median),
        days=tuple(f"{slot.first.day} {slot.first:%b}" for slot in period.slots),
        flows=_list_flows(rows, period, is_by_cost=is_by_cost, is_simulated=is_simulated),
        is_by_cost=is_by_cost,
        is_simulated=is_simulated,
        has_both=len(by_kind) == 2,
    )


def _describe_baseline(median: MedianDay | None) -> str:
    if median is None:
        return "No baseline yet."
    if median.days == MEDIAN_DAYS:
        return f"Median of the {MEDIAN_DAYS} days before."
    return f"Median of {format_plural(median.days, 'day')} with runs among the {MEDIAN_DAYS} before."


_FIGURES: tuple[tuple[str, str, str, Callable[[Any], str], float | None], ...] = (
    ("Pass rate", "pass_rate", "pass_rate", format_share, 1.0),
    ("First-attempt pass rate", "first_rate", "first_rate", format_share, 1.0),
    ("Runs", "runs", "runs", format_large, None),
    ("Median duration", "median", "duration_p50", format_duration, None),
    ("Tokens", "total_tokens", "total_tokens", format_large, None),
)
"""Label, name of the sum, name of its median, how it reads, and the value of full height in its trend."""


def _build_figures(
    so_far: RunSums, median: MedianDay | None, days: Sequence[RunSums | None], *, is_simulated: bool
) -> tuple[Figure, ...]:
    figures = []
    for label, name, median_name, format_value, most in _FIGURES:
        usual = getattr(median, median_name, None)
        baseline = "" if usual is None else format_value(usual)
        values = [getattr(day, name, None) for day in days]
        trend = plot_sparkline(values, most=most) if any(values) else None
        figures.append(Figure(label, format_value(getattr(so_far, name)), baseline, trend))
    if not is_simulated:
        usual_cost = median.cost if median else None
        baseline = format_cost(usual_cost, median.unpriced) if median and usual_cost is not None else ""
        costs = [None if day is None else float(day.cost) for day in days]
        trend = plot_sparkline(costs) if any(costs) else None
        figures.insert(1, Figure("Cost", format_cost(so_far.known_cost, so_far.unpriced), baseline, trend))
    return tuple(figures)


def _list_flows(
    rows: Sequence[FlowDay], period: Period, *, is_by_cost: bool, is_simulated: bool
) -> tuple[FlowUse, ...]:
    """The use of each flow, the most expensive first; those beyond the first few are added up."""
    by_flow: dict[int, list[FlowDay]] = {}
    for row in rows:
        by_flow.setdefault(row.flow_id, []).append(row)
    groups = [(own[0].name, own[0].title, own, RunSums.join(row.sums for row in own)) for own in by_flow.values()]
    groups.sort(key=lambda group: (-group[3].cost, -group[3].total_tokens, group[1]))
    if len(groups) > MAX_FLOWS + 1:
        others = groups[MAX_FLOWS:]
        joined = [row for group in others for row in group[2]]
        groups[MAX_FLOWS:] = [("", f"{len(others)} other flows", joined, RunSums.join(row.sums for row in joined))]
    slots = [sum_by_slot(period, ((row.day, row.sums) for row in group[2])) for group in groups]
    # One scale for all, so that flows can be compared.
    most_cost = max((float(sums.cost) for own in slots for sums in own if sums), default=0.0)
    most_tokens = max((sums.total_tokens for own in slots for sums in own if sums), default=0)
    uses = []
    for (name, title, _, total), days in zip(groups, slots, strict=True):
        shows_cost = is_by_cost and total.known_cost is not None
        values = [None if day is None else float(day.cost if shows_cost else day.total_tokens) for day in days]
        most, kind = (most_cost, "value") if shows_cost else (float(most_tokens), "tokens")
        uses.append(
            FlowUse(
                title=title,
                url=reverse("runs:flow", args=[name]) if name else "",
                trend=plot_sparkline(values, most=most, kind=kind),
                runs=format_count(total.runs),
                pass_rate=format_share(total.pass_rate),
                tokens=format_large(total.total_tokens),
                cost=NOTHING if is_simulated else format_cost(total.known_cost, total.unpriced),
                cells=tuple(_format_day(day, by_cost=shows_cost) for day in days),
            )
        )
    return tuple(uses)


def _format_day(sums: RunSums | None, *, by_cost: bool) -> str:
    if sums is None:
        return NOTHING
    return format_cost(sums.known_cost, sums.unpriced) if by_cost else f"{format_count(sums.total_tokens)} tokens"
