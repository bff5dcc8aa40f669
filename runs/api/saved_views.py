"""Views of the list of runs that users keep under a name."""

from __future__ import annotations

from http import HTTPStatus

from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.json_values import format_pointer
from runs import models
from runs.api.access import CHANGE_RUNS, KEEP_VIEWS, READ_RUNS, find_user, require_permission
from runs.api.base import ApiView, build_page, operation
from runs.api.filter_fields import parse_filters, write_filters
from runs.api.idempotency import idempotent
from runs.api.openapi import IDEMPOTENCY_KEY, REPLAYED
from runs.api.paging import NUMBERS, Paging, read_page
from runs.api.problems import Conflict, InvalidBody, InvalidQuery
from runs.api.schemas.saved_views import NewView, SavedView, SavedViewPage, ViewPaging
from runs.models.saved_view import NameTakenError, TooManyViewsError

TAG = "Saved views"
LOCATION = OpenApiParameter(
    "Location", OpenApiTypes.URI, OpenApiParameter.HEADER, description="Where the view is read.", response=[201]
)
EXAMPLE = OpenApiExample(
    "What failed",
    value={"name": "Failed themes", "filters": {"flow": "colour-theme", "status": ["failed", "errored"]}},
    request_only=True,
)


class SavedViewList(ApiView):
    """``/saved-views``"""

    @operation(
        "listSavedViews",
        "List saved views",
        tag=TAG,
        requires=READ_RUNS,
        query=ViewPaging,
        answers={200: SavedViewPage},
    )
    def get(self, request: Request, query: ViewPaging) -> Response:
        """Your own, and those that others share."""
        if query.before is not None and query.after is not None:
            raise InvalidQuery([Problem("after", "“before” and “after” can’t be combined.")])
        paging = Paging(NUMBERS, query.limit, query.before, query.after)
        page = read_page(_select_seen(request), paging, column="pk", key_of=lambda view: view.pk, is_descending=True)
        items = [_build(view, request) for view in page.rows]
        return build_page(SavedViewPage, request, items, next=page.next, previous=page.previous)

    @operation(
        "createSavedView",
        "Save a view",
        tag=TAG,
        requires=KEEP_VIEWS,
        parameters=[IDEMPOTENCY_KEY, LOCATION, REPLAYED],
        body=NewView,
        examples=[EXAMPLE],
        answers={201: SavedView},
        problems=[409],
    )
    @idempotent
    def post(self, request: Request, body: NewView) -> HttpResponseBase:
        """Keeps filters under a name, beside the list of runs. Each user may keep 50."""
        filters, wrong = parse_filters(body.filters)
        problems = [Problem(format_pointer(("filters", name)), sentences[0]) for name, sentences in wrong.items()]
        if not problems and filters.is_empty:
            problems = [Problem("/filters", "A view has filters: without any it is the list itself.")]
        if problems:
            raise InvalidBody(problems)
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
        document = _build(view, request)
        return Response(document, HTTPStatus.CREATED, headers={"Location": document.url})


class SavedViewDetail(ApiView):
    """``/saved-views/<view_id>``"""

    @operation(
        "getSavedView", "Read a saved view", tag=TAG, requires=READ_RUNS, answers={200: SavedView}, problems=[404]
    )
    def get(self, request: Request, view_id: int) -> SavedView:
        """One of your own, or one that is shared."""
        view = _select_seen(request).filter(pk=view_id).first()
        if view is None:
            raise Http404
        return _build(view, request)

    @operation(
        "deleteSavedView",
        "Delete a saved view",
        tag=TAG,
        requires=KEEP_VIEWS,
        answers={204: OpenApiResponse(description="It is gone.")},
        problems=[404],
    )
    def delete(self, request: Request, view_id: int) -> Response:
        """One of your own; those of others can't be deleted."""
        deleted, _ = models.SavedView.objects.filter(owner=find_user(request), pk=view_id).delete()
        if not deleted:
            raise Http404
        return Response(status=HTTPStatus.NO_CONTENT)


def _select_seen(request: Request) -> QuerySet[models.SavedView]:
    return models.SavedView.objects.seen_by(find_user(request).pk).select_related("owner")


def _build(view: models.SavedView, request: Request) -> SavedView:
    return SavedView(
        id=view.pk,
        name=view.name,
        created_by=view.owner.get_username(),
        is_shared=view.is_shared,
        filters=write_filters(view.query),
        created_at=view.created_at,
        url=request.build_absolute_uri(reverse("api:saved-view", args=[view.pk])),
        page_url=f"{request.build_absolute_uri(reverse('runs:list'))}?{view.query}",
        runs_url=f"{request.build_absolute_uri(reverse('api:run-list'))}?{view.query}",
    )


urls: list[URLPattern] = [
    path("saved-views", SavedViewList.as_view(), name="saved-view-list"),
    path("saved-views/<int:view_id>", SavedViewDetail.as_view(), name="saved-view"),
]
