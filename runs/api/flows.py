"""Flows: list, read, create, change and archive them. ``flow_versions`` has their versions."""

from __future__ import annotations

from http import HTTPStatus
from operator import itemgetter
from typing import Any, ClassVar

from django.http import HttpResponse
from django.urls import URLPattern, path, reverse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs.api import flow_versions
from runs.api.access import ADD_FLOWS, CHANGE_FLOWS, DELETE_FLOWS, SEE_FLOWS
from runs.api.flow_changes import (
    Condition,
    Stored,
    create_flow,
    delete_flow,
    make_headers,
    set_archived,
    store_flow,
)
from runs.api.flow_documents import describe_flow, describe_whole_flow, read_flow, select_flows
from runs.api.flow_reading import (
    FlowJSONParser,
    FlowYAMLParser,
    find_user,
    read_choice,
    read_flag,
    read_flow_body,
    read_note,
    require_no_body,
)
from runs.api.flows_schema import (
    ARCHIVED,
    ETAG,
    FLOW_AFTER,
    FLOW_BEFORE,
    FLOW_BODY,
    IF_MATCH,
    IF_NONE_MATCH,
    INPUT_SCHEMA,
    LOCATION,
    MAKE_LIVE,
    NAME,
    NOTE,
    TAGS,
    FlowPageSerializer,
    FlowSerializer,
    StoredFlowSerializer,
    WholeFlowSerializer,
)
from runs.api.idempotency import idempotent
from runs.api.paging import NAMES, PAGING, answer_page, read_page, read_paging
from runs.api.problems import InvalidBody
from runs.api.schema_parts import IDEMPOTENCY_KEY, LIMIT, REPLAYED, problem_responses
from runs.api.view import ApiView

_ARCHIVED: dict[str, dict[str, bool]] = {
    "false": {"is_archived": False},
    "true": {"is_archived": True},
    "all": {},
}


class FlowListView(ApiView):
    """All flows."""

    needs: ClassVar[Any] = {"GET": SEE_FLOWS, "POST": ADD_FLOWS}
    parameters: ClassVar[Any] = {"GET": (*PAGING, "archived", "input_schema"), "POST": ("note",)}
    parser_classes: Any = (FlowJSONParser, FlowYAMLParser)

    @extend_schema(
        operation_id="listFlows",
        tags=TAGS,
        summary="List flows",
        description="By name, without definitions.",
        parameters=[LIMIT, FLOW_BEFORE, FLOW_AFTER, ARCHIVED, INPUT_SCHEMA],
        responses={200: FlowPageSerializer, **problem_responses(400, 401, 403)},
    )
    def get(self, request: Request) -> Response:
        """A page of the list."""
        paging = read_paging(request.query_params, NAMES)
        wanted = _ARCHIVED[read_choice(request, "archived", _ARCHIVED, default="false")]
        flows = select_flows(has_input_schema=read_flag(request, "input_schema")).filter(**wanted)
        page = read_page(flows, paging, column="name", key_of=itemgetter("name"))
        return answer_page(request, page, [describe_flow(row) for row in page.rows])

    @extend_schema(
        operation_id="createFlow",
        tags=TAGS,
        summary="Create a flow",
        description="From the same document as a flow file, in JSON or YAML. Its first version is live at once.",
        parameters=[NOTE, IDEMPOTENCY_KEY, ETAG, LOCATION, REPLAYED],
        request=FLOW_BODY,
        responses={201: StoredFlowSerializer, **problem_responses(400, 401, 403, 409, 413, 415, 422)},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Store a new flow."""
        note = read_note(request)
        spec = read_flow_body(request)
        return _answer_stored(request, create_flow(spec=spec, by=find_user(request), note=note))


class FlowView(ApiView):
    """One flow."""

    needs: ClassVar[Any] = {"GET": SEE_FLOWS, "PUT": CHANGE_FLOWS, "DELETE": DELETE_FLOWS}
    parameters: ClassVar[Any] = {"PUT": ("make_live", "note")}
    parser_classes: Any = (FlowJSONParser, FlowYAMLParser)

    @extend_schema(
        operation_id="getFlow",
        tags=TAGS,
        summary="Read a flow",
        description="With the definitions of its live and of its latest version.",
        parameters=[NAME, ETAG],
        responses={200: WholeFlowSerializer, **problem_responses(400, 401, 403, 404)},
    )
    def get(self, request: Request, name: str) -> Response:
        """The flow with its definitions."""
        flow, latest = read_flow(name)
        return Response(describe_whole_flow(flow, latest), headers=make_headers(flow, latest))

    @extend_schema(
        operation_id="putFlow",
        tags=TAGS,
        summary="Change a flow, or create it",
        description="Makes the flow what the document says. If that differs from the latest version, a new one is "
        "made; else nothing changes, so that a pipeline may send all its flow files each time. A flow that is not "
        "there yet is created (201). The name in the document is the name in the address.",
        parameters=[NAME, MAKE_LIVE, NOTE, IF_MATCH, IF_NONE_MATCH, ETAG, LOCATION],
        request=FLOW_BODY,
        responses={
            200: StoredFlowSerializer,
            201: StoredFlowSerializer,
            **problem_responses(400, 401, 403, 404, 412, 413, 415, 422),
        },
    )
    def put(self, request: Request, name: str) -> Response:
        """Store what the flow is now."""
        note, make_live = read_note(request), read_flag(request, "make_live")
        condition = Condition.read(request)
        spec = read_flow_body(request)
        if spec.name != name:
            sentence = f"“name” must be “{name}”, as in the address; got “{spec.name}”. Flows keep their names."
            raise InvalidBody([Problem("/name", sentence)])
        stored = store_flow(spec=spec, by=find_user(request), note=note, make_live=make_live, condition=condition)
        return _answer_stored(request, stored)

    @extend_schema(
        operation_id="deleteFlow",
        tags=TAGS,
        summary="Delete a flow",
        description="With all its versions; only a flow that has no runs, for history is kept. Archive others.",
        parameters=[NAME, IF_MATCH],
        request=None,
        responses={204: OpenApiResponse(description="It is gone."), **problem_responses(404, 409, 412)},
    )
    def delete(self, request: Request, name: str) -> HttpResponse:
        """Delete the flow."""
        require_no_body(request)
        delete_flow(name=name, by=find_user(request), condition=Condition.read(request))
        return HttpResponse(status=HTTPStatus.NO_CONTENT)


def _answer_stored(request: Request, stored: Stored) -> Response:
    document = {**describe_whole_flow(stored.flow, stored.latest), "made_version": stored.made_version}
    headers = make_headers(stored.flow, stored.latest)
    if not stored.is_new:
        return Response(document, headers=headers)
    headers["Location"] = request.build_absolute_uri(reverse("api:flow", args=[stored.flow.name]))
    return Response(document, status=HTTPStatus.CREATED, headers=headers)


class _ArchivingView(ApiView):
    needs: ClassVar[Any] = {"POST": CHANGE_FLOWS}
    is_archived: ClassVar[bool]

    def _set(self, request: Request, name: str) -> Response:
        require_no_body(request)
        condition = Condition.read(request)
        return Response(
            set_archived(name=name, is_archived=self.is_archived, by=find_user(request), condition=condition)
        )


class ArchiveView(_ArchivingView):
    """The archive, the way in."""

    is_archived = True

    @extend_schema(
        operation_id="archiveFlow",
        tags=TAGS,
        summary="Archive a flow",
        description="No new runs can be started; runs under way go on, and history stays.",
        parameters=[NAME, IF_MATCH],
        request=None,
        responses={200: FlowSerializer, **problem_responses(400, 401, 403, 404, 412, 422)},
    )
    def post(self, request: Request, name: str) -> Response:
        """Archive the flow."""
        return self._set(request, name)


class TakeOutView(_ArchivingView):
    """The archive, the way out."""

    is_archived = False

    @extend_schema(
        operation_id="takeFlowOut",
        tags=TAGS,
        summary="Take a flow out of the archive",
        parameters=[NAME, IF_MATCH],
        request=None,
        responses={200: FlowSerializer, **problem_responses(400, 401, 403, 404, 412, 422)},
    )
    def post(self, request: Request, name: str) -> Response:
        """Take the flow out."""
        return self._set(request, name)


# The address of one flow is among those of the tools, which look like it and come first.
urls: list[URLPattern] = [
    path("flows", FlowListView.as_view(), name="flow-list"),
    path("flows/<slug:name>/archive", ArchiveView.as_view(), name="flow-archive"),
    path("flows/<slug:name>/take-out", TakeOutView.as_view(), name="flow-take-out"),
    *flow_versions.urls,
]
