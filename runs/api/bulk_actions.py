"""Cancelling many runs, and running many again: chosen ones, or all that match filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

from django.db import transaction
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.json_values import format_pointer
from runs.api.access import ACT_ON_RUNS, CHANGE_RUNS, READ_RUNS, require_permission
from runs.api.base import ApiView, build_page, operation
from runs.api.filter_fields import parse_filters, write_filters
from runs.api.idempotency import idempotent
from runs.api.openapi import IDEMPOTENCY_KEY, PAGE_PARAMETERS, REPLAYED
from runs.api.paging import NUMBERS, read_page, read_paging
from runs.api.problems import Conflict, InvalidBody
from runs.api.schemas import bulk_actions as schemas
from runs.api.schemas.base import Nothing
from runs.api.schemas.bulk_actions import BulkActionPage, NewBulkAction, WholeBulkAction
from runs.audit_log.events import TrailAction, leave_trail
from runs.bulk_actions.requests import fetch_matching, request_bulk_action
from runs.filters import RunFilters, find_newest_run
from runs.models import BulkAction, BulkKind

_Shape = TypeVar("_Shape", bound=schemas.BulkAction)

TAG = "Bulk actions"
PERMISSIONS = {BulkKind.CANCEL: "runs.change_run", BulkKind.RUN_AGAIN: "runs.add_run"}
LOCATION = OpenApiParameter(
    "Location",
    OpenApiTypes.URI,
    OpenApiParameter.HEADER,
    description="Where the bulk action is read.",
    response=[202],
)
RETRY_AFTER = OpenApiParameter(
    "Retry-After",
    OpenApiTypes.INT,
    OpenApiParameter.HEADER,
    description="Seconds after which it may be read again; only while it is unfinished.",
    response=[200, 202],
)
_CANCEL_ALL = {"kind": "cancel", "filters": {"flow": "colour-theme", "status": ["queued"]}}
_AGAIN = {"kind": "run_again", "filters": {"flow": "colour-theme", "status": ["failed"]}, "version": "live"}


class BulkActionList(ApiView):
    """``/bulk-actions``"""

    @operation(
        "listBulkActions",
        "List bulk actions",
        tag=TAG,
        requires=READ_RUNS,
        parameters=PAGE_PARAMETERS,
        answers={200: BulkActionPage},
    )
    def get(self, request: Request) -> Response:
        """The newest first, also those that were requested on the pages."""
        paging = read_paging(request.query_params, NUMBERS)
        rows = BulkAction.objects.select_related("asked_by").defer("notes", "run_ids")
        page = read_page(rows, paging, column="pk", key_of=lambda row: row.pk, is_descending=True)
        items = [_build(schemas.BulkAction, action, request) for action in page.rows]
        return build_page(BulkActionPage, request, items, next=page.next, previous=page.previous)

    @operation(
        "createBulkAction",
        "Cancel many runs, or run many again",
        tag=TAG,
        requires=ACT_ON_RUNS,
        parameters=[IDEMPOTENCY_KEY, LOCATION, RETRY_AFTER, REPLAYED],
        body=NewBulkAction,
        examples=[
            OpenApiExample("Cancel all that are queued", value=_CANCEL_ALL, request_only=True),
            OpenApiExample("Run again all that failed", value=_AGAIN, request_only=True),
        ],
        answers={202: OpenApiResponse(WholeBulkAction, "It has begun.")},
        problems=[409],
    )
    def post(self, request: Request, body: NewBulkAction) -> HttpResponseBase:
        """To `cancel` takes the permission to change runs, to `run_again` the one to add them. The runs are fixed now.
        About a second of work is done at once, with an `Idempotency-Key` one batch; the rest is left to a worker, and
        `Location` tells the progress. Runs where it is not possible are counted, and the first ones named in `notes`.
        """
        kind = BulkKind(body.kind)
        if problems := list(_find_contradictions(body)):
            raise InvalidBody(problems)
        filters, wrong = (None, {}) if body.filters is None else parse_filters(body.filters)
        if wrong:
            raise InvalidBody(
                [Problem(format_pointer(("filters", name)), sentences[0]) for name, sentences in wrong.items()]
            )
        require_permission(request, PERMISSIONS[kind])
        if filters is None:
            run_ids = sorted(set(body.runs or ()), reverse=True)
        else:
            newest = find_newest_run() if body.newest is None else body.newest
            run_ids = fetch_matching(kind, filters, newest=newest, most=body.most)
        return self._begin(request, body, run_ids, filters)

    @idempotent
    def _begin(
        self, request: Request, body: NewBulkAction, run_ids: Sequence[int], filters: RunFilters | None
    ) -> HttpResponseBase:
        user: Any = request.user
        action = request_bulk_action(
            token=uuid4(),
            kind=BulkKind(body.kind),
            run_ids=run_ids,
            filters=filters,
            uses_live_version=body.version == "live",
            most=body.most,
            asked_by=user,
            # With a key all of this is one transaction, which must be short.
            is_brief="Idempotency-Key" in request.headers,
        )
        return _answer(request, action, HTTPStatus.ACCEPTED)


class BulkActionDetail(ApiView):
    """``/bulk-actions/<action_id>``"""

    @operation(
        "getBulkAction",
        "Read the progress of a bulk action",
        tag=TAG,
        requires=READ_RUNS,
        parameters=[RETRY_AFTER],
        answers={200: WholeBulkAction},
        problems=[404],
    )
    def get(self, request: Request, action_id: int) -> Response:
        """With the reasons why runs were left out."""
        return _answer(request, _load_action(action_id))


class BulkActionStop(ApiView):
    """``/bulk-actions/<action_id>/stop``"""

    @operation(
        "stopBulkAction",
        "Stop a bulk action",
        tag=TAG,
        requires=CHANGE_RUNS,
        parameters=[IDEMPOTENCY_KEY, REPLAYED],
        body=Nothing,
        answers={200: OpenApiResponse(WholeBulkAction, "It is stopped.")},
        problems=[404, 409],
    )
    @idempotent
    def post(self, request: Request, action_id: int, body: Nothing) -> HttpResponseBase:
        """What it has done stays done; 409 if it has ended."""
        action = _load_action(action_id)
        with transaction.atomic():
            if not action.stop():
                raise Conflict("bulk-action-ended", f"Bulk action {action_id} has ended already: it is {action.state}.")
            leave_trail(action=TrailAction.BULK_STOPPED, about=action, details={"done": action.done})
        return _answer(request, action)


def _find_contradictions(body: NewBulkAction) -> Iterator[Problem]:
    given = {name for name in body.model_fields_set if getattr(body, name) is not None}
    if ("runs" in given) == ("filters" in given):
        yield Problem("", "Give either “runs” or “filters”.")
    refused = {"version": "run_again", "most": "run_again"} if body.kind == "cancel" else {}
    if "runs" in given:
        refused |= {"newest": "filters", "most": "filters"}
    for name, needed in refused.items():
        if name in given:
            yield Problem(f"/{name}", f"This is for “{needed}” only; leave it out.")


def _load_action(action_id: int) -> BulkAction:
    action = BulkAction.objects.select_related("asked_by").defer("run_ids").filter(pk=action_id).first()
    if action is None:
        raise Http404
    return action


def _answer(request: Request, action: BulkAction, status: HTTPStatus = HTTPStatus.OK) -> Response:
    model = _build(WholeBulkAction, action, request, notes=action.notes)
    headers = {"Location": model.url} if status == HTTPStatus.ACCEPTED else {}
    return Response(model, status, headers=headers | ({"Retry-After": "1"} if action.is_unfinished else {}))


def _build(shape: type[_Shape], action: BulkAction, request: Request, **more: Any) -> _Shape:
    is_again = action.kind == BulkKind.RUN_AGAIN
    label = action.label if is_again else None
    runs = request.build_absolute_uri(reverse("api:run-list"))
    columns = ("kind", "problem", "run_count", "most", "percent", "done", "skipped", "failed")
    times = ("created_at", "started_at", "ended_at")
    return shape.model_validate(
        {
            **{name: getattr(action, name) for name in (*columns, *times)},
            "id": action.pk,
            "status": action.state,
            "filters": None if action.is_chosen else write_filters(action.query),
            "version": ("live" if action.uses_live_version else "same") if is_again else None,
            "label": label,
            "started_by": action.asked_by.get_username() if action.asked_by else None,
            "url": request.build_absolute_uri(reverse("api:bulk-action", args=[action.pk])),
            "page_url": request.build_absolute_uri(reverse("runs:bulk", args=[action.pk])),
            "started_runs_url": f"{runs}?{urlencode({'label': label})}" if label else None,
            **more,
        }
    )


urls: list[URLPattern] = [
    path("bulk-actions", BulkActionList.as_view(), name="bulk-action-list"),
    path("bulk-actions/<int:action_id>", BulkActionDetail.as_view(), name="bulk-action"),
    path("bulk-actions/<int:action_id>/stop", BulkActionStop.as_view(), name="bulk-action-stop"),
]
