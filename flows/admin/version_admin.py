"""Versions of flows in the admin: to read, and to choose the live one from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import localtime

from flows.admin.protection import ProtectedDeletionMixin, is_referred_to
from flows.engine.json_values import dump_json
from flows.models import FlowVersion

TIME_FORMAT = "j M Y, H:i:s T"
"""As the pages write it: ``21 Nov 2026, 02:14:09 UTC``."""

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[FlowVersion]
else:  # Django's classes are generic for type checkers only.
    _ModelAdmin = admin.ModelAdmin


@dataclass(frozen=True, slots=True)
class RunCount:
    """How many runs a version has. ``ended`` leaves out those that were cancelled."""

    total: int = 0
    ended: int = 0
    succeeded: int = 0

    @property
    def pass_rate(self) -> str:
        """The share of ended runs that succeeded: “83 %”; “—” if none has ended."""
        if not self.ended:
            return "—"
        percent = round(100 * self.succeeded / self.ended)
        # Nearly all are not all, and a few are not none.
        if percent == 100 and self.succeeded < self.ended:
            return "over 99 %"
        if percent == 0 and self.succeeded:
            return "under 1 %"
        return f"{percent} %"


class FlowVersionAdmin(ProtectedDeletionMixin, _ModelAdmin):
    """Read-only: a version never changes. One that is neither live nor has runs can be deleted."""

    list_display = ["__str__", "state", "saved", "created_by", "note", "short_digest"]
    list_filter = ("flow",)
    list_select_related = ("flow", "created_by")
    search_fields = ("flow__name", "flow__title", "digest")
    ordering = ("-pk",)
    actions = None
    fields = ["flow", "number", "state", "saved", "created_by", "note", "digest", "definition"]

    class Media:
        css = {"all": ["toolflow/admin/versions.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[FlowVersion]:
        """Versions with their flow and author."""
        return super().get_queryset(request).select_related("flow", "created_by")

    def count_runs(self, request: HttpRequest, versions: Sequence[FlowVersion]) -> Mapping[int, RunCount]:
        """The runs of each version, by its key; of none here: flows know nothing of runs."""
        return {}

    @admin.display(description="Saved")
    def saved(self, version: FlowVersion) -> str:
        """When it was made."""
        return date_format(localtime(version.created_at), TIME_FORMAT)

    @admin.display(description="State")
    def state(self, version: FlowVersion) -> str:
        """Whether new runs use the version."""
        return "Live" if _is_live(version) else "—"

    @admin.display(description="Digest")
    def short_digest(self, version: FlowVersion) -> str:
        """Enough of the digest to distinguish versions."""
        return version.digest[:10]

    @admin.display(description="Definition")
    def definition(self, version: FlowVersion) -> str:
        """The frozen spec as JSON."""
        return format_html('<pre class="code-block" tabindex="0">{}</pre>', dump_json(version.spec, indent=2))

    def find_obstacle(self, row: FlowVersion) -> str | None:
        """Live versions and those with runs stay."""
        if _is_live(row):
            return f"{row} is live. Make another version live first."
        if is_referred_to(row):
            return f"{row} has runs, which need its definition. It can't be deleted."
        return None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: versions are created by saving a flow."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: versions don't change."""
        return False

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The page of a version, with the ways to compare it, to restore it and to make it live."""
        version: FlowVersion | None = context["original"]
        if version is not None:
            context["title"] = f"{version.flow}, version {version.number}"
            context["subtitle"] = None
            context["may_restore"] = request.user.has_perm("flows.change_flow")
            context["has_other_live"] = version.flow.live_version_id is not None and not _is_live(version)
            if context["may_restore"] and not _is_live(version):
                context["make_live_url"] = reverse("admin:flows_flow_make_live", args=[version.flow_id, version.number])
        return super().render_change_form(request, context, *args, **kwargs)


def _is_live(version: FlowVersion) -> bool:
    return version.flow.live_version_id == version.pk
