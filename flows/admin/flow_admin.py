"""The flow editor: one page for a flow, its steps and their audits. What can't run is not saved."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import localtime
from nested_admin.nested import NestedModelAdmin

from flows.admin import feedback, plugin_page, schema_maker, transfer, version_pages
from flows.admin.draft import EditedFlowForm, FlowDraft
from flows.admin.inlines import StepInline
from flows.admin.protection import ProtectedDeletionMixin, is_referred_to
from flows.admin.version_admin import TIME_FORMAT
from flows.engine.spec_check import find_doubts, find_price_doubts
from flows.forms import OPERATIONAL_FIELDS
from flows.models import Flow, FlowVersion, StepDefinition
from flows.publishing import publish_flow

VERSIONS_SHOWN = 10
"""The latest versions, on the page of their flow; a link leads to all of them."""


class FlowAdmin(ProtectedDeletionMixin, NestedModelAdmin):  # type: ignore[misc]  # nested_admin ships no types
    """The editor of flows."""

    form = EditedFlowForm
    inlines = [StepInline]
    prepopulated_fields = {"name": ["title"]}
    fieldsets = [
        (None, {"fields": [("title", "name"), "description"]}),
        ("What goes in?", {"fields": ["input_schema"]}),
        (
            "Model for all steps, archive",
            {"fields": [("model", "temperature", "max_tokens"), "is_archived"], "classes": ["collapse"]},
        ),
        (
            "Limits",
            {
                "fields": [
                    ("token_budget", "cost_budget", "time_limit"),
                    ("total_token_budget", "total_cost_budget", "budget_period"),
                    "max_runs_in_flight",
                ],
                "classes": ["collapse"],
            },
        ),
    ]
    list_display = ("title", "name", "live", "latest", "step_count", "saved", "state")
    list_filter = ("is_archived",)
    search_fields = ("title", "name", "description")
    actions = None

    class Media:
        css = {
            "all": [
                "toolflow/admin/flow_editor.css",
                "toolflow/admin/editor/feedback.css",
                "toolflow/admin/editor/schema_maker.css",
                "toolflow/admin/editor/try_step.css",
            ]
        }
        js = [
            "toolflow/admin/flow_editor.js",
            "toolflow/admin/editor/field_tools.js",
            "toolflow/admin/editor/feedback.js",
            "toolflow/admin/editor/schema_maker.js",
            "toolflow/admin/editor/try_step.js",
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Flow]:
        """Flows, each with its live version, the number of its latest one and how many steps it has."""
        flows: QuerySet[Flow] = super().get_queryset(request)
        steps = StepDefinition.objects.filter(flow=OuterRef("pk")).order_by().values("flow")
        return flows.select_related("live_version").annotate(
            step_count=Subquery(steps.annotate(count=Count("pk")).values("count")),
            latest_number=Subquery(FlowVersion.objects.filter(flow=OuterRef("pk")).values("number")[:1]),
        )

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Flow | None:
        """One flow. While it is being saved or deleted others who want to do the same wait for their turn."""
        flow: Flow | None = super().get_object(request, object_id, from_field)
        if flow is not None and request.method == "POST" and connection.in_atomic_block:
            flow.refresh_from_db(from_queryset=Flow.objects.select_for_update())
        return flow

    @admin.display(description="Live version", ordering="live_version__number")
    def live(self, flow: Flow) -> int | None:
        """The number of the version that new runs use."""
        return flow.live_version.number if flow.live_version else None

    @admin.display(description="Latest version", ordering="latest_number")
    def latest(self, flow: Any) -> int | None:
        """The number of the latest version."""
        return flow.latest_number  # type: ignore[no-any-return]  # annotated

    @admin.display(description="Saved", ordering="updated_at")
    def saved(self, flow: Flow) -> str:
        """When it was saved last."""
        return date_format(localtime(flow.updated_at), TIME_FORMAT)

    @admin.display(description="State", ordering="is_archived")
    def state(self, flow: Flow) -> str:
        """Whether runs can be started."""
        return "Archived" if flow.is_archived else "Active" if flow.live_version else "Never published"

    @admin.display(description="Steps", ordering="step_count")
    def step_count(self, flow: Any) -> int:
        """How many steps the flow has."""
        return flow.step_count or 0  # annotated

    def _create_formsets(self, request: HttpRequest, obj: Any, change: bool) -> Any:
        formsets, inlines = super()._create_formsets(request, obj, change)
        if request.method == "POST":
            # `obj` is the instance of the form that is validated next, and all that the two have in common.
            obj.step_formset = formsets[0]
        return formsets, inlines

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Store steps and audits, and publish what they make."""
        flow: Flow = form.instance
        form.draft.save(flow)
        previous = flow.versions.first()
        version = publish_flow(flow=flow, by=request.user if request.user.is_authenticated else None)
        if "_make_live" in request.POST and flow.live_version_id != version.pk:
            flow.make_live(version)
        if version != previous:
            saved = f"Saved as version {version.number}"
        elif set(OPERATIONAL_FIELDS) & set(form.changed_data):
            saved = f"Saved. The definition is still that of version {version.number}"
        else:
            saved = f"Nothing changed since version {version.number}"
        messages.success(request, self._tell_saved(saved, flow, version))
        spec, model = version.flow_spec, settings.TOOLFLOW_MODEL
        doubts = [doubt.message for doubt in find_doubts(spec, default_model=model)]
        if flow.total_cost_budget is not None:
            doubts += find_price_doubts(spec, default_model=model)
        for doubt in dict.fromkeys(doubts):
            messages.warning(request, doubt)

    def _tell_saved(self, saved: str, flow: Flow, version: FlowVersion) -> str:
        if flow.live_version_id == version.pk:
            return f"{saved}, which is live: new runs use it."
        return format_html(
            '{}. New runs still use version {}. <a href="{}">Make version {} live</a>',
            saved,
            flow.live_version.number if flow.live_version else None,
            reverse("admin:flows_flow_make_live", args=[flow.pk, version.number]),
            version.number,
        )

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> str:
        """What the log says: the version holds the rest."""
        latest = form.instance.versions.first()
        return f"Saved as version {latest.number}."

    def response_add(self, request: HttpRequest, obj: Flow, post_url_continue: str | None = None) -> HttpResponse:
        """Stay with the flow; what there is to tell was told while it was published."""
        return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[obj.pk]))

    def response_change(self, request: HttpRequest, obj: Flow) -> HttpResponse:
        """Stay with the flow."""
        return self.response_add(request, obj)

    def find_obstacle(self, row: Flow) -> str | None:
        """Flows with runs stay."""
        if is_referred_to(row):
            return f"“{row}” has runs, and history is kept. Archive the flow instead: tick “Archived” and save it."
        return None

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The editor, with all errors of the page listed at its top and the flow's versions at its end."""
        form = context["adminform"].form
        if form.is_bound and form.draft is not None:
            context["form_errors"] = list(form.draft.list_errors())
        flow = context["original"]
        if flow is not None:
            version_admin = self.admin_site.get_model_admin(FlowVersion)
            versions = version_admin.get_queryset(request).filter(flow=flow).order_by("-number")
            context["versions"] = versions[: VERSIONS_SHOWN + 1]
            context["versions_shown"] = VERSIONS_SHOWN
            context["can_see_versions"] = version_admin.has_view_permission(request)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, and those of the editor's other pages."""
        view = self.admin_site.admin_view(self.make_live_view)
        address = path("<int:flow_id>/versions/<int:number>/make-live/", view, name="flows_flow_make_live")
        pages = [
            *feedback.list_urls(self.admin_site),
            *schema_maker.list_urls(self.admin_site),
            *version_pages.list_urls(self.admin_site),
            *transfer.list_urls(self.admin_site),
            *plugin_page.list_urls(self.admin_site),
        ]
        return [address, *pages, *super().get_urls()]

    def read_posted(self, request: HttpRequest, flow: Flow | None) -> FlowDraft:
        """What a posted editor page makes of ``flow``, or of a new one: validated, nothing stored.

        ``draft.spec`` is None if the page is beyond reading; ``draft.list_errors()`` then says why.
        """
        fields = flatten_fieldsets(self.get_fieldsets(request, flow))
        form_class = self.get_form(request, flow, change=flow is not None, fields=fields)
        form = form_class(request.POST, instance=flow)
        self._create_formsets(request, form.instance, change=flow is not None)
        form.is_valid()
        draft: FlowDraft = form.draft
        return draft

    def make_live_view(self, request: HttpRequest, flow_id: int, number: int) -> HttpResponse:
        """Ask whether new runs should use a version, and let them."""
        if not self.has_change_permission(request):
            raise PermissionDenied("You may not choose live versions: your account lacks “flows.change_flow”.")
        with transaction.atomic():
            flows = Flow.objects.select_for_update() if request.method == "POST" else Flow.objects
            flow = get_object_or_404(flows, pk=flow_id)
            version = get_object_or_404(flow.versions, number=number)
            if request.method == "POST":
                flow.make_live(version)
                self.log_change(request, flow, f"Made version {number} live.")
                messages.success(request, f"Version {number} is live: new runs use it. Runs under way keep theirs.")
                return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[flow.pk]))
        context = {**self.admin_site.each_context(request), "title": "Make live", "flow": flow, "version": version}
        return TemplateResponse(request, "admin/flows/flow/make_live.html", {**context, "opts": self.opts})
