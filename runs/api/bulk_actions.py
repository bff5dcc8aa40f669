"""Many runs at once, chosen ones or all that match filters: cancelling them, and running them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal
from uuid import uuid4

from django.db import transaction
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs import models
from runs.api.access import ACT_ON_RUNS, CHANGE_RUNS, READ_RUNS, find_user, require_permission
from runs.api.base import IDEMPOTENCY_KEY, REPLAYED, RETRY_WHILE_UNFINISHED, ApiView, example, header, operation
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_rows
from runs.api.problems import Conflict, InvalidBody
from runs.api.run_filters import Filters, ShownFilters, parse_filter_fields
from runs.audit_log.events import AuditAction, log_audit_event
from runs.bulk_actions.requests import MAX_CHOSEN, MAX_STARTED, fetch_matching, request_bulk_action
from runs.documents.base import (
    USER_NAME,
    WHOLE,
    Answer,
    Body,
    Count,
    Nothing,
    Page,
    RowPaging,
    TextOrNull,
    Url,
    link,
)
from runs.filters import RunFilters
from runs.matching_runs import fetch_newest_run_number
from runs.models import BulkKind, WorkState
from runs.models.long_work import MAX_NOTES
from runs.paging import MAX_NUMBER

_operation = partial(operation, tag="Bulk actions")
PERMISSIONS = {BulkKind.CANCEL: "runs.change_run", BulkKind.RUN_AGAIN: "runs.add_run"}
_LOCATION = header("Location", OpenApiTypes.URI, "The address of the bulk action.", 202)
_CANCEL_ALL = {"kind": "cancel", "filters": {"flow": "colour-theme", "status": ["queued"]}}
_AGAIN = {"kind": "run_again", "filters": {"flow": "colour-theme", "status": ["failed"]}, "version": "live"}

KindName = Literal["cancel", "run_again"]
VersionName = Literal["same", "live"]
RunNumber = Annotated[int, Field(ge=1, lt=MAX_NUMBER), WHOLE]


class NewBulkAction(Body):
    """What is to be done to which runs: `runs` or `filters`, one of the two."""

    kind: KindName = Field(
        description="`cancel`: those that have not ended. `run_again`: those that have, each as a new run with the "
        "same input."
    )
    runs: Annotated[list[RunNumber], Field(min_length=1, max_length=MAX_CHOSEN)] | None = Field(
        None, description="The numbers of the runs."
    )
    filters: Filters | None = Field(
        None, description="All runs that match these filters, which are those of `listRuns`; `{}` means all runs."
    )
    newest: Annotated[int, Field(ge=0, lt=MAX_NUMBER), WHOLE] | None = Field(
        None, description="With `filters`: runs with a higher number are not included."
    )
    version: VersionName | None = Field(
        None,
        description="For `run_again`: `same` (if left out) for the version that each run had, `live` for the live one.",
    )
    most: Annotated[int, Field(ge=1, le=MAX_STARTED), WHOLE] | None = Field(
        None,
        description=f"For `run_again` with `filters`: the maximum number of runs, newest first; {MAX_STARTED:,} "
        "if it is left out.",
    )


class BulkNote(Answer):
    """Why a run was left out."""

    run: int = Field(description="The number of the run.")
    is_failure: bool = Field(
        validation_alias="failed", description="True if it failed; false if there was nothing to do."
    )
    sentence: str = Field(description="Why.")


class BulkAction(Answer):
    """Something that is done to many runs, and its progress."""

    id: int = Field(ge=1, description="The number of the bulk action.")
    kind: KindName = Field(description="The action.")
    status: WorkState = Field(
        validation_alias="state", description="`waiting` and `working` go on; a user stopped a `stopped` one."
    )
    problem: TextOrNull = Field(description="Why it failed, in a sentence.")
    run_count: Count | None = Field(description="The number of selected runs, fixed when it is requested.")
    filters: ShownFilters | None = Field(
        description="The filters that selected the runs; null if they were named one by one."
    )
    version: VersionName | None = Field(description="On which version runs are run again; null for `cancel`.")
    most: int | None = Field(description="The limit that was given for its runs.")
    label: str | None = Field(
        description="A label of the runs that it starts, by which a list finds them; null for `cancel`."
    )
    percent: int = Field(ge=0, le=100, description="The share of its runs that is processed.")
    done: Count = Field(description="Runs that were cancelled or started.")
    skipped: Count = Field(description="Runs where there was nothing to do.")
    failed: Count = Field(description="Runs where it failed.")
    started_by: Annotated[str | None, USER_NAME] = Field(description="The user who requested it.")
    created_at: datetime = Field(description="UTC.")
    started_at: datetime | None = Field(description="UTC; null until the first batch is done.")
    ended_at: datetime | None = Field(description="UTC; null while it is in progress.")
    url: Annotated[Url, link("api:get_bulk_action")] = Field(validation_alias="id", description="Its address.")
    page_url: Annotated[Url, link("runs:bulk")] = Field(validation_alias="id", description="Its page.")
    started_runs_url: Annotated[Url | None, link("api:list_runs")] = Field(
        description="The list of the runs that it started; null for `cancel`."
    )


class WholeBulkAction(BulkAction):
    """A bulk action with why runs were left out."""

    notes: list[BulkNote] = Field(
        description=f"The first {MAX_NOTES} runs that were skipped or failed, each with the reason."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Endpoints


class BulkActions(ApiView):
    """Bulk actions and their progress."""

    @_operation("GET bulk-actions", "List bulk actions", READ_RUNS)
    def list_bulk_actions(self, request: Request, query: RowPaging) -> Page[BulkAction]:
        """The newest first, without notes, also those that were requested on the pages."""
        rows = models.BulkAction.objects.select_related("asked_by").defer("notes", "run_ids")
        page = fetch_rows(rows, query, is_descending=True)
        return build_page(Page[BulkAction], request, page, [_describe(action) for action in page.rows])

    @_operation(
        "POST bulk-actions",
        "Cancel many runs, or run many again",
        ACT_ON_RUNS,
        parameters=[IDEMPOTENCY_KEY, _LOCATION, RETRY_WHILE_UNFINISHED, REPLAYED],
        examples=[
            example("Cancel all that are queued", _CANCEL_ALL),
            example("Run again all that failed", _AGAIN),
        ],
        answers={202: OpenApiResponse(WholeBulkAction, "It has begun.")},
        problems=[409],
    )
    def create_bulk_action(self, request: Request, body: NewBulkAction) -> HttpResponseBase:
        """`cancel` needs the permission to change runs, `run_again` the one to add runs. The runs are fixed now.
        About a second of work is done at once, with an `Idempotency-Key` one batch; the rest is left to a worker, and
        `Location` leads to the action. Skipped runs are counted; `notes` names the first of them.
        """
        kind = BulkKind(body.kind)
        if problems := list(_find_contradictions(body)):
            raise InvalidBody(problems)
        filters = None if body.filters is None else parse_filter_fields(body.filters)
        require_permission(request, PERMISSIONS[kind])
        if filters is None:
            run_ids = sorted(set(body.runs or ()), reverse=True)
        else:
            newest = fetch_newest_run_number() if body.newest is None else body.newest
            run_ids = fetch_matching(kind, filters, newest=newest, most=body.most)
        return self._begin(request, body, run_ids, filters)

    @idempotent
    def _begin(
        self, request: Request, body: NewBulkAction, run_ids: Sequence[int], filters: RunFilters | None
    ) -> HttpResponseBase:
        action = request_bulk_action(
            token=uuid4(),
            kind=BulkKind(body.kind),
            run_ids=run_ids,
            filters=filters,
            uses_live_version=body.version == "live",
            most=body.most,
            asked_by=find_user(request),
            # With a key all of this is one transaction, which must be short.
            is_brief="Idempotency-Key" in request.headers,
        )
        return _answer(request, action, HTTPStatus.ACCEPTED)

    @_operation(
        "GET bulk-actions/<int:action_id>",
        "Read the progress of a bulk action",
        READ_RUNS,
        parameters=[RETRY_WHILE_UNFINISHED],
    )
    def get_bulk_action(self, request: Request, action_id: int) -> Annotated[Response, WholeBulkAction]:
        """The action with the reasons why runs were skipped."""
        return _answer(request, _load_action(action_id))

    @_operation("POST bulk-actions/<int:action_id>/stop", "Stop a bulk action", CHANGE_RUNS)
    @idempotent
    def stop_bulk_action(
        self, request: Request, action_id: int, body: Nothing
    ) -> Annotated[HttpResponseBase, WholeBulkAction]:
        """Runs that were already cancelled or started stay so. 409 if the action has ended already."""
        action = _load_action(action_id)
        with transaction.atomic():
            if not action.stop():
                raise Conflict("bulk-action-ended", f"Bulk action {action_id} has already ended: it is {action.state}.")
            log_audit_event(action=AuditAction.BULK_STOPPED, about=action, details={"done": action.done})
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
            yield Problem(f"/{name}", f"This is allowed only for “{needed}”. Remove it.")


def _load_action(action_id: int) -> models.BulkAction:
    return get_object_or_404(models.BulkAction.objects.select_related("asked_by").defer("run_ids"), pk=action_id)


def _answer(request: Request, action: models.BulkAction, status: HTTPStatus = HTTPStatus.OK) -> Response:
    model = WholeBulkAction.build(_describe(action), request)
    headers = {"Location": model.url} if status == HTTPStatus.ACCEPTED else {}
    return Response(model, status, headers=headers | ({"Retry-After": "1"} if action.is_unfinished else {}))


def _describe(action: models.BulkAction) -> dict[str, Any]:
    is_again = action.kind == BulkKind.RUN_AGAIN
    return {
        **vars(action),
        "percent": action.percent,
        "filters": None if action.is_chosen else action.query,
        "version": ("live" if action.uses_live_version else "same") if is_again else None,
        "label": action.label if is_again else None,
        "started_by": action.asked_by,
        "started_runs_url": f"label={action.label}" if is_again else None,
    }
