"""The page that asks whether new runs should use a version, and lets them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from flows.admin.access import require_permission
from flows.admin.version_rows import describe_use
from flows.engine.differences import compare_specs
from flows.models import Flow


def list_urls(flow_admin: Any) -> list[URLPattern]:
    """The address of the page, below those of flows."""

    @require_permission("flows.change_flow")
    def make_live(request: HttpRequest, flow_id: int, number: int) -> HttpResponse:
        with transaction.atomic():
            flows = Flow.objects.select_for_update() if request.method == "POST" else Flow.objects
            flow = get_object_or_404(flows, pk=flow_id)
            version = get_object_or_404(flow.versions, number=number)
            if request.method == "POST":
                if flow.live_version_id != version.pk:
                    flow_admin.log_change(request, flow, f"Made version {version.number} live.")
                flow.make_live(version)
                messages.success(
                    request, f"Version {number} is live: {describe_use(flow)} Runs in progress keep their version."
                )
                return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[flow.pk]))
        context = {**flow_admin.admin_site.each_context(request), "title": "Make live", "opts": flow_admin.opts}
        context["prediction"] = flow_admin.load_prediction(request, version)
        before, after = flow.live_version and flow.live_version.readable_spec, version.readable_spec
        if before and after:
            context["changes"] = compare_specs(before, after)
        return TemplateResponse(
            request, "admin/flows/flow/make_live.html", {**context, "flow": flow, "version": version}
        )

    view = flow_admin.admin_site.admin_view(make_live)
    return [path("<int:flow_id>/versions/<int:number>/make-live/", view, name="flows_flow_make_live")]
