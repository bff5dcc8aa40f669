"""The versions of a flow: their list, the difference of any two, and the way back to an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib.admin import AdminSite
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path

from flows.admin.access import require_permission
from flows.admin.posted_json import parse_number
from flows.admin.restore_page import show_restoring
from flows.admin.version_rows import UNREADABLE, list_versions, make_rows, render_page, summarise_versions
from flows.engine.differences import compare_specs
from flows.models import Flow

PAGE_SIZE = 20


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    see, change = require_permission("flows.view_flow"), require_permission("flows.change_flow")
    versions = site.admin_view(see(partial(show_versions, site)))
    compare = site.admin_view(see(partial(show_difference, site)))
    restore = site.admin_view(change(partial(show_restoring, site)))
    return [
        path("<int:flow_id>/versions/", versions, name="flows_flow_versions"),
        path("<int:flow_id>/versions/compare/", compare, name="flows_flow_compare"),
        path("<int:flow_id>/versions/<int:number>/restore/", restore, name="flows_flow_restore"),
    ]


def show_versions(site: AdminSite, request: HttpRequest, /, flow_id: int) -> HttpResponse:
    """All versions of a flow, the newest first, each with what it changed."""
    flow = _find_flow(flow_id)
    all_versions = list_versions(flow)
    page = Paginator(all_versions, PAGE_SIZE).get_page(request.GET.get("page"))
    first = (page.number - 1) * PAGE_SIZE
    # One more than is shown: the last one is compared with the one before it.
    versions = list(all_versions[first : first + PAGE_SIZE + 1])
    context = {
        "rows": make_rows(site, request, flow, versions[:PAGE_SIZE], summarise_versions(versions)),
        "page": page,
        "page_range": page.paginator.get_elided_page_range(page.number),
        "latest_number": all_versions.values_list("number", flat=True).first(),
    }
    return render_page(site, request, flow, "version_list", title=f"Versions of {flow}", context=context)


def show_difference(site: AdminSite, request: HttpRequest, /, flow_id: int) -> HttpResponse:
    """The difference of two versions, in either direction; of the last two, if none are named.

    ``from`` and ``to`` are numbers, or ``live``.
    """
    flow = _find_flow(flow_id)
    numbers = list(flow.versions.values_list("number", flat=True))
    words = {"live": str(flow.live_version.number)} if flow.live_version else {}
    chosen = [words.get(text, text) for text in (request.GET.get("from", ""), request.GET.get("to", ""))]
    if chosen == ["", ""] and len(numbers) > 1:
        chosen = [str(numbers[1]), str(numbers[0])]
    context: dict[str, Any] = {"numbers": numbers, "problem": _find_problem(numbers, chosen)}
    if context["problem"] is not None:
        return render_page(site, request, flow, "version_diff", title="Compare versions", context=context, status=404)
    found = {version.number: version for version in list_versions(flow).filter(number__in=set(map(int, chosen)))}
    old, new = (found[int(number)] for number in chosen)
    context["old"], context["new"] = make_rows(site, request, flow, [old, new])
    before, after = old.readable_spec, new.readable_spec
    if before is None or after is None:
        context["problem"] = UNREADABLE.format((old if before is None else new).number)
    else:
        context["changes"] = compare_specs(before, after)
    title = f"Version {old.number} → version {new.number}"
    return render_page(site, request, flow, "version_diff", title=title, context=context)


def _find_flow(flow_id: int) -> Flow:
    flows = Flow.objects.select_related("live_version").defer("live_version__spec")
    return get_object_or_404(flows, pk=flow_id)


def _find_problem(numbers: Sequence[int], chosen: Sequence[str]) -> str | None:
    if chosen == ["", ""]:
        return "There is nothing to compare: the flow has " + ("one version." if numbers else "no versions yet.")
    for text in chosen:
        if not text:
            return "Choose two versions to compare."
        if text == "live":
            return "No version of this flow is live."
        if parse_number(text) is None:
            return f"“{text[:40]}” is not a version number."
        if int(text) not in numbers:
            return f"This flow has no version {int(text)}."
    return None
