"""Views of the list of runs that users keep under a name."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated

from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from pydantic import AfterValidator, Field, WithJsonSchema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs import models
from runs.api.access import CHANGE_RUNS, KEEP_VIEWS, READ_RUNS, find_user, require_permission
from runs.api.base import DELETED, LOCATION, ApiView, example, operation
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_rows
from runs.api.problems import Conflict, InvalidBody
from runs.api.run_filters import Filters, ShownFilters, parse_filter_fields
from runs.documents.base import USER_NAME, Answer, Body, Page, RowPaging, Text, Url, link
from runs.models.saved_view import MAX_NAME_LENGTH, NameTakenError, TooManyViewsError, parse_name

_operation = partial(operation, tag="Saved views")
EXAMPLE = example(
    "What failed", {"name": "Failed themes", "filters": {"flow": "colour-theme", "status": ["failed", "errored"]}}
)


class NewView(Body):
    """Filters to be kept under a name."""

    name: Annotated[
        Text,
        AfterValidator(parse_name),
        WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH}),
    ] = Field(description="Its name, unique among your views.")
    filters: Filters = Field(description="The filters, those of `listRuns`; at least one.")
    is_shared: bool = Field(
        False, description="Whether all users who may see runs see it; requires the permission to change runs."
    )


class SavedView(Answer):
    """Filters that a user keeps under a name."""

    id: int = Field(ge=1, description="The number of the view.")
    name: str = Field(description="Its name.")
    created_by: Annotated[str, USER_NAME] = Field(
        validation_alias="owner", description="Its owner; only the owner can delete it."
    )
    is_shared: bool = Field(description="Whether all users who may see runs see it.")
    filters: ShownFilters = Field(validation_alias="query", description="The filters.")
    created_at: datetime = Field(description="UTC.")
    url: Annotated[Url, link("api:get_saved_view")] = Field(validation_alias="pk", description="Its address.")
    page_url: Annotated[Url, link("runs:list")] = Field(
        validation_alias="query", description="The page with the matching runs."
    )
    runs_url: Annotated[Url, link("api:list_runs")] = Field(
        validation_alias="query", description="The address of the matching runs in the API."
    )


class SavedViews(ApiView):
    """Views of the list of runs."""

    @_operation("GET saved-views", "List saved views", READ_RUNS)
    def list_saved_views(self, request: Request, query: RowPaging) -> Page[SavedView]:
        """Your own, and those that others share, the newest first."""
        return build_page(Page[SavedView], request, fetch_rows(_select_seen(request), query, is_descending=True))

    @_operation(
        "POST saved-views",
        "Save a view",
        KEEP_VIEWS,
        parameters=[LOCATION],
        examples=[EXAMPLE],
        answers={201: SavedView},
    )
    @idempotent
    def create_saved_view(self, request: Request, body: NewView) -> HttpResponseBase:
        """Keeps filters under a name, beside the list of runs. Each user may keep 50."""
        filters = parse_filter_fields(body.filters)
        if not filters.values:
            raise InvalidBody([Problem("/filters", "A view needs at least one filter.")])
        if body.is_shared:
            require_permission(request, CHANGE_RUNS.permission)
        try:
            view = models.SavedView.objects.store(
                owner_id=find_user(request).pk, name=body.name, query=filters.to_query(), is_shared=body.is_shared
            )
        except TooManyViewsError as error:
            raise Conflict("too-many-views", str(error)) from None
        except NameTakenError as error:
            raise Conflict("name-taken", str(error)) from None
        document = SavedView.build(view, request)
        return Response(document, HTTPStatus.CREATED, headers={"Location": document.url})

    @_operation("GET saved-views/<int:view_id>", "Read a saved view", READ_RUNS)
    def get_saved_view(self, request: Request, view_id: int) -> SavedView:
        """A view of your own, or a shared view."""
        return SavedView.build(get_object_or_404(_select_seen(request), pk=view_id), request)

    @_operation("DELETE saved-views/<int:view_id>", "Delete a saved view", KEEP_VIEWS, answers=DELETED)
    def delete_saved_view(self, request: Request, view_id: int) -> Response:
        """Only a view of your own can be deleted."""
        deleted, _ = models.SavedView.objects.filter(owner=find_user(request), pk=view_id).delete()
        if not deleted:
            raise Http404
        return Response(status=HTTPStatus.NO_CONTENT)


def _select_seen(request: Request) -> QuerySet[models.SavedView]:
    return models.SavedView.objects.seen_by(find_user(request).pk).select_related("owner")
