"""The list of flows: what each of them did in the last 30 days, and its last run.

A page costs the same queries however many flows and runs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.db.models import OuterRef, Subquery
from django.urls import reverse

from flows.models import Flow
from runs.formatting import NOTHING, format_count
from runs.models import DailyRuns, Run
from runs.pages.run_page import run_state
from runs.pages.small_charts import Sparkline, plot_sparkline
from runs.statistics.sums import Period, RunSums, last_days, sum_by_slot

PAGE_SIZE = 100
DAYS = 30
_LAST_PAGE = 10_000
_COLUMNS = ("runs", "succeeded", "cancelled", "first_time", "cost", "unpriced", "total_tokens")


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One flow; ``sums`` is None where no run ended in the last 30 days."""

    flow: Flow
    sums: RunSums | None
    is_simulated: bool
    """There were no other runs."""
    spark: Sparkline | None
    cells: tuple[str, ...]
    """How many runs ended, day by day; empty where none did in the whole period."""
    last: Run | None
    last_state: str

    @property
    def title(self) -> str:
        return self.flow.title


@dataclass(frozen=True, slots=True)
class FlowList:
    """One page of the list; archived flows come after all others."""

    rows: tuple[FlowRow, ...]
    archived: tuple[FlowRow, ...]
    period: Period
    problems: tuple[str, ...]
    earlier_url: str
    later_url: str
    now: datetime

    @property
    def counted(self) -> tuple[FlowRow, ...]:
        """The flows of which runs ended in the period."""
        return tuple(row for row in (*self.rows, *self.archived) if row.cells)


def load_flow_list(query: Mapping[str, str], now: datetime) -> FlowList:
    """Read the page of flows that a query string asks for."""
    asked = _read_page(query.get("page", "") or "1")
    problems = () if asked else ("That is not the number of a page; the first one is shown.",)
    number = asked or 1
    last = Run.objects.filter(flow=OuterRef("pk")).order_by("-created_at", "-pk").values("pk")[:1]
    flows = Flow.objects.select_related("live_version").defer("input_schema", "description", "live_version__spec")
    first = (number - 1) * PAGE_SIZE
    ordered = flows.annotate(last_run=Subquery(last)).order_by("is_archived", "title", "pk")
    found = list(ordered[first : first + PAGE_SIZE + 1])
    page = found[:PAGE_SIZE]
    period = last_days(DAYS, now.astimezone(UTC).date())
    rows = _build_rows(page, period)
    address = reverse("runs:flows")
    return FlowList(
        rows=tuple(row for row in rows if not row.flow.is_archived),
        archived=tuple(row for row in rows if row.flow.is_archived),
        period=period,
        problems=problems,
        earlier_url=f"{address}?page={number - 1}" if number > 1 else "",
        later_url=f"{address}?page={number + 1}" if len(found) > PAGE_SIZE else "",
        now=now,
    )


def _read_page(text: str) -> int | None:
    """The number of a page; None for what can't be one."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return number if 1 <= number <= _LAST_PAGE else None


def _build_rows(flows: Sequence[Flow], period: Period) -> list[FlowRow]:
    keys = [flow.last_run for flow in flows]  # type: ignore[attr-defined]  # annotated
    runs = Run.objects.only("flow", "status", "cancel_requested", "created_at").in_bulk([key for key in keys if key])
    days: dict[int, dict[bool, list[tuple[date, RunSums]]]] = {}
    counted = DailyRuns.objects.filter(flow__in=flows, day__range=(period.first, period.last)).order_by()
    for flow_id, is_simulated, day, *columns in counted.values_list("flow", "is_simulated", "day", *_COLUMNS):
        sums = RunSums(**dict(zip(_COLUMNS, columns, strict=True)))
        days.setdefault(flow_id, {}).setdefault(is_simulated, []).append((day, sums))
    rows = []
    for flow, key in zip(flows, keys, strict=True):
        found = days.get(flow.pk, {})
        # Simulated runs are kept apart: they stand for a flow only where it has no others.
        is_simulated = False not in found
        own = found.get(is_simulated, [])
        slots = sum_by_slot(period, own)
        run = runs.get(key)
        rows.append(
            FlowRow(
                flow=flow,
                sums=RunSums.join(sums for _, sums in own) if own else None,
                is_simulated=bool(own) and is_simulated,
                spark=plot_sparkline([None if sums is None else sums.runs for sums in slots]) if own else None,
                cells=tuple(NOTHING if sums is None else format_count(sums.runs) for sums in slots) if own else (),
                last=run,
                last_state=run_state(run) if run else "",
            )
        )
    return rows
