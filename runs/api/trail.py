"""The trail over the API: who did what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar

from django.http import QueryDict
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs.api.access import SEE_TRAIL, Need
from runs.api.looking import STOPS_EARLY
from runs.api.paging import NUMBERS, PAGING, answer_page, find_paging, shorten
from runs.api.problems import InvalidQuery
from runs.api.run_query import find_choice, find_choices, find_text
from runs.api.schema_parts import LIMIT, PageSerializer
from runs.api.trail_reading import read_trail_page
from runs.api.view import ApiView
from runs.models import TrailEntry
from runs.trail.actions import TrailAction
from runs.trail.finding import KINDS, TrailFilters

FILTERS = ("actor", "action", "kind", "id", "from", "to")

_PLACE = {"type": "integer", "minimum": 1}
_DAY = {"type": "string", "format": "date"}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 200}
_YEARS = range(1970, 2200)
_PARAMETERS = [
    OpenApiParameter("actor", _TEXT, description="Only what the user of this name did."),
    OpenApiParameter(
        "action",
        {"type": "array", "items": {"type": "string", "enum": list(TrailAction.values)}, "minItems": 1},
        explode=False,
        description="Only these actions.",
    ),
    OpenApiParameter(
        "kind", {"type": "string", "enum": list(KINDS)}, description="Only what was done to such a thing."
    ),
    OpenApiParameter("id", _TEXT, description="Only what was done to the one with this number; only with `kind`."),
    OpenApiParameter("from", _DAY, description="Only what was done on this day or later, in UTC."),
    OpenApiParameter("to", _DAY, description="Only what was done on this day or earlier, in UTC."),
    LIMIT,
    OpenApiParameter("before", _PLACE, description="Only what is older than the entry of this number."),
    OpenApiParameter("after", _PLACE, description="Only what is newer than the entry of this number."),
]


class TrailEntrySerializer(serializers.Serializer[Any]):
    """Something that somebody did. Names are what was called so then."""

    id = serializers.IntegerField(min_value=1, help_text="The number of the entry.")
    at = serializers.DateTimeField(help_text="When, in UTC.")
    actor = serializers.CharField(
        allow_null=True, help_text="Who did it; null for a command, and for somebody unknown who failed to sign in."
    )
    token = serializers.CharField(allow_null=True, help_text="The name of the API token, if one was used.")
    ip_address = serializers.CharField(allow_null=True, help_text="Where the request came from; null if it was none.")
    action = serializers.CharField(help_text="What was done: one of those of the parameter `action`, or a later one.")
    object_kind = serializers.CharField(allow_null=True, help_text="To what it was done: `flow`, `run`.")
    object_id = serializers.CharField(allow_null=True, help_text="The number of that.")
    object_label = serializers.CharField(allow_null=True, help_text="What that was called.")
    details = serializers.DictField(help_text="A few figures and names; no inputs, no outputs, no secrets.")
    request_id = serializers.CharField(allow_null=True, help_text="By which the log knows the request.")


class TrailPageSerializer(PageSerializer):
    """A page of the trail."""

    items = serializers.ListField(child=TrailEntrySerializer(), help_text="The newest first.")


class TrailView(ApiView):
    """The entries."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_TRAIL}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": (*FILTERS, *PAGING)}
    repeatable = ("action",)

    @extend_schema(
        operation_id="listTrail",
        tags=["Trail"],
        summary="Read who did what",
        description="Sign-ins, changes of flows, users, tokens and limits, runs that were started or cancelled, "
        "exports: the newest first. It takes the permission to see the trail, which administrators have. To read on "
        "from where a script stopped, ask with `after` and the number of the last entry that it has. " + STOPS_EARLY,
        parameters=_PARAMETERS,
        responses={200: OpenApiResponse(TrailPageSerializer, "A page of entries.")},
    )
    def get(self, request: Request) -> Response:
        """A page of entries."""
        query = request.query_params
        paging, problems = find_paging(query, NUMBERS)
        filters = _find_filters(query, problems)
        if problems:
            raise InvalidQuery(problems)
        page = read_trail_page(filters, paging)
        return answer_page(request, page, [_describe(entry) for entry in page.rows])


def _find_filters(query: QueryDict, problems: list[Problem]) -> TrailFilters:
    actor = find_text(query, "actor", problems)
    actions = find_choices(query, "action", TrailAction.values, problems)
    kind = find_choice(query, "kind", KINDS, "", problems) if "kind" in query else ""
    key = find_text(query, "id", problems)
    if key and "kind" not in query:
        problems.append(Problem("id", "Numbers are those of a kind of thing: give “kind” too, such as kind=run."))
    first, last = (_find_day(query, name, problems) for name in ("from", "to"))
    if first is not None and last is not None and first > last:
        problems.append(Problem("to", f"No day is after {first} and before {last}: the first day comes first."))
    return TrailFilters(
        actor=actor,
        actions=frozenset(actions),
        kind=kind,
        object_id=key,
        since=None if first is None else _begin(first),
        until=None if last is None else _begin(last + timedelta(days=1)),
    )


def _find_day(query: QueryDict, name: str, problems: list[Problem]) -> date | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if len(text) != len("2026-11-21") or day.year not in _YEARS:
        problems.append(Problem(name, f"“{shorten(text)}” is not a day such as 2026-11-21."))
        return None
    return day


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def _describe(entry: TrailEntry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        "at": entry.at,
        "actor": entry.actor_name or None,
        "token": entry.token_name or None,
        "ip_address": entry.address or None,
        "action": entry.action,
        "object_kind": entry.object_kind or None,
        "object_id": entry.object_id or None,
        "object_label": entry.object_label or None,
        "details": entry.details,
        "request_id": entry.request_id or None,
    }


urls: list[URLPattern] = [path("trail", TrailView.as_view(), name="trail")]
