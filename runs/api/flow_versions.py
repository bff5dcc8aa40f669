"""The versions of flows: list, read, compare them, and make one live."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, ClassVar

from django.http import Http404, HttpResponse
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.spec import FlowSpec
from flows.flow_file import render_flow
from flows.models import Flow, FlowVersion
from flows.portability import announce_export
from runs.api.access import CHANGE_FLOWS, DELETE_VERSIONS, SEE_FLOWS
from runs.api.base import HeaderNegotiation
from runs.api.conditions import make_tag
from runs.api.flow_changes import Condition, delete_version, make_version_live
from runs.api.flow_documents import (
    describe_difference,
    describe_version,
    describe_whole_version,
    find_version,
    read_definition,
    select_versions,
)
from runs.api.flow_reading import YAML, find_user, require_no_body
from runs.api.flows_schema import (
    AGAINST,
    FORMAT,
    IF_MATCH,
    NAME,
    NUMBER,
    TAGS,
    VERSION_AFTER,
    VERSION_BEFORE,
    VERSION_ETAG,
    FlowDifferenceSerializer,
    FlowSerializer,
    VersionPageSerializer,
    WholeVersionSerializer,
)
from runs.api.paging import NUMBERS, PAGING, answer_page, read_page, read_paging
from runs.api.problems import InvalidQuery
from runs.api.schema_parts import LIMIT, problem_responses
from runs.api.view import ApiView


def _find_flow(name: str) -> Flow:
    flow = Flow.objects.select_related("live_version").filter(name=name)
    found = flow.only("name", "live_version__number").first()
    if found is None:
        raise Http404
    return found


class FlowVersionListView(ApiView):
    """All versions of a flow."""

    needs: ClassVar[Any] = {"GET": SEE_FLOWS}
    parameters: ClassVar[Any] = {"GET": PAGING}

    @extend_schema(
        operation_id="listFlowVersions",
        tags=TAGS,
        summary="List the versions of a flow",
        description="The newest first, without definitions.",
        parameters=[NAME, LIMIT, VERSION_BEFORE, VERSION_AFTER],
        responses={200: VersionPageSerializer, **problem_responses(400, 401, 403, 404)},
    )
    def get(self, request: Request, name: str) -> Response:
        """A page of the list."""
        paging = read_paging(request.query_params, NUMBERS)
        flow = _find_flow(name)
        rows = select_versions(flow)
        page = read_page(rows, paging, column="number", key_of=_read_number, is_descending=True)
        return answer_page(request, page, [describe_version(row, flow) for row in page.rows])


def _read_number(row: Any) -> int:
    number: int = row["number"]
    return number


class FlowFileRenderer(JSONRenderer):
    """Lets YAML be asked for. Views write it themselves; what is rendered here is why there is none."""

    media_type = YAML
    format = "yaml"


class _FormatNegotiation(HeaderNegotiation):
    """The parameter ``format`` wins over the header ``Accept``."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The renderer to use. Raises ``InvalidQuery`` for a format that is not known."""
        wanted = request.query_params.get("format")
        if wanted is None:
            chosen: tuple[BaseRenderer, str] = super().select_renderer(request, renderers, format_suffix)
            return chosen
        for renderer in renderers:
            if renderer.format == wanted:
                return renderer, renderer.media_type or ""
        listed = ", ".join(str(renderer.format) for renderer in renderers)
        raise InvalidQuery([Problem("format", f"“format” is one of {listed}; got “{wanted[:40]}”.")])


class FlowVersionView(ApiView):
    """One version of a flow."""

    needs: ClassVar[Any] = {"GET": SEE_FLOWS, "DELETE": DELETE_VERSIONS}
    parameters: ClassVar[Any] = {"GET": ("format",)}
    renderer_classes: Any = (JSONRenderer, FlowFileRenderer)
    content_negotiation_class = _FormatNegotiation

    @extend_schema(
        operation_id="getFlowVersion",
        tags=TAGS,
        summary="Read a version of a flow",
        description="With its definition; as a flow file with `Accept: application/yaml` or `?format=yaml`.",
        parameters=[NAME, NUMBER, FORMAT, VERSION_ETAG],
        responses={
            (200, "application/json"): WholeVersionSerializer,
            (200, YAML): FlowSpec,
            **problem_responses(400, 401, 403, 404, 409),
        },
    )
    def get(self, request: Request, name: str, number: int) -> Response | HttpResponse:
        """The version with its definition."""
        flow = _find_flow(name)
        version = find_version(flow, number)
        if request.accepted_renderer.format == FlowFileRenderer.format:
            return _answer_file(version, is_taken=request.method != "HEAD")
        document = describe_whole_version(version, flow)
        return Response(document, headers={"ETag": make_tag(document)})

    @extend_schema(
        operation_id="deleteFlowVersion",
        tags=TAGS,
        summary="Delete a version of a flow",
        description="Only one that is not live and has no runs: those are kept with the definition that they used.",
        parameters=[NAME, NUMBER],
        request=None,
        responses={204: OpenApiResponse(description="It is gone."), **problem_responses(404, 409)},
    )
    def delete(self, request: Request, name: str, number: int) -> HttpResponse:
        """Delete the version."""
        require_no_body(request)
        delete_version(name=name, number=number, by=find_user(request))
        return HttpResponse(status=HTTPStatus.NO_CONTENT)


def _answer_file(version: FlowVersion, *, is_taken: bool) -> HttpResponse:
    spec = read_definition(version)
    file = render_flow(spec).encode()
    if is_taken:
        announce_export([version])
    disposition = f'attachment; filename="{spec.name}-v{version.number}.yaml"'
    headers = {"ETag": make_tag(file), "Content-Disposition": disposition}
    return HttpResponse(file, content_type=f"{YAML}; charset=utf-8", headers=headers)


class FlowDifferenceView(ApiView):
    """What a version changed."""

    needs: ClassVar[Any] = {"GET": SEE_FLOWS}
    parameters: ClassVar[Any] = {"GET": ("against",)}

    @extend_schema(
        operation_id="diffFlowVersions",
        tags=TAGS,
        summary="Compare two versions of a flow",
        description="What changed on the way from the version `against` to this one: steps and audits are found "
        "again under new names and at new places.",
        parameters=[NAME, NUMBER, AGAINST],
        responses={200: FlowDifferenceSerializer, **problem_responses(400, 401, 403, 404, 409)},
    )
    def get(self, request: Request, name: str, number: int) -> Response:
        """All differences."""
        flow = _find_flow(name)
        new = find_version(flow, number)
        old = _find_other(flow, new, request.query_params.get("against"))
        return Response(describe_difference(old, new, flow))


def _find_other(flow: Flow, new: FlowVersion, against: str | None) -> FlowVersion:
    """The version to compare with; without a word the one before. Raises ``InvalidQuery`` if it isn't there."""
    versions = flow.versions.select_related("created_by")
    if against is None:
        found = versions.filter(number__lt=new.number).first()
        problem = f"Version {new.number} has none before it; name another one."
    elif against == "live":
        found = versions.filter(number=flow.live_version.number).first() if flow.live_version else None
        problem = "No version of this flow is live."
    elif re.fullmatch(r"[0-9]{1,9}", against, re.ASCII):
        found = versions.filter(number=int(against)).first()
        problem = f"This flow has no version {int(against)}."
    else:
        found, problem = None, f"“{against[:40]}” is neither the number of a version nor “live”."
    if found is None:
        raise InvalidQuery([Problem("against", problem)])
    return found


class MakeLiveView(ApiView):
    """The version that new runs use."""

    needs: ClassVar[Any] = {"POST": CHANGE_FLOWS}

    @extend_schema(
        operation_id="makeFlowVersionLive",
        tags=TAGS,
        summary="Make a version live",
        description="New runs use it from now on. Runs under way keep theirs.",
        parameters=[NAME, NUMBER, IF_MATCH],
        request=None,
        responses={200: FlowSerializer, **problem_responses(400, 401, 403, 404, 412, 422)},
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        """Make the version live."""
        require_no_body(request)
        condition = Condition.read(request)
        return Response(make_version_live(name=name, number=number, by=find_user(request), condition=condition))


_VERSIONS = "flows/<slug:name>/versions"
urls: list[URLPattern] = [
    path(_VERSIONS, FlowVersionListView.as_view(), name="flow-version-list"),
    path(f"{_VERSIONS}/<int:number>", FlowVersionView.as_view(), name="flow-version"),
    path(f"{_VERSIONS}/<int:number>/diff", FlowDifferenceView.as_view(), name="flow-version-diff"),
    path(f"{_VERSIONS}/<int:number>/make-live", MakeLiveView.as_view(), name="flow-version-make-live"),
]
