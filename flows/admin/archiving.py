"""A flow that is no longer wanted is archived: no new runs, and its history stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from flows.admin.access import require_permission
from flows.models import Flow

if TYPE_CHECKING:
    from flows.admin.flow_admin import FlowAdmin


class ArchiveFilter(admin.SimpleListFilter):
    """Which flows a list shows; the active ones by default."""

    title = "state"
    parameter_name = "is_archived__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """What can be chosen; addresses are those of Django's own filter of the field."""
        return [("0", "Active"), ("1", "Archived"), ("all", "All")]

    def value(self) -> str:
        """What is chosen."""
        return super().value() or "0"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Flow]) -> QuerySet[Flow]:
        """The flows to show; something that can't be chosen hides none."""
        return queryset.filter(is_archived=self.value() == "1") if self.value() in ("0", "1") else queryset

    def choices(self, changelist: Any) -> Iterator[Any]:
        """The choices, without the one for no filter that every filter has."""
        yield from list(super().choices(changelist))[1:]


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""

    @require_permission("flows.change_flow")
    def archive(request: HttpRequest, flow_id: int) -> HttpResponse:
        """Ask whether a flow should be archived, and archive it."""
        if request.method == "POST":
            return _set_archived(flow_admin, request, flow_id, is_archived=True)
        flow = get_object_or_404(Flow, pk=flow_id)
        context = {**flow_admin.admin_site.each_context(request), "title": "Archive", "flow": flow}
        return TemplateResponse(request, "admin/flows/flow/archive.html", {**context, "opts": flow_admin.opts})

    @require_permission("flows.change_flow")
    def unarchive(request: HttpRequest, flow_id: int) -> HttpResponse:
        """Unarchive a flow by POST; a GET leads to the flow."""
        if request.method == "POST":
            return _set_archived(flow_admin, request, flow_id, is_archived=False)
        return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[flow_id]))

    wrap = flow_admin.admin_site.admin_view
    return [
        path("<int:flow_id>/archive/", wrap(archive), name="flows_flow_archive"),
        path("<int:flow_id>/take-out/", wrap(unarchive), name="flows_flow_take_out"),
    ]


def _set_archived(flow_admin: FlowAdmin, request: HttpRequest, flow_id: int, *, is_archived: bool) -> HttpResponse:
    with transaction.atomic():
        flow = get_object_or_404(Flow.objects.select_for_update(), pk=flow_id)
        if message := flow.set_archived(is_archived):
            flow_admin.log_change(request, flow, message)
    if is_archived:
        messages.success(request, f"“{flow}” is archived: no new runs can be started. Runs in progress continue.")
    else:
        messages.success(request, f"“{flow}” is unarchived.")
    return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[flow.pk]))
