"""Pages of flows: how their runs went, by version and model, and what their audits cost."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_safe

from flows.models import Flow
from runs.pages.access import require_permission
from runs.pages.flow_list import load_flow_list
from runs.pages.flow_page import load_flow_page


@require_safe
@require_permission("runs.view_run")
def show_flows(request: HttpRequest) -> HttpResponse:
    """All flows, with how their runs of the last 30 days went."""
    return render(request, "runs/flows.html", {"page": load_flow_list(request.GET, timezone.now())})


@require_safe
@require_permission("runs.view_run")
def show_flow(request: HttpRequest, flow_name: str) -> HttpResponse:
    """The statistics of one flow."""
    columns = ("name", "title", "description", "is_archived", "live_version__number")
    flow = get_object_or_404(Flow.objects.select_related("live_version").only(*columns), name=flow_name)
    page = load_flow_page(flow, request.GET, timezone.now())
    return render(request, "runs/flow.html", {"page": page, "is_simulated": page.is_simulated})


urls: list[URLPattern] = [
    path("flows/", show_flows, name="flows"),
    path("flows/<slug:flow_name>/", show_flow, name="flow"),
]
