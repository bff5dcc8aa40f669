"""Pages of flows: how their runs went, by version and model, and what their audits cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_safe

from flows.models import Flow, FlowVersion
from runs.pages.access import require_permission
from runs.pages.flow_list import load_flow_list
from runs.pages.flow_page import load_flow_page
from runs.prepared_select import PreparedSelect, RowParts, build_row, list_columns


@require_safe
@require_permission("runs.view_run")
def show_flows(request: HttpRequest) -> HttpResponse:
    """All flows, with how their runs of the last 30 days went."""
    return render(request, "runs/flows.html", {"page": load_flow_list(request.GET, timezone.now())})


@require_safe
@require_permission("runs.view_run")
def show_flow(request: HttpRequest, flow_name: str) -> HttpResponse:
    """The statistics of one flow."""
    page = load_flow_page(_find_flow(flow_name), request.GET, timezone.now())
    return render(request, "runs/flow.html", {"page": page, "is_simulated": page.is_simulated})


def _find_flow(name: str) -> Flow:
    """A flow with its live version, without their definitions. Raises ``Http404``."""
    for values in _FLOWS.fetch([name]):
        flow, version = _FLOW_PARTS.split(values)
        row = build_row(Flow, flow, among=_FLOW)
        row.live_version = build_row(FlowVersion, version, among=_VERSION) if row.live_version_id is not None else None
        return row
    raise Http404


def _select_flow(names: Sequence[Any]) -> QuerySet[Any, Any]:
    return Flow.objects.filter(name=names[0]).order_by().values_list(*_FLOW_PARTS.columns)


_FLOW = ("id", "name", "title", "description", "is_archived", "live_version_id")
_VERSION = ("id", "number")
_FLOW_PARTS = RowParts(list_columns(Flow, among=_FLOW), list_columns(FlowVersion, "live_version", among=_VERSION))
_FLOWS = PreparedSelect(_select_flow, most=1, kind=str)


urls: list[URLPattern] = [
    path("flows/", show_flows, name="flows"),
    path("flows/<slug:flow_name>/", show_flow, name="flow"),
]
