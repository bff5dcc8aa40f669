"""The versions of flows: list, read, compare and delete them, and make one live."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from django.contrib.admin.models import DELETION
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from pydantic import BeforeValidator, Field
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from flows.admin.protection import is_referred_to
from flows.engine.differences import ChangeKind, Subject, compare_specs, summarise_changes
from flows.engine.errors import Problem
from flows.flow_file import render_flow
from flows.models import Flow as FlowRow
from flows.models import FlowVersion as VersionRow
from flows.portability import announce_export
from runs.api.access import CHANGE_FLOWS, DELETE_VERSIONS, READ_FLOWS
from runs.api.base import DELETED, IF_MATCH, ApiView, operation
from runs.api.flow_documents import (
    YAML,
    Flow,
    FlowDocument,
    FlowVersion,
    WholeVersion,
    build_version,
    load_version,
    read_definition,
)
from runs.api.flows import change_flow, log_change
from runs.api.media_types import JsonRenderer
from runs.api.paging import build_page, fetch_rows
from runs.api.problems import Conflict, InvalidQuery
from runs.documents.base import Answer, Nothing, Omitted, Page, Query, RowPaging


class FieldChange(Answer):
    """A field that differs."""

    field: str = Field(description="Its name in the document.")
    kind: ChangeKind = Field(description="How it changed.")
    old: Any | None = Field(description="The old value; null where nothing was set.")
    new: Any | None = Field(description="The new value; null where nothing is set.")
    notes: list[str] = Field(description="The difference in words.")


class AuditChange(Answer):
    """What became of an audit."""

    subject: Subject = Field(description="What this is about.")
    kind: ChangeKind = Field(description="How it changed.")
    name: str = Field(description="The new name, or the old one of what was removed.")
    place: Annotated[int | None, BeforeValidator(lambda place: place or None)] = Field(
        description="Counted from 1: the new place, or the old one of what was removed."
    )
    notes: list[str] = Field(description="Changes other than fields, such as moves.")
    fields: list[FieldChange] = Field(description="The fields that differ.")


class FlowChange(AuditChange):
    """What became of the flow’s own fields, or of a step."""

    audits: list[AuditChange] = Field(description="How the step’s audits changed.")


class FlowDifference(Answer):
    """The difference of two versions of a flow."""

    flow: str = Field(description="The name of the flow.")
    old: int = Field(serialization_alias="from", description="The number of the old version.")
    new: int = Field(serialization_alias="to", description="The number of the new version.")
    summary: str = Field(description="All changes in one short line.")
    changes: list[FlowChange] = Field(description="Empty if both have the same digest.")


class VersionFormat(Query):
    """How a version is read."""

    format: Literal["json", "yaml"] | Omitted = Field(None, description="Overrides the header `Accept`.")


class ComparedVersion(Query):
    """The version to compare with."""

    against: Annotated[str, Field(pattern=r"^([0-9]{1,9}|live)$")] | Omitted = Field(
        None, description="The number of the version to compare with, or `live`; without it the version before."
    )


_PLACE = {"type": "integer", "minimum": 1}

_operation = partial(operation, tag="Flows")
_FLOWS = FlowRow.objects.only("name", "live_version")
NUMBER = OpenApiParameter("number", _PLACE, OpenApiParameter.PATH, description="The number of the version.")


class FlowVersions(ApiView):
    """Versions of flows."""

    @_operation("GET flows/<slug:name>/versions", "List the versions of a flow", READ_FLOWS)
    def list_flow_versions(self, request: Request, name: str, query: RowPaging) -> Page[FlowVersion]:
        """The newest first, without definitions."""
        flow = get_object_or_404(_FLOWS, name=name)
        versions: Any = flow.versions
        rows = versions.values("pk", "number", "digest", "note", "created_at", "created_by__username")
        page = fetch_rows(rows, query, columns=["number"], is_descending=True)
        items = [{**row, "flow": name, "is_live": row["pk"] == flow.live_version_id} for row in page.rows]
        return build_page(Page[FlowVersion], request, page, items)

    @_operation(
        "GET flows/<slug:name>/versions/<int:number>/diff",
        "Compare two versions of a flow",
        READ_FLOWS,
        parameters=[NUMBER],
        problems=[409],
    )
    def diff_flow_versions(self, request: Request, name: str, number: int, query: ComparedVersion) -> FlowDifference:
        """Compares the version `against` with this one: steps and audits are matched also under new
        names and at new positions.
        """
        flow = get_object_or_404(_FLOWS, name=name)
        new = load_version(flow, number)
        old = _find_other(flow, new, query.against)
        changes = compare_specs(read_definition(old), read_definition(new))
        summary = summarise_changes(changes)
        return FlowDifference(flow=name, old=old.number, new=number, summary=summary, changes=changes)  # type: ignore[arg-type]  # they are read by their attributes

    @_operation(
        "POST flows/<slug:name>/versions/<int:number>/make-live",
        "Make a version live",
        CHANGE_FLOWS,
        parameters=[NUMBER, IF_MATCH],
    )
    def make_flow_version_live(self, request: Request, name: str, number: int, body: Nothing) -> Flow:
        """New runs use it from now on. Runs under way keep theirs."""

        def make_live(flow: FlowRow) -> str:
            version = load_version(flow, number)
            if flow.live_version_id == version.pk:
                return ""
            flow.make_live(version)
            return f"Made version {number} live."

        return change_flow(request, name, make_live)


class FlowFileRenderer(BaseRenderer):
    """Writes text, a flow file, as it is."""

    media_type = YAML
    format = "yaml"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """The bytes of an answer."""
        text: str = data
        return text.encode()


class FlowVersionDetail(ApiView):
    """One version of a flow, which may be answered as a flow file."""

    renderer_classes = (JsonRenderer, FlowFileRenderer)

    @_operation(
        "GET flows/<slug:name>/versions/<int:number>",
        "Read a version of a flow",
        READ_FLOWS,
        parameters=[NUMBER],
        answers={(200, "application/json"): WholeVersion, (200, YAML): FlowDocument},
        problems=[409],
        has_etag=True,
    )
    def get_flow_version(
        self, request: Request, name: str, number: int, query: VersionFormat
    ) -> Response | WholeVersion:
        """With its definition; as a flow file with `Accept: application/yaml` or `?format=yaml`."""
        flow = get_object_or_404(_FLOWS, name=name)
        version = load_version(flow, number)
        if request.accepted_renderer.format != FlowFileRenderer.format:
            return build_version(version, flow)
        file = render_flow(read_definition(version))
        if request.method != "HEAD":
            announce_export([version])
        return Response(file, headers={"Content-Disposition": f'attachment; filename="{name}-v{number}.yaml"'})

    @_operation(
        "DELETE flows/<slug:name>/versions/<int:number>",
        "Delete a version of a flow",
        DELETE_VERSIONS,
        parameters=[NUMBER],
        answers=DELETED,
        problems=[409],
    )
    @transaction.atomic
    def delete_flow_version(self, request: Request, name: str, number: int) -> HttpResponse:
        """Deletes a version that is not live and has no runs: runs are kept with the definition that they used."""
        flow = get_object_or_404(FlowRow.objects.select_for_update(), name=name)
        version = load_version(flow, number)
        if flow.live_version_id == version.pk:
            raise Conflict("is-live", f"Version {number} of “{name}” is live. Make another version live first.")
        if is_referred_to(version):
            sentence = f"Version {number} of “{name}” has runs, which need its definition. It can’t be deleted."
            raise Conflict("has-runs", sentence)
        log_change(request, version, "Deleted through the API.", action=DELETION)
        version.delete()
        return HttpResponse(status=HTTPStatus.NO_CONTENT)


def _find_other(flow: FlowRow, new: VersionRow, against: str | None) -> VersionRow:
    """The version to compare with. Raises ``InvalidQuery`` if it isn't there."""
    if against == "live":
        found = flow.live_version
    else:
        wanted = {"number__lt": new.number} if against is None else {"number": int(against)}
        found = flow.versions.filter(**wanted).first()
    if found is None:
        sentence = "This version does not exist, or has no version before it. Name another."
        raise InvalidQuery([Problem("against", sentence)])
    return found
