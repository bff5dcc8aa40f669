"""Flows: list, read, create, change, archive and delete them."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from operator import itemgetter

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow as FlowRow
from runs.api import flow_settings, flow_versions
from runs.api.access import ADD_FLOWS, CHANGE_FLOWS, DELETE_FLOWS, READ_FLOWS
from runs.api.base import IF_MATCH, LOCATION, ApiView, header, operation
from runs.api.flow_changes import change_flow, create_flow, delete_flow, store_flow
from runs.api.flow_documents import (
    FLOW_BODY,
    FLOW_PARSERS,
    list_tags,
    load_whole_flow,
    parse_flow_body,
    select_flows,
)
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_page
from runs.api.problems import InvalidBody
from runs.api.schemas.flows import (
    ChangedFlowQuery,
    Flow,
    FlowFilters,
    FlowPage,
    NewFlowQuery,
    StoredFlow,
    WholeFlow,
)
from runs.documents.base import Nothing

_operation = partial(operation, tag="Flows")
_ARCHIVED: dict[str, dict[str, bool]] = {"false": {"is_archived": False}, "true": {"is_archived": True}, "all": {}}

IF_NONE_MATCH = header("If-None-Match", str, "`*` creates the flow only if no flow has this name (else 412).")
STORED_TAG = header("ETag", str, "That of the flow as it is read now.", 200, 201)


class FlowList(ApiView):
    """``/flows``"""

    parser_classes = FLOW_PARSERS

    @_operation("listFlows", "List flows", READ_FLOWS)
    def get(self, request: Request, query: FlowFilters) -> FlowPage:
        """By name, without definitions."""
        # The text of a schema lies within that of the definition: databases can't look inside.
        flows = select_flows(*(["live_version__spec"] if query.input_schema else []))
        flows = flows.filter(**_ARCHIVED[query.archived])
        page = fetch_page(flows, query, columns=["name"], key_of=itemgetter("name"))
        for row in page.rows if query.input_schema else ():
            row["input_schema"] = (row["live_version__spec"] or {}).get("input_schema")
        return build_page(FlowPage, request, page, page.rows)

    @_operation(
        "createFlow",
        "Create a flow",
        ADD_FLOWS,
        parameters=[STORED_TAG, LOCATION],
        body=FLOW_BODY,
        answers={201: StoredFlow},
    )
    @idempotent
    def post(self, request: Request, query: NewFlowQuery) -> HttpResponseBase:
        """From the same document as a flow file, in JSON or YAML. Its first version is live at once."""
        return _answer_stored(request, create_flow(request, parse_flow_body(request), query.note), is_new=True)


class FlowDetail(ApiView):
    """``/flows/<name>``"""

    parser_classes = FLOW_PARSERS

    @_operation("getFlow", "Read a flow", READ_FLOWS, has_etag=True)
    def get(self, request: Request, name: str) -> WholeFlow:
        """With the definitions of its live and of its latest version."""
        return load_whole_flow(name)

    @_operation(
        "putFlow",
        "Change a flow, or create it",
        CHANGE_FLOWS,
        parameters=[IF_MATCH, IF_NONE_MATCH, STORED_TAG, LOCATION],
        body=FLOW_BODY,
        answers={200: StoredFlow, 201: StoredFlow},
    )
    def put(self, request: Request, name: str, query: ChangedFlowQuery) -> Response:
        """Makes the flow what the document says. If that differs from the latest version, a new one is made; else
        nothing changes, so that a pipeline may send all its flow files each time. A flow that is not there yet is
        created (201). The name in the document is the name in the address.
        """
        spec = parse_flow_body(request)
        if spec.name != name:
            sentence = f"“name” must be “{name}”, as in the address; got “{spec.name}”. Flows keep their names."
            raise InvalidBody([Problem("/name", sentence)])
        stored, is_new = store_flow(request, spec, query)
        return _answer_stored(request, stored, is_new=is_new)

    @_operation(
        "deleteFlow",
        "Delete a flow",
        DELETE_FLOWS,
        parameters=[IF_MATCH],
        answers={204: OpenApiResponse(None, "It is gone.")},
        problems=[409],
    )
    def delete(self, request: Request, name: str) -> HttpResponse:
        """With all its versions; only a flow that has no runs, for history is kept. Archive others."""
        delete_flow(request, name)
        return HttpResponse(status=HTTPStatus.NO_CONTENT)


def _answer_stored(request: Request, stored: StoredFlow, *, is_new: bool) -> Response:
    headers = {"ETag": list_tags(stored)[0]}
    if is_new:
        headers["Location"] = request.build_absolute_uri(reverse("api:flow", args=[stored.name]))
    return Response(stored, HTTPStatus.CREATED if is_new else HTTPStatus.OK, headers=headers)


class ArchiveFlow(ApiView):
    """``/flows/<name>/archive``"""

    @_operation("archiveFlow", "Archive a flow", CHANGE_FLOWS, parameters=[IF_MATCH])
    def post(self, request: Request, name: str, body: Nothing) -> Flow:
        """No new runs can be started; runs under way go on, and history stays."""
        return change_flow(request, name, lambda flow: _set_archived(flow, True))


class UnarchiveFlow(ApiView):
    """``/flows/<name>/take-out``"""

    @_operation("takeFlowOut", "Unarchive a flow", CHANGE_FLOWS, parameters=[IF_MATCH])
    def post(self, request: Request, name: str, body: Nothing) -> Flow:
        """New runs can be started again."""
        return change_flow(request, name, lambda flow: _set_archived(flow, False))


def _set_archived(flow: FlowRow, is_archived: bool) -> str:
    if flow.is_archived == is_archived:
        return ""
    flow.is_archived = is_archived
    flow.save(update_fields=["is_archived", "updated_at"])
    return "Archived." if is_archived else "Unarchived."


urls: list[URLPattern] = [
    path("flows", FlowList.as_view(), name="flow-list"),
    path("flows/<slug:name>", FlowDetail.as_view(), name="flow"),
    path("flows/<slug:name>/archive", ArchiveFlow.as_view(), name="flow-archive"),
    path("flows/<slug:name>/take-out", UnarchiveFlow.as_view(), name="flow-take-out"),
    *flow_versions.urls,
    *flow_settings.urls,
]
