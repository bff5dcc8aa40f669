"""What the pages about versions of a flow have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from flows.admin.version_admin import FlowVersionAdmin, RunCount
from flows.engine.differences import compare_specs, summarise_changes
from flows.models import Flow, FlowVersion

UNREADABLE = "The definition of version {} can't be read by this version of ToolFlow."


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version as pages show it. ``runs`` is None where nothing is known of runs."""

    version: FlowVersion
    is_live: bool
    runs: RunCount | None
    summary: str
    """What it changed, if that was asked for."""


def list_versions(flow: Flow) -> QuerySet[FlowVersion]:
    """The versions of a flow with their authors, the newest first."""
    return FlowVersion.objects.filter(flow=flow).select_related("created_by").order_by("-number")


def make_rows(
    site: AdminSite,
    request: HttpRequest,
    flow: Flow,
    versions: Sequence[FlowVersion],
    summaries: Mapping[int, str] | None = None,
) -> list[VersionRow]:
    """The rows of versions of a flow, with their runs counted for those who may see runs."""
    counts = find_version_admin(site).count_runs(request, versions)
    return [
        VersionRow(
            version=version,
            is_live=version.pk == flow.live_version_id,
            runs=counts.get(version.pk),
            summary=(summaries or {}).get(version.pk, ""),
        )
        for version in versions
    ]


def summarise_versions(versions: Sequence[FlowVersion]) -> dict[int, str]:
    """What each version changed against the next one in the list, by its key; the last one has nothing before it."""
    specs = [version.readable_spec for version in versions]
    summaries = {}
    for version, spec, before in zip(versions, specs, [*specs, None][1:], strict=True):
        if spec is None:
            summaries[version.pk] = UNREADABLE.format(version.number)
        elif before is not None:
            summaries[version.pk] = summarise_changes(compare_specs(before, spec))
        else:
            summaries[version.pk] = "The first version" if version.number == 1 else "—"
    return summaries


def describe_use(flow: Flow) -> str:
    """What a version that is live means for new runs."""
    return "no new runs can be started, since the flow is archived." if flow.is_archived else "new runs use it."


def describe_new_version(said: str, version: FlowVersion) -> str:
    """What was done with the latest version, ``said``, and whether new runs use it; HTML if that holds a link."""
    flow = version.flow
    if flow.live_version_id == version.pk:
        return f"{said}, which is live: {describe_use(flow)}"
    return format_html(
        '{}. New runs still use {}. <a href="{}">Make version {} live</a>',
        said,
        f"version {flow.live_version.number}" if flow.live_version else "no version",
        reverse("admin:flows_flow_make_live", args=[flow.pk, version.number]),
        version.number,
    )


def find_version_admin(site: AdminSite) -> FlowVersionAdmin:
    """The registered admin of versions, which knows what the installation knows of their runs."""
    found = site.get_model_admin(FlowVersion)
    assert isinstance(found, FlowVersionAdmin)
    return found


def render_page(
    site: AdminSite,
    request: HttpRequest,
    flow: Flow,
    page: str,
    *,
    title: str,
    context: Mapping[str, Any],
    status: int = 200,
) -> HttpResponse:
    """One of the pages ``templates/admin/flows/flow/<page>.html``."""
    whole = {
        **site.each_context(request),
        "title": title,
        "flow": flow,
        "live": flow.live_version,
        "opts": Flow._meta,
        "may_change": request.user.has_perm("flows.change_flow"),
        "may_see_definitions": find_version_admin(site).has_view_permission(request),
        **context,
    }
    return TemplateResponse(request, f"admin/flows/flow/{page}.html", whole, status=status)
