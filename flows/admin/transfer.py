"""Flows as files: download and upload."""

from __future__ import annotations

import io
import zipfile
from functools import partial
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from flows.admin.access import require_permission
from flows.admin.posted_json import parse_number
from flows.admin.uploads import Upload, describe_import, find_obstacle
from flows.admin.version_rows import UNREADABLE, describe_use
from flows.engine.differences import compare_specs
from flows.flow_file import SCHEMA_PATH, render_flow
from flows.models import Flow, FlowVersion
from flows.portability import LoadPlan, announce_export, plan_load
from flows.providers import find_flow_warnings
from flows.publishing import NOTE_LENGTH, publish_flow

_YAML = "application/yaml; charset=utf-8"


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    see, change = require_permission("flows.view_flow"), require_permission("flows.change_flow")
    return [
        path("<int:flow_id>/download/", site.admin_view(see(partial(download_flow, site))), name="flows_flow_download"),
        path("download/", site.admin_view(see(partial(download_flows, site))), name="flows_flow_download_all"),
        path("flow.schema.json", site.admin_view(see(download_schema)), name="flows_flow_file_schema"),
        path("upload/", site.admin_view(change(partial(show_upload, site))), name="flows_flow_upload"),
    ]


# ---------------------------------------------------------------------------------------------------------------
# Out


def download_flow(site: AdminSite, request: HttpRequest, /, flow_id: int) -> HttpResponseBase:
    """The file of a flow's latest version, or of ``?version=N``."""
    flow = get_object_or_404(Flow, pk=flow_id)
    number = request.GET.get("version", "")
    version, problem = _fetch_version(flow, number)
    spec = version.readable_spec if version is not None else None
    if version is not None and spec is None:
        problem = UNREADABLE.format(version.number)
    if spec is None:
        messages.error(request, problem)
        return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[flow.pk]))
    assert version is not None, "It is a version’s."
    if request.method != "HEAD":
        announce_export([version])
    name = f"{spec.name}-v{version.number}.yaml" if number else f"{spec.name}.yaml"
    return FileResponse(io.BytesIO(render_flow(spec).encode()), as_attachment=True, filename=name, content_type=_YAML)


def _fetch_version(flow: Flow, number: str) -> tuple[FlowVersion | None, str]:
    """A version, the latest one if no number is named; if there is none, a sentence that says so."""
    if number and parse_number(number) is None:
        return None, f"“{number[:40]}” is not a version number."
    versions = flow.versions.filter(number=int(number)) if number else flow.versions.all()
    missing = f"has no version {int(number)}" if number else "has no version yet: save it first"
    return versions.first(), f"“{flow}” {missing}."


def download_flows(site: AdminSite, request: HttpRequest, /) -> HttpResponseBase:
    """An archive with the files of all flows that are not archived, each of its latest version."""
    versions = FlowVersion.objects.filter(flow=OuterRef("pk")).order_by("-number")
    flows = Flow.objects.filter(is_archived=False).annotate(latest=Subquery(versions.values("pk")[:1]))
    latest = FlowVersion.objects.filter(pk__in=flows.values("latest")).select_related("flow")
    archive = io.BytesIO()
    written, skipped = [], []
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        for version in latest.iterator(50):
            spec = version.readable_spec
            if spec is None:
                skipped.append(UNREADABLE.format(f"{version.number} of “{version.flow}”"))
                continue
            files.writestr(f"{spec.name}.yaml", render_flow(spec))
            written.append(version)
        if SCHEMA_PATH.exists():
            files.writestr(SCHEMA_PATH.name, SCHEMA_PATH.read_text(encoding="utf-8"))
    if skipped or not written:
        for sentence in skipped or ["No flows to download."]:
            messages.error(request, sentence)
        return HttpResponseRedirect(reverse("admin:flows_flow_changelist"))
    if request.method != "HEAD":
        announce_export(written)
    archive.seek(0)
    return FileResponse(archive, as_attachment=True, filename="flows.zip", content_type="application/zip")


def download_schema(request: HttpRequest, /) -> HttpResponseBase:
    """The JSON Schema of flow files, which editors search for beside them."""
    if not SCHEMA_PATH.exists():
        raise Http404("This installation has no copy of docs/flow.schema.json.")
    return FileResponse(SCHEMA_PATH.open("rb"), as_attachment=True, content_type="application/schema+json")


# ---------------------------------------------------------------------------------------------------------------
# In


def show_upload(site: AdminSite, request: HttpRequest, /) -> HttpResponse:
    """Take a file or text, show what it would do or what is wrong with it, and do it."""
    upload = Upload()
    context: dict[str, Any] = {}
    if request.method == "POST":
        upload = Upload.read(request)
        is_confirmed = "_import" in request.POST or "_make_live" in request.POST
        if upload.spec is not None and is_confirmed:
            context = _import(site, request, upload)
            if "version" in context:
                return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[context["version"].flow_id]))
        if upload.spec is not None and "_edit" not in request.POST:
            plan = plan_load(upload.spec)
            return _render(site, request, "import_preview", upload, {**_describe_plan(request, plan), **context})
    return _render(site, request, "import", upload, context)


def _import(site: AdminSite, request: HttpRequest, upload: Upload) -> dict[str, Any]:
    """Load the flow. Gives its ``version``, or what the preview has to say."""
    assert upload.spec is not None
    if upload.note_error:
        return {}
    with transaction.atomic():
        # A save of the same flow by another request waits for the answer.
        flow = Flow.objects.select_for_update().filter(name=upload.spec.name).first()
        plan = plan_load(upload.spec)
        if find_obstacle(request, plan):
            return {}
        if request.POST.get("latest") != _name_latest(plan):
            return {"is_outdated": True}
        by = request.user if request.user.is_authenticated else None
        version = publish_flow(spec=upload.spec, by=by, note=upload.note)
        if "_make_live" in request.POST and version.flow.live_version_id != version.pk:
            version.flow.make_live(version)
    admin = site.get_model_admin(Flow)
    said = describe_import(upload, version, plan)
    if flow is None:
        admin.log_addition(request, version.flow, said)
    else:
        admin.log_change(request, version.flow, said)
    live = version.flow.live_version
    if live is not None and live.pk == version.pk:
        messages.success(request, f"{said} It is live: {describe_use(version.flow)}")
    else:
        messages.success(request, f"{said} New runs still use {f'version {live.number}' if live else 'no version'}.")
    return {"version": version}


def _describe_plan(request: HttpRequest, plan: LoadPlan) -> dict[str, Any]:
    obstacle = find_obstacle(request, plan)
    before = plan.latest.readable_spec if plan.latest is not None and not obstacle else None
    return {
        "plan": plan,
        "obstacle": obstacle,
        "latest": _name_latest(plan),
        "changes": compare_specs(before, plan.spec) if before is not None and not plan.is_unchanged else None,
        "warnings": []
        if plan.is_unchanged
        else dict.fromkeys(warning.message for warning in find_flow_warnings(plan.spec)),
    }


def _name_latest(plan: LoadPlan) -> str:
    return str(plan.latest.number) if plan.latest is not None else "none"


def _render(
    site: AdminSite, request: HttpRequest, page: str, upload: Upload, context: dict[str, Any]
) -> TemplateResponse:
    whole = {
        **site.each_context(request),
        "title": "Upload a flow file",
        "opts": Flow._meta,
        "upload": upload,
        "note_length": NOTE_LENGTH,
        "has_schema": SCHEMA_PATH.exists(),
        **context,
    }
    return TemplateResponse(request, f"admin/flows/flow/{page}.html", whole)
