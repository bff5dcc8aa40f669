"""Pages of flows: their list, the page of one, and readable pages of its versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from flows.engine.differences import Change, compare_specs
from flows.models import Flow, FlowVersion
from runs.pages.access import require_permission
from runs.pages.addresses import link_runs
from runs.pages.flow_definition import Definition, build_definition, load_specs
from runs.pages.flow_list import load_flow_list
from runs.pages.flow_page import describe_version, load_flow_page
from runs.pages.flow_tables import Formatter, fetch_version_sums
from runs.pages.flow_trends import build_period
from runs.statistics.figures import Scope
from runs.statistics.sums import RunSums


@require_safe
@require_permission("runs.view_run")
def show_flows(request: HttpRequest) -> HttpResponse:
    """All flows, with how their runs of the last 30 days went."""
    return render(request, "runs/flows.html", {"page": load_flow_list(request.GET, timezone.now())})


@require_safe
@require_permission("runs.view_run")
def show_flow(request: HttpRequest, flow_name: str) -> HttpResponse:
    """What one flow does and how its runs went."""
    page = load_flow_page(_find_flow(flow_name), request.GET, timezone.now(), request.user)
    return render(request, "runs/flow.html", {"page": page})


@require_safe
@require_permission("runs.view_run")
def show_version(request: HttpRequest, flow_name: str, number: int) -> HttpResponse:
    """One version of a flow: what it does, what it changed, and its figures of the last 12 months."""
    page = load_version_page(_find_flow(flow_name), number, timezone.now(), request.user)
    return render(request, "runs/flow_version.html", {"page": page})


@require_safe
@require_permission("runs.view_run")
def show_version_document(request: HttpRequest, flow_name: str, number: int) -> JsonResponse:
    """The definition of one version as JSON."""
    version = get_object_or_404(FlowVersion.objects.only("spec"), flow__name=flow_name, number=number)
    return JsonResponse(version.spec, json_dumps_params={"indent": 2, "ensure_ascii": False})


def _find_flow(name: str) -> Flow:
    columns = ("name", "title", "description", "is_archived", "live_version__number", "live_version__flow")
    return get_object_or_404(Flow.objects.select_related("live_version").only(*columns), name=name)


@dataclass(frozen=True, slots=True)
class VersionPage:
    """One version; ``definition`` is None where this release can't read it."""

    flow: Flow
    version: FlowVersion
    is_live: bool
    definition: Definition | None
    before: int | None
    """The number of the version before it."""
    is_comparable: bool
    changes: Sequence[Change]
    figures: tuple[tuple[str, str], ...]
    older_url: str
    newer_url: str
    runs_url: str
    document_url: str
    compare_url: str
    """Empty where that page is not open to the user."""


def load_version_page(flow: Flow, number: int, now: datetime, user: Any) -> VersionPage:
    """Read one version and those beside it. Raises ``Http404`` if there is none of that number."""
    versions = FlowVersion.objects.filter(flow=flow).defer("spec").order_by("number")
    version = get_object_or_404(versions.select_related("created_by"), number=number)
    before = versions.filter(number__lt=number).last()
    after = versions.filter(number__gt=number).first()
    specs = load_specs([version, before] if before else [version])
    spec, old = specs[version.pk], specs[before.pk] if before else None
    today = now.astimezone(UTC).date()
    # Simulated runs count only where there are no others.
    figures = None
    price = Formatter(is_simulated=False).price
    for is_simulated in (False, True):
        scope = Scope(build_period("12m", today).first, today, is_simulated, flow, version.pk)
        figures = fetch_version_sums(scope, RunSums).get(version.pk)
        if figures is not None:
            price = Formatter(is_simulated=is_simulated).price
            break
    compare_url = ""
    if before and user.is_staff and user.has_perm("flows.view_flow"):
        compare_url = f"{reverse('admin:flows_flow_compare', args=[flow.pk])}?from={before.number}&to={number}"
    return VersionPage(
        flow=flow,
        version=version,
        is_live=version.pk == flow.live_version_id,
        definition=build_definition(spec) if spec else None,
        before=before.number if before else None,
        is_comparable=spec is not None and old is not None,
        changes=compare_specs(old, spec) if spec and old else (),
        figures=describe_version(figures, price),
        older_url=reverse("runs:version", args=[flow.name, before.number]) if before else "",
        newer_url=reverse("runs:version", args=[flow.name, after.number]) if after else "",
        runs_url=link_runs(flow=flow.name, version=number),
        document_url=reverse("runs:version-document", args=[flow.name, number]),
        compare_url=compare_url,
    )


urls: list[URLPattern] = [
    path("flows/", show_flows, name="flows"),
    path("flows/<slug:flow_name>/", show_flow, name="flow"),
    path("flows/<slug:flow_name>/versions/<number:number>/", show_version, name="version"),
    path("flows/<slug:flow_name>/versions/<number:number>.json", show_version_document, name="version-document"),
]
