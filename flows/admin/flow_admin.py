"""Flows in the admin: their list, and the pages that are about one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.formats import date_format
from django.utils.timezone import localtime

from flows.admin import (
    archiving,
    document_check,
    editor_page,
    language,
    live_page,
    plugin_page,
    schema_maker,
    settings_page,
    transfer,
    version_pages,
)
from flows.admin.posted_json import PostedError
from flows.admin.protection import ProtectedDeletionMixin, is_referred_to
from flows.admin.version_admin import TIME_FORMAT
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Flow]
else:  # Django's class is generic for type checkers only.
    _ModelAdmin = admin.ModelAdmin


class FlowAdmin(ProtectedDeletionMixin, _ModelAdmin):
    """The list of flows, and their editor."""

    list_display = ("title", "name", "live", "latest", "step_count", "saved", "state", "plugins")
    list_filter = (archiving.ArchiveFilter,)
    search_fields = ("title", "name", "description")
    actions = None
    deletion_words = "Deleted with all its versions."

    def load_prediction(self, request: HttpRequest, version: FlowVersion) -> Any:
        """What a version would have changed in earlier runs, for the page that makes it live: nothing is known here."""
        return None

    def backtest_draft(self, request: HttpRequest, flow: Flow, spec: FlowSpec) -> str:
        """Ask what a definition would have changed in earlier runs; gives the address of the answer.

        Raises ``PostedError``, as always where no runs are known, and ``SpecError``.
        """
        raise PostedError("No runs are known here.")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Flow]:
        """Flows, each with its live version, and number and definition of its latest one."""
        versions = FlowVersion.objects.filter(flow=OuterRef("pk"))
        latest = {f"latest_{name}": Subquery(versions.values(name)[:1]) for name in ("number", "spec")}
        return super().get_queryset(request).select_related("live_version").annotate(**latest)

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
        """Whether the live version names plug-ins that are not registered."""
        return plugin_page.mark_missing(flow)

    @admin.display(description="Steps")
    def step_count(self, flow: Any) -> int:
        """How many steps the latest version has."""
        return len((flow.latest_spec or {}).get("steps", ()))  # annotated

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the user may add flows and change them: a new flow is one to be changed from its first save on."""
        return bool(super().has_add_permission(request) and self.has_change_permission(request))

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The editor. What was typed into the page of a flow that is gone comes back as a new flow, not yet saved."""
        if object_id is None:
            if not self.has_add_permission(request):
                raise PermissionDenied("You may not add flows: your account lacks “flows.add_flow”.")
            return editor_page.show_editor(self, request, None)
        flow = self.get_object(request, unquote(object_id))
        if not self.has_view_or_change_permission(request, flow):
            raise PermissionDenied("You may not see flows: your account lacks “flows.view_flow”.")
        if flow is not None:
            return editor_page.show_editor(self, request, flow)
        if request.method == "POST" and self.has_add_permission(request):
            return editor_page.show_editor(self, request, None, is_gone=True)
        return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)

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
        return super().render_delete_form(request, context)

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, and those of the editor's other pages."""
        pages = [
            *archiving.list_urls(self),
            *live_page.list_urls(self),
            *document_check.list_urls(self.admin_site),
            *language.list_urls(self.admin_site),
            *schema_maker.list_urls(self.admin_site),
            *settings_page.list_urls(self),
            *version_pages.list_urls(self.admin_site),
            *transfer.list_urls(self.admin_site),
            *plugin_page.list_urls(self.admin_site),
        ]
        return [*pages, *super().get_urls()]
