"""The list of flows: what each of them did in the last 30 days, and its last run.

A page costs the same queries however many flows and runs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db.models import OuterRef, Subquery
from django.urls import reverse

from flows.models import Flow
from runs.formatting import NOTHING, format_age, format_cost, format_count, format_plural, format_share
from runs.models import DailyRuns, Run, RunStatus
from runs.pages.badges import STATES, Badge
from runs.pages.small_charts import Sparkline, plot_sparkline
from runs.statistics.sums import Period, RunSums, last_days, sum_by_slot

PAGE_SIZE = 100
DAYS = 30
_MAX_PAGE = 10_000
_COLUMNS = ("runs", "succeeded", "cancelled", "first_time", "cost", "unpriced", "total_tokens")


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One flow, with what it did in the last 30 days."""

    name: str
    title: str
    url: str
    is_archived: bool
    live: int | None
    """The number of its live version."""
    last: str
    """Number and age of its last run; empty if it never ran."""
    last_url: str
    state: Badge | None
    spark: Sparkline | None
    by_day: str
    figures: tuple[str, ...]
    """Runs, pass rate, first attempt, cost."""
    cells: tuple[str, ...]
    """How many runs ended, day by day; empty where none did in the whole period."""


@dataclass(frozen=True, slots=True)
class FlowList:
    """One page of the list."""

    groups: tuple[tuple[str, tuple[FlowRow, ...]], ...]
    """Titles and rows; archived flows come after all others."""
    days: tuple[str, ...]
    table: tuple[FlowRow, ...]
    """The flows of which runs ended in the period."""
    problem: str
    earlier_url: str
    later_url: str


def load_flow_list(query: Mapping[str, str], now: datetime) -> FlowList:
    """Read the page of flows that a query string asks for."""
    asked = _parse_page(query.get("page", "") or "1")
    number = asked or 1
    last = Run.objects.filter(flow=OuterRef("pk")).order_by("-created_at", "-pk").values("pk")[:1]
    flows = Flow.objects.select_related("live_version").defer("input_schema", "description", "live_version__spec")
    first = (number - 1) * PAGE_SIZE
    ordered = flows.annotate(last_run=Subquery(last)).order_by("is_archived", "title", "pk")
    found = list(ordered[first : first + PAGE_SIZE + 1])
    period = last_days(DAYS, now.astimezone(UTC).date())
    rows = _build_rows(found[:PAGE_SIZE], period, now)
    groups = [
        ("Flows", tuple(row for row in rows if not row.is_archived)),
        ("Archived", tuple(row for row in rows if row.is_archived)),
    ]
    address = reverse("runs:flows")
    return FlowList(
        groups=tuple((title, own) for title, own in groups if own),
        days=tuple(f"{slot.first.day} {slot.first:%b}" for slot in period.slots),
        table=tuple(row for row in rows if row.cells),
        problem="" if asked else "This is not a valid page number. The first page is shown.",
        earlier_url=f"{address}?page={number - 1}" if number > 1 else "",
        later_url=f"{address}?page={number + 1}" if len(found) > PAGE_SIZE else "",
    )


def _parse_page(text: str) -> int | None:
    """The number of a page; None for what can't be one."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return number if 1 <= number <= _MAX_PAGE else None


def _build_rows(flows: Sequence[Flow], period: Period, now: datetime) -> list[FlowRow]:
    keys = [flow.last_run for flow in flows]  # type: ignore[attr-defined]  # annotated
    runs = Run.objects.only("flow", "status", "cancel_requested", "created_at").in_bulk([key for key in keys if key])
    days: dict[int, dict[bool, list[tuple[date, RunSums]]]] = {}
    counted = DailyRuns.objects.filter(flow__in=flows, day__range=(period.first, period.last)).order_by()
    for flow_id, is_simulated, day, *columns in counted.values_list("flow", "is_simulated", "day", *_COLUMNS):
        sums = RunSums(**dict(zip(_COLUMNS, columns, strict=True)))
        days.setdefault(flow_id, {}).setdefault(is_simulated, []).append((day, sums))
    return [
        _build_row(flow, runs.get(key), days.get(flow.pk, {}), period, now)
        for flow, key in zip(flows, keys, strict=True)
    ]


def _build_row(
    flow: Flow, run: Run | None, found: Mapping[bool, list[tuple[date, RunSums]]], period: Period, now: datetime
) -> FlowRow:
    # Simulated runs are kept apart: they count for a flow only where it has no others.
    is_simulated = False not in found
    own = found.get(is_simulated, [])
    slots = sum_by_slot(period, own)
    sums = RunSums.join(sums for _, sums in own) if own else None
    figures = ("0", NOTHING, NOTHING, NOTHING)
    if sums is not None:
        cost = "simulated" if is_simulated else format_cost(sums.known_cost, sums.unpriced)
        figures = (format_count(sums.runs), format_share(sums.pass_rate), format_share(sums.first_rate), cost)
    state = None
    if run is not None:
        is_cancelling = run.status == RunStatus.RUNNING and run.cancel_requested
        state = STATES["cancelling" if is_cancelling else run.status]
    return FlowRow(
        name=flow.name,
        title=flow.title,
        url=reverse("runs:flow", args=[flow.name]),
        is_archived=flow.is_archived,
        live=flow.live_version.number if flow.live_version else None,
        last=f"#{run.pk}, {format_age(max(now - run.created_at, timedelta(0)))} ago" if run else "",
        last_url=reverse("runs:page", args=[run.pk]) if run else "",
        state=state,
        spark=plot_sparkline([None if one is None else one.runs for one in slots]) if own else None,
        by_day=f"{format_plural(sums.runs, 'run')} in {DAYS} days" if sums else "",
        figures=figures,
        cells=tuple(NOTHING if one is None else format_count(one.runs) for one in slots) if own else (),
    )
