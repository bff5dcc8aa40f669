"""Filters of the list of runs that users keep under a name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import CANCEL_RUNS, KEEP_VIEWS, SEE_RUNS, Need
from runs.api.body_fields import FlagField, TextField
from runs.api.filter_fields import FiltersField, WrittenFiltersField, write_filters
from runs.api.flow_reading import find_user
from runs.api.idempotency import idempotent
from runs.api.paging import NUMBERS, PAGING, answer_page, read_page, read_paging
from runs.api.problems import Conflict
from runs.api.reading import StrictSerializer, read_body
from runs.api.schema_parts import IDEMPOTENCY_KEY, LIMIT, REPLAYED, PageSerializer, problem_responses
from runs.api.view import ApiView
from runs.filters import RunFilters
from runs.models import SavedView
from runs.models.saved_view import LONGEST_NAME
from runs.prepared_select import LARGEST_NUMBER

MOST_VIEWS = 50
"""Views that one user may keep."""
TAGS = ["Saved views"]

_PLACE = {"type": "integer", "minimum": 1}
_VIEW_PAGING = [
    LIMIT,
    OpenApiParameter("before", _PLACE, description="Only views that are older than the one of this number."),
    OpenApiParameter("after", _PLACE, description="Only views that are newer than the one of this number."),
]
_LOCATION = OpenApiParameter(
    "Location", OpenApiTypes.URI, OpenApiParameter.HEADER, description="Where the view is read.", response=[201]
)


class NewViewSerializer(StrictSerializer):
    """Filters to be kept under a name."""

    name = TextField(min_length=1, max_length=LONGEST_NAME, help_text="What it is called; each of your names once.")
    filters = FiltersField(help_text="The filters, those of `listRuns`; at least one.")
    is_shared = FlagField(
        required=False,
        help_text="Whether everybody who may see runs sees it; takes the permission to change runs. Not, if it is "
        "left out.",
    )

    def validate_name(self, name: str) -> str:
        """The name with single spaces. Raises ``ValidationError`` for what nobody could read."""
        tidy = " ".join(name.split())
        if not tidy or not tidy.isprintable():
            raise serializers.ValidationError("A name has letters, digits and signs that one can see.")
        return tidy

    def validate_filters(self, filters: RunFilters) -> RunFilters:
        """The filters. Raises ``ValidationError`` if there are none."""
        if filters.is_empty:
            raise serializers.ValidationError("A view has filters: without any it is the list itself.")
        return filters


class SavedViewSerializer(serializers.Serializer[Any]):
    """Filters that somebody keeps under a name."""

    id = serializers.IntegerField(min_value=1, help_text="The number of the view.")
    name = serializers.CharField(help_text="What it is called.")
    created_by = serializers.CharField(help_text="The user who keeps it; nobody else can delete it.")
    is_shared = serializers.BooleanField(help_text="Whether everybody who may see runs sees it.")
    filters = WrittenFiltersField(help_text="The filters.")
    created_at = serializers.DateTimeField(help_text="UTC.")
    url = serializers.URLField(help_text="Where it is read.")
    page_url = serializers.URLField(help_text="Where people see the runs that match.")
    runs_url = serializers.URLField(help_text="The list of the runs that match.")


class SavedViewPageSerializer(PageSerializer):
    """A page of views."""

    items = serializers.ListField(child=SavedViewSerializer(), help_text="The newest first.")


class SavedViewList(ApiView):
    """The views."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS, "POST": KEEP_VIEWS}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": PAGING}

    @extend_schema(
        operation_id="listSavedViews",
        tags=TAGS,
        summary="List saved views",
        description="Your own, and those that others share.",
        parameters=_VIEW_PAGING,
        responses={200: OpenApiResponse(SavedViewPageSerializer, "A page of views.")},
    )
    def get(self, request: Request) -> Response:
        """A page of views."""
        paging = read_paging(request.query_params, NUMBERS)
        page = read_page(_select(request), paging, column="pk", key_of=lambda view: view.pk, is_descending=True)
        return answer_page(request, page, [_describe(view, request) for view in page.rows])

    @extend_schema(
        operation_id="createSavedView",
        tags=TAGS,
        summary="Save a view",
        description=f"Keeps filters under a name, beside the list of runs. Everybody may keep {MOST_VIEWS}.",
        parameters=[IDEMPOTENCY_KEY, _LOCATION, REPLAYED],
        request=NewViewSerializer,
        examples=[
            OpenApiExample(
                "What failed",
                value={"name": "Failed themes", "filters": {"flow": "colour-theme", "status": ["failed", "errored"]}},
                request_only=True,
            )
        ],
        responses={201: OpenApiResponse(SavedViewSerializer, "It is saved."), **problem_responses(409)},
    )
    @idempotent
    def post(self, request: Request) -> HttpResponseBase:
        """Save a view."""
        body = read_body(NewViewSerializer, request)
        is_shared = body.get("is_shared", False)
        if is_shared and not request.user.has_perm(CANCEL_RUNS.permission):
            raise PermissionDenied(f"To share a view takes the permission “{CANCEL_RUNS.permission}”.")
        user = find_user(request)
        if SavedView.objects.filter(owner=user).count() >= MOST_VIEWS:
            raise Conflict(
                "too-many-views", f"You have {MOST_VIEWS} views already; delete one that you no longer need."
            )
        try:
            with transaction.atomic():
                view = SavedView.objects.create(
                    owner=user, name=body["name"], query=body["filters"].to_query(), is_shared=is_shared
                )
        except IntegrityError:
            sentence = f"You have a view “{body['name']}” already; choose another name, or delete that one first."
            raise Conflict("name-taken", sentence) from None
        document = _describe(view, request)
        return Response(document, HTTPStatus.CREATED, headers={"Location": document["url"]})


class SavedViewDetail(ApiView):
    """One view."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS, "DELETE": KEEP_VIEWS}

    @extend_schema(
        operation_id="getSavedView",
        tags=TAGS,
        summary="Read a saved view",
        responses={200: OpenApiResponse(SavedViewSerializer, "The view."), **problem_responses(404)},
    )
    def get(self, request: Request, view_id: int) -> Response:
        """The view."""
        return Response(_describe(_find_view(_select(request), view_id), request))

    @extend_schema(
        operation_id="deleteSavedView",
        tags=TAGS,
        summary="Delete a saved view",
        description="One of your own; nobody deletes those of others.",
        request=None,
        responses={204: OpenApiResponse(description="It is gone."), **problem_responses(404)},
    )
    def delete(self, request: Request, view_id: int) -> HttpResponse:
        """Delete the view."""
        _find_view(SavedView.objects.filter(owner=find_user(request)), view_id).delete()
        return HttpResponse(status=HTTPStatus.NO_CONTENT)


def _select(request: Request) -> QuerySet[SavedView]:
    return SavedView.objects.seen_by(find_user(request).pk).select_related("owner")


def _find_view(views: QuerySet[SavedView], view_id: int) -> SavedView:
    view = views.filter(pk=view_id).first() if view_id <= LARGEST_NUMBER else None
    if view is None:
        raise Http404
    return view


def _describe(view: SavedView, request: Request) -> dict[str, Any]:
    return {
        "id": view.pk,
        "name": view.name,
        "created_by": view.owner.get_username(),
        "is_shared": view.is_shared,
        "filters": write_filters(view.query),
        "created_at": view.created_at,
        "url": request.build_absolute_uri(reverse("api:saved-view", args=[view.pk])),
        "page_url": f"{request.build_absolute_uri(reverse('runs:list'))}?{view.query}",
        "runs_url": f"{request.build_absolute_uri(reverse('api:run-list'))}?{view.query}",
    }


urls: list[URLPattern] = [
    path("saved-views", SavedViewList.as_view(), name="saved-view-list"),
    path("saved-views/<int:view_id>", SavedViewDetail.as_view(), name="saved-view"),
]
