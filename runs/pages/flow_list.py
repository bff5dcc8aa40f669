"""The list of flows: what each of them did in the last 30 days, and its last run.

A page costs the same queries however many flows and runs there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date
from typing import Any

from django.core.paginator import Paginator
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from flows.models import Flow
from runs.models import DailyRuns, Run
from runs.pages.access import require_viewer
from runs.pages.badges import STATES, find_run_state
from runs.pages.flow_figures import OF_FLOW, list_cells, plot_sparkline
from runs.statistics.sums import Period, RunSums, last_days, sum_by_slot

PAGE_SIZE = 100
DAYS = 30
_COLUMNS = ("runs", "succeeded", "accepted", "cancelled", "first_time", "cost", "unpriced", "total_tokens")


@require_viewer
def show_flows(request: HttpRequest) -> HttpResponse:
    """All flows, with how their runs of the last 30 days went."""
    last = Run.objects.filter(flow=OuterRef("pk")).order_by("-created_at", "-pk").values("pk")[:1]
    flows = Flow.objects.select_related("live_version").defer("description", "live_version__spec")
    ordered = flows.annotate(last_run=Subquery(last)).order_by("is_archived", "title", "pk")
    number = request.GET.get("page") or "1"
    page = Paginator(ordered, PAGE_SIZE).get_page(number)
    period = last_days(DAYS, timezone.now().astimezone(UTC).date())
    context = {
        "page": page,
        "is_other_page": number != str(page.number),
        "rows": _build_rows(list(page.object_list), period),
        "columns": OF_FLOW,
        "days": period.slots,
    }
    return render(request, "runs/flows.html", context)


def _build_rows(flows: Sequence[Any], period: Period) -> list[dict[str, Any]]:
    keys = [flow.last_run for flow in flows if flow.last_run]
    runs = Run.objects.only("flow", "status", "cancel_requested", "created_at").in_bulk(keys)
    days: dict[tuple[int, bool], list[tuple[date, RunSums]]] = {}
    counted = DailyRuns.objects.filter(flow__in=flows, day__range=(period.first, period.last)).order_by()
    for flow, is_simulated, day, *columns in counted.values_list("flow", "is_simulated", "day", *_COLUMNS):
        sums = RunSums(**dict(zip(_COLUMNS, columns, strict=True)))
        days.setdefault((flow, is_simulated), []).append((day, sums))
    return [_build_row(flow, runs.get(flow.last_run), days, period) for flow in flows]


def _build_row(
    flow: Flow, run: Run | None, days: dict[tuple[int, bool], list[tuple[date, RunSums]]], period: Period
) -> dict[str, Any]:
    # Simulated runs are kept apart: they count for a flow only where it has no others.
    is_simulated = (flow.pk, False) not in days
    own = days.get((flow.pk, is_simulated), [])
    slots = sum_by_slot(period, own)
    sums = RunSums.join(sums for _, sums in own) if own else RunSums()
    return {
        "flow": flow,
        "last_run": run,
        "state": STATES[find_run_state(run)] if run else None,
        "is_simulated": is_simulated and bool(own),
        "cells": list_cells(OF_FLOW, sums, is_simulated=is_simulated),
        "spark": plot_sparkline([None if one is None else one.runs for one in slots]) if own else None,
        "by_day": slots if own else (),
    }
