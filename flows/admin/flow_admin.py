"""The flow editor: one page for a flow, its steps and their audits. What can't run is not saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.db import IntegrityError, connection
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.formats import date_format
from django.utils.timezone import localtime
from nested_admin.nested import NestedModelAdmin

from flows.admin import archiving, feedback, live_page, plugin_page, schema_maker, transfer, version_pages
from flows.admin.conflicts import list_limit_changes
from flows.admin.draft import FlowDraft
from flows.admin.edited_flow import EditedFlowForm
from flows.admin.formsets import forget_deleted_flow, forget_deleted_rows
from flows.admin.inlines import StepInline
from flows.admin.large_pages import PartFormset, PostedPage
from flows.admin.protection import ProtectedDeletionMixin, is_referred_to
from flows.admin.save_report import SaveReport
from flows.admin.version_admin import TIME_FORMAT
from flows.engine.spec_check import find_price_warnings
from flows.models import Flow, FlowVersion, StepDefinition
from flows.plugin_use import find_missing_names
from flows.providers import build_providers, find_flow_warnings
from flows.publishing import publish_flow, raise_revision

VERSIONS_SHOWN = 10
"""The latest versions, on the page of their flow; a link leads to all of them."""


class FlowAdmin(ProtectedDeletionMixin, NestedModelAdmin):  # type: ignore[misc]  # nested_admin ships no types
    """The editor of flows."""

    form = EditedFlowForm
    inlines = [StepInline]
    inline_admin_formset_helper_cls = PartFormset
    prepopulated_fields = {"name": ["title"]}
    fieldsets = [
        (None, {"fields": [("title", "name"), "description"]}),
        ("What goes in?", {"fields": ["input_schema"]}),
        (
            "Model for all steps",
            {
                "fields": [("model", "temperature", "max_tokens"), ("reasoning_effort", "service_tier")],
                "classes": ["collapse"],
            },
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
        ("Redaction", {"fields": ["redact"], "classes": ["collapse"]}),
        ("How long runs are kept", {"fields": [("keep_days", "keep_outputs_days")], "classes": ["collapse"]}),
    ]
    list_display = ("title", "name", "live", "latest", "step_count", "saved", "state", "plugins")
    list_filter = (archiving.ArchiveFilter,)
    search_fields = ("title", "name", "description")
    actions = None
    deletion_words = "Deleted with all its versions."

    class Media:
        css = {
            "all": [
                "toolflow/admin/flow_editor.css",
                "toolflow/admin/editor/fields.css",
                "toolflow/admin/editor/cards.css",
                "toolflow/admin/editor/card_changes.css",
                "toolflow/admin/editor/feedback.css",
                "toolflow/admin/editor/schema_maker.css",
                "toolflow/admin/editor/try_step.css",
            ]
        }
        js = [
            "toolflow/admin/editor/field_tools.js",
            "toolflow/admin/editor/cards.js",
            "toolflow/admin/editor/nesting.js",
            "toolflow/admin/editor/step_numbers.js",
            "toolflow/admin/editor/folds.js",
            "toolflow/admin/editor/add.js",
            "toolflow/admin/editor/move.js",
            "toolflow/admin/editor/remove.js",
            "toolflow/admin/editor/unsaved.js",
            "toolflow/admin/editor/send.js",
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
        flow: Flow | None = super().get_object(request, object_id, from_field or None)
        if flow is not None and request.method == "POST" and connection.in_atomic_block:
            try:
                flow.refresh_from_db(from_queryset=Flow.objects.select_for_update())
            except Flow.DoesNotExist:  # Whoever had the turn before deleted it.
                return None
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

    @admin.display(description="Plug-ins")
    def plugins(self, flow: Flow) -> str | None:
        """Whether the live version names plug-ins that nobody registers."""
        return plugin_page.mark_missing(flow)

    @admin.display(description="Steps", ordering="step_count")
    def step_count(self, flow: Any) -> int:
        """How many steps the flow has."""
        return flow.step_count or 0  # annotated

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the user may add flows and change them: a new flow is one to be changed from its first save on."""
        return bool(super().has_add_permission(request) and self.has_change_permission(request))

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The editor. What was typed into the page of a flow that is gone comes back as a new flow, not yet saved."""
        is_old_page = request.method == "POST" and object_id is not None and self.has_add_permission(request)
        if is_old_page and self.get_object(request, unquote(object_id or "")) is None:
            object_id, form_url = None, reverse("admin:flows_flow_add")
            request.POST = forget_deleted_flow(request.POST)  # type: ignore[assignment]  # views may set it
        show: Callable[..., HttpResponse] = super().changeform_view
        try:
            return show(request, object_id, form_url, extra_context)
        except IntegrityError:
            # Somebody took the name at the same moment. Now it is taken, and the form says so.
            return show(request, object_id, form_url, extra_context)

    def _create_formsets(self, request: HttpRequest, obj: Any, change: bool) -> Any:
        if request.method == "POST":
            page = PostedPage.of(forget_deleted_rows(request.POST))
            request.POST = page  # type: ignore[assignment]  # views may set it
        formsets, inlines = super()._create_formsets(request, obj, change)
        if request.method == "POST":
            # `obj` is the instance of the form that is validated next, and all that the two have in common.
            obj.step_formset = formsets[0]
        return formsets, inlines

    def save_model(self, request: HttpRequest, obj: Flow, form: Any, change: bool) -> None:
        """Store the flow's own fields, if any of them changed."""
        if not change or set(form._meta.fields) & set(form.changed_data):
            obj.save()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Store steps and audits, publish what they make, and tell what became of it."""
        flow: Flow = form.instance
        note = form.cleaned_data["note"]
        previous = flow.versions.first()
        has_other_rows = form.draft.save(flow)
        version = publish_flow(flow=flow, by=request.user if request.user.is_authenticated else None, note=note)
        limits = list_limit_changes(form) if change else []
        if version == previous and (limits or has_other_rows):
            raise_revision(flow=flow)
        make_live = "_make_live" in request.POST and flow.live_version_id != version.pk
        if make_live:
            flow.make_live(version)
        form.report = SaveReport(flow, version, version != previous, limits, make_live, note)
        messages.success(request, form.report.tell())
        if lost_note := form.report.tell_lost_note():
            messages.warning(request, lost_note)
        spec = version.flow_spec
        doubts = [doubt.message for doubt in find_flow_warnings(spec)]
        if flow.total_cost_budget is not None:
            doubts += find_price_warnings(spec, settings.TOOLFLOW_MODEL, build_providers())
        for doubt in dict.fromkeys(doubts):
            messages.warning(request, doubt)

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> str:
        """What the log says: the version holds the rest."""
        report: SaveReport = form.report
        return report.write_log()

    def log_change(self, request: HttpRequest, obj: Flow, message: Any) -> Any:
        """Log a change; a save that changed nothing is none."""
        return super().log_change(request, obj, message) if message else []

    def response_add(self, request: HttpRequest, obj: Flow, post_url_continue: str | None = None) -> HttpResponse:
        """Stay with the flow; what there is to tell was told while it was published."""
        return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[obj.pk]))

    def response_change(self, request: HttpRequest, obj: Flow) -> HttpResponse:
        """Stay with the flow."""
        return self.response_add(request, obj)

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        messages.warning(request, "This flow does not exist. It may have been deleted.")
        may_see = self.has_view_or_change_permission(request)
        return HttpResponseRedirect(reverse("admin:flows_flow_changelist" if may_see else "admin:index"))

    def find_obstacle(self, row: Flow) -> str | None:
        """Flows with runs stay."""
        if is_referred_to(row):
            return f"“{row}” has runs, so it can't be deleted. Archive the flow instead."
        return None

    def render_delete_form(self, request: HttpRequest, context: Any) -> HttpResponse:
        """The page that asks; where the flow has to stay, with a way to archive it."""
        flow: Flow = context["object"]
        if self.has_change_permission(request) and not flow.is_archived:
            context["archive_url"] = reverse("admin:flows_flow_archive", args=[flow.pk])
        page: HttpResponse = super().render_delete_form(request, context)
        return page

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The editor, with all errors of the page listed at its top and the flow's versions at its end."""
        form = context["adminform"].form
        if form.is_bound and form.draft is not None:
            context["form_errors"] = list(form.draft.list_errors())
            context["conflict"] = form.conflict
        context["most_fields"] = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
        flow = context["original"]
        if flow is not None:
            version_admin = self.admin_site.get_model_admin(FlowVersion)
            versions = version_admin.get_queryset(request).filter(flow=flow).order_by("-number")
            context["versions"] = versions[: VERSIONS_SHOWN + 1]
            context["versions_shown"] = VERSIONS_SHOWN
            context["can_see_versions"] = version_admin.has_view_permission(request)
            context["missing_plugins"] = find_missing_names(flow)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, and those of the editor's other pages."""
        pages = [
            *archiving.list_urls(self),
            *live_page.list_urls(self),
            *feedback.list_urls(self.admin_site),
            *schema_maker.list_urls(self.admin_site),
            *version_pages.list_urls(self.admin_site),
            *transfer.list_urls(self.admin_site),
            *plugin_page.list_urls(self.admin_site),
        ]
        return [*pages, *super().get_urls()]

    def read_posted(self, request: HttpRequest, flow: Flow | None) -> FlowDraft:
        """What a posted editor page makes of ``flow``, or of a new one: validated, nothing stored.

        ``draft.spec`` is None if the page is beyond reading; ``draft.list_errors()`` then says why.
        """
        fields = flatten_fieldsets(self.get_fieldsets(request, flow))
        form_class = self.get_form(request, flow, change=flow is not None, fields=fields)
        form = form_class(request.POST, instance=flow)
        form.is_stored = False
        self._create_formsets(request, form.instance, change=flow is not None)
        form.is_valid()
        draft: FlowDraft = form.draft
        return draft
