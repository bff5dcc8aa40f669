"""Cancelling many runs, and running many again: chosen ones, or all that match filters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import uuid4

from django.db import transaction
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs.api.access import ACT_ON_RUNS, CHANGE_AND_SEE_RUNS, SEE_RUNS, Need, require_permission
from runs.api.base import parse_body
from runs.api.bulk_actions_schema import (
    ACTION_PAGING,
    LOCATION,
    RETRY_AFTER,
    TAGS,
    BulkActionPageSerializer,
    BulkChoiceSerializer,
    BulkPreviewSerializer,
    NewBulkActionSerializer,
    WholeBulkActionSerializer,
)
from runs.api.filter_fields import write_filters
from runs.api.idempotency import idempotent
from runs.api.paging import NUMBERS, PAGING, answer_page, read_page, read_paging
from runs.api.problems import Conflict, InvalidBody
from runs.api.reading import StrictSerializer, read_body
from runs.api.schema_parts import IDEMPOTENCY_KEY, REPLAYED, problem_responses
from runs.api.schemas.base import Nothing, format_amount
from runs.api.view import ApiView
from runs.bulk_actions.preview import preview_chosen, preview_matching
from runs.bulk_actions.requesting import request_bulk_action
from runs.filters import find_newest_run
from runs.models import BulkAction, BulkKind
from runs.prepared_select import LARGEST_NUMBER
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

_PERMISSIONS = {BulkKind.CANCEL: "runs.change_run", BulkKind.RUN_AGAIN: "runs.add_run"}
_CANCEL_ALL = {"kind": "cancel", "filters": {"flow": "colour-theme", "status": ["queued"]}}
_AGAIN = {"kind": "run_again", "filters": {"flow": "colour-theme", "status": ["failed"]}, "version": "live"}


class BulkActionList(ApiView):
    """The bulk actions."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS, "POST": ACT_ON_RUNS}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": PAGING}

    @extend_schema(
        operation_id="listBulkActions",
        tags=TAGS,
        summary="List bulk actions",
        description="The newest first, also those that somebody asked for on the pages.",
        parameters=ACTION_PAGING,
        responses={200: OpenApiResponse(BulkActionPageSerializer, "A page of bulk actions.")},
    )
    def get(self, request: Request) -> Response:
        """A page of bulk actions."""
        paging = read_paging(request.query_params, NUMBERS)
        rows = BulkAction.objects.select_related("asked_by").defer("notes")
        page = read_page(rows, paging, column="pk", key_of=lambda row: row.pk, is_descending=True)
        return answer_page(request, page, [_describe(action, request) for action in page.rows])

    @extend_schema(
        operation_id="createBulkAction",
        tags=TAGS,
        summary="Cancel many runs, or run many again",
        description="To `cancel` takes the permission to change runs, to `run_again` the one to add them. About a "
        "second of work is done at once; the rest is left to a worker, and `Location` tells how far it is. Runs "
        "where it is not possible keep nobody up: they are counted, and the first ones are named in `notes`. To know "
        "beforehand what it comes to, ask `previewBulkAction`.",
        parameters=[IDEMPOTENCY_KEY, LOCATION, RETRY_AFTER, REPLAYED],
        request=NewBulkActionSerializer,
        examples=[
            OpenApiExample("Cancel all that are queued", value=_CANCEL_ALL, request_only=True),
            OpenApiExample("Run again all that failed", value=_AGAIN, request_only=True),
        ],
        responses={202: OpenApiResponse(WholeBulkActionSerializer, "It has begun."), **problem_responses(409)},
    )
    @idempotent
    def post(self, request: Request) -> HttpResponseBase:
        """Begin it."""
        return _begin(request, _read_order(request, NewBulkActionSerializer))


class BulkPreviewView(ApiView):
    """What a bulk action would come to."""

    needs: ClassVar[Mapping[str, Need]] = {"POST": ACT_ON_RUNS}

    @extend_schema(
        operation_id="previewBulkAction",
        tags=TAGS,
        summary="See what a bulk action would come to",
        description="Counts the runs to which it would be done, up to 1,000, and what they cost. Nothing is done. "
        "Send `newest` along with the action itself, so that runs which begin meanwhile are not meant.",
        request=BulkChoiceSerializer,
        examples=[OpenApiExample("All that are queued", value=_CANCEL_ALL, request_only=True)],
        responses={200: OpenApiResponse(BulkPreviewSerializer, "What it would come to.")},
    )
    def post(self, request: Request) -> Response:
        """Count the runs."""
        order = _read_order(request, BulkChoiceSerializer)
        kind, newest = order["kind"], order["newest"]
        if "runs" in order:
            preview = preview_chosen(kind, order["runs"])
        else:
            preview = preview_matching(kind, order["filters"].to_query(), newest=newest)
        return Response(
            {
                "kind": kind.value,
                "count": preview.count,
                "is_exact": preview.is_exact,
                "left_out": preview.left_out,
                "newest": newest,
                "cost": None if preview.cost is None else format_amount(preview.cost),
                "unpriced": preview.unpriced,
                "simulated": preview.simulated,
                "examples": [run.pk for run in preview.examples],
            }
        )


class BulkActionDetail(ApiView):
    """One bulk action."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS}

    @extend_schema(
        operation_id="getBulkAction",
        tags=TAGS,
        summary="Read how far a bulk action is",
        parameters=[RETRY_AFTER],
        responses={200: OpenApiResponse(WholeBulkActionSerializer, "The bulk action."), **problem_responses(404)},
    )
    def get(self, request: Request, action_id: int) -> Response:
        """The bulk action."""
        action = _find_action(action_id)
        headers = {"Retry-After": "1"} if action.is_unfinished else None
        return Response(_describe_whole(action, request), headers=headers)


class BulkActionStop(ApiView):
    """Stopping a bulk action."""

    needs: ClassVar[Mapping[str, Need]] = {"POST": CHANGE_AND_SEE_RUNS}

    @extend_schema(
        operation_id="stopBulkAction",
        tags=TAGS,
        summary="Stop a bulk action",
        description="It ends where it stands. What it has done stays done.",
        parameters=[IDEMPOTENCY_KEY, REPLAYED],
        request=Nothing,
        responses={200: OpenApiResponse(WholeBulkActionSerializer, "It is stopped."), **problem_responses(404, 409)},
    )
    @idempotent
    def post(self, request: Request, action_id: int) -> HttpResponseBase:
        """End it; 409 if it has ended."""
        parse_body(Nothing, request)
        action = _find_action(action_id)
        with transaction.atomic():
            if not action.stop():
                raise Conflict("bulk-action-ended", f"Bulk action {action_id} has ended already: it is {action.state}.")
            leave_trail(action=TrailAction.BULK_STOPPED, about=action, details={"done": action.done})
        return Response(_describe_whole(action, request))


def _read_order(request: Request, kind: type[StrictSerializer]) -> dict[str, Any]:
    """What a body asks for; ``newest`` is always in it. Raises ``InvalidBody`` and ``PermissionDenied``."""
    order = read_body(kind, request)
    action = order["kind"] = BulkKind(order["kind"])
    problems = list(_find_contradictions(order, action))
    if problems:
        raise InvalidBody(problems)
    require_permission(request, _PERMISSIONS[action])
    order.setdefault("newest", max(order["runs"]) if "runs" in order else find_newest_run())
    return order


def _find_contradictions(order: Mapping[str, Any], action: BulkKind) -> Iterator[Problem]:
    is_chosen = "runs" in order
    if is_chosen == ("filters" in order):
        yield Problem("", "Say which runs are meant: either “runs”, or “filters”.")
    if action == BulkKind.CANCEL:
        sentence = "This is for “run_again” only; leave it out."
        yield from (Problem(f"/{name}", sentence) for name in ("version", "most") if name in order)
    if is_chosen:
        sentence = "With “runs”, exactly those count; leave this out."
        yield from (Problem(f"/{name}", sentence) for name in ("newest", "most") if name in order)


def _begin(request: Request, order: Mapping[str, Any]) -> Response:
    user: Any = request.user
    is_chosen = "runs" in order
    action = request_bulk_action(
        token=uuid4(),
        kind=order["kind"],
        run_ids=order["runs"] if is_chosen else None,
        query="" if is_chosen else order["filters"].to_query(),
        newest=order["newest"],
        uses_live_version=order.get("version") == "live",
        most=order.get("most"),
        asked_by=user,
        # With a key all of this is one transaction: it locks one batch of runs, and a worker does the rest.
        patience=0.0 if "Idempotency-Key" in request.headers else None,
    )
    document = _describe_whole(action, request)
    headers = {"Location": document["url"], **({"Retry-After": "1"} if action.is_unfinished else {})}
    return Response(document, HTTPStatus.ACCEPTED, headers=headers)


def _find_action(action_id: int) -> BulkAction:
    rows = BulkAction.objects.select_related("asked_by").filter(pk=action_id)
    action = rows.first() if action_id <= LARGEST_NUMBER else None
    if action is None:
        raise Http404
    return action


def _describe(action: BulkAction, request: Request) -> dict[str, Any]:
    is_again = action.kind == BulkKind.RUN_AGAIN
    label = action.label if is_again else None
    runs = request.build_absolute_uri(reverse("api:run-list"))
    return {
        "id": action.pk,
        "kind": action.kind,
        "status": action.state,
        "problem": action.problem or None,
        "run_count": None if action.run_ids is None else len(action.run_ids),
        "filters": write_filters(action.query) if action.run_ids is None else None,
        "version": ("live" if action.uses_live_version else "same") if is_again else None,
        "most": action.most,
        "label": label,
        "percent": action.percent,
        "done": action.done,
        "skipped": action.skipped,
        "failed": action.failed,
        "started_by": action.asked_by.get_username() if action.asked_by else None,
        "created_at": action.created_at,
        "started_at": action.started_at,
        "ended_at": action.ended_at,
        "url": request.build_absolute_uri(reverse("api:bulk-action", args=[action.pk])),
        "page_url": request.build_absolute_uri(reverse("runs:bulk", args=[action.pk])),
        "started_runs_url": f"{runs}?{urlencode({'label': label})}" if label else None,
    }


def _describe_whole(action: BulkAction, request: Request) -> dict[str, Any]:
    notes = [{"run": note["run"], "is_failure": note["failed"], "sentence": note["sentence"]} for note in action.notes]
    return {**_describe(action, request), "notes": notes}


urls: list[URLPattern] = [
    path("bulk-actions", BulkActionList.as_view(), name="bulk-action-list"),
    path("bulk-actions/preview", BulkPreviewView.as_view(), name="bulk-action-preview"),
    path("bulk-actions/<int:action_id>", BulkActionDetail.as_view(), name="bulk-action"),
    path("bulk-actions/<int:action_id>/stop", BulkActionStop.as_view(), name="bulk-action-stop"),
]
