"""Views of the list of runs that users keep under a name."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, OpenApiResponse
from pydantic import AfterValidator, Field, WithJsonSchema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs import models
from runs.api.access import CHANGE_RUNS, KEEP_VIEWS, READ_RUNS, find_user, require_permission
from runs.api.base import LOCATION, ApiView, build_urls, operation
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_page
from runs.api.problems import Conflict, InvalidBody
from runs.api.run_filters import Filters, ShownFilters, parse_filter_fields, show_filters
from runs.documents.base import Answer, Body, Page, RowPaging, Text, Url
from runs.models.saved_view import MAX_NAME_LENGTH, NameTakenError, TooManyViewsError, parse_name

_operation = partial(operation, tag="Saved views")
EXAMPLE = OpenApiExample(
    "What failed",
    value={"name": "Failed themes", "filters": {"flow": "colour-theme", "status": ["failed", "errored"]}},
    request_only=True,
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
    created_by: str = Field(description="Its owner; only the owner can delete it.")
    is_shared: bool = Field(description="Whether all users who may see runs see it.")
    filters: ShownFilters = Field(description="The filters.")
    created_at: datetime = Field(description="UTC.")
    url: Url = Field(description="Its address.")
    page_url: Url = Field(description="The page with the matching runs.")
    runs_url: Url = Field(description="The address of the matching runs in the API.")


class SavedViewPage(Page):
    """A page of views."""

    items: list[SavedView] = Field(description="The newest first.")


class SavedViews(ApiView):
    """Views of the list of runs."""

    @_operation("GET saved-views", "List saved views", READ_RUNS)
    def list_saved_views(self, request: Request, query: RowPaging) -> SavedViewPage:
        """Your own, and those that others share."""
        page = fetch_page(_select_seen(request), query, is_descending=True)
        return build_page(SavedViewPage, request, page, [_describe(view, request) for view in page.rows])

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
        if filters.is_empty:
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
        document = SavedView.model_validate(_describe(view, request))
        return Response(document, HTTPStatus.CREATED, headers={"Location": document.url})

    @_operation("GET saved-views/<int:view_id>", "Read a saved view", READ_RUNS)
    def get_saved_view(self, request: Request, view_id: int) -> SavedView:
        """One of your own, or one that is shared."""
        view = _select_seen(request).filter(pk=view_id).first()
        if view is None:
            raise Http404
        return SavedView.model_validate(_describe(view, request))

    @_operation(
        "DELETE saved-views/<int:view_id>",
        "Delete a saved view",
        KEEP_VIEWS,
        answers={204: OpenApiResponse(None, "It is gone.")},
    )
    def delete_saved_view(self, request: Request, view_id: int) -> Response:
        """One of your own; those of others can't be deleted."""
        deleted, _ = models.SavedView.objects.filter(owner=find_user(request), pk=view_id).delete()
        if not deleted:
            raise Http404
        return Response(status=HTTPStatus.NO_CONTENT)


def _select_seen(request: Request) -> QuerySet[models.SavedView]:
    return models.SavedView.objects.seen_by(find_user(request).pk).select_related("owner")


def _describe(view: models.SavedView, request: Request) -> dict[str, Any]:
    return {
        **vars(view),
        "created_by": view.owner.get_username(),
        "filters": show_filters(view.query),
        "url": request.build_absolute_uri(reverse("api:get_saved_view", args=[view.pk])),
        "page_url": f"{request.build_absolute_uri(reverse('runs:list'))}?{view.query}",
        "runs_url": f"{request.build_absolute_uri(reverse('api:list_runs'))}?{view.query}",
    }


urls = build_urls(SavedViews)
