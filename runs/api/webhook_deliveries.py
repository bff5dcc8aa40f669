"""What receivers of webhooks were told, each with its tries; and sending one again."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow
from flows.webhook_address import hide_path
from runs.api.access import CHANGE_AND_SEE_RUNS, SEE_RUNS, Need
from runs.api.idempotency import idempotent
from runs.api.looking import STOPS_EARLY, find_page
from runs.api.paging import (
    NUMBERS,
    PAGING,
    Page,
    Paging,
    answer_page,
    find_paging,
    read_page,
    shorten,
)
from runs.api.problems import Conflict, InvalidQuery
from runs.api.reading import read_body
from runs.api.run_actions_schema import REPLAYED, NothingSerializer
from runs.api.run_links import RunLinks
from runs.api.run_query import find_choices, find_row, find_text
from runs.api.schema_parts import IDEMPOTENCY_KEY, problem_responses
from runs.api.view import ApiView
from runs.api.webhook_deliveries_schema import (
    DELIVERY_PAGING,
    FILTERS,
    RETRY_AFTER,
    TAGS,
    DeliveryPageSerializer,
    WholeDeliverySerializer,
)
from runs.models import DeliveryState, Run, WebhookDelivery, WebhookTry
from runs.paging import Stream
from runs.prepared_select import LARGEST_NUMBER
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail
from runs.webhooks.messages import wake_sender
from runs.webhooks.payload import build_body

MOST_TRIES = 50
"""Of a delivery, the latest; it has eight unless somebody asks for more."""


class DeliveryList(ApiView):
    """The deliveries."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": ("status", "run", "flow", *PAGING)}
    repeatable = ("status",)

    @extend_schema(
        operation_id="listWebhookDeliveries",
        tags=TAGS,
        summary="List what receivers of webhooks were told",
        description="One delivery for each run that has ended and each address that wanted to know, the newest first. "
        + STOPS_EARLY,
        parameters=[*FILTERS, *DELIVERY_PAGING],
        responses={200: OpenApiResponse(DeliveryPageSerializer, "A page of deliveries.")},
    )
    def get(self, request: Request) -> Response:
        """A page of deliveries."""
        query = request.query_params
        paging, problems = find_paging(query, NUMBERS)
        statuses = find_choices(query, "status", DeliveryState.values, problems)
        run = find_row(query, "run", problems)
        flow = find_text(query, "flow", problems)
        flow_id = Flow.objects.filter(name=flow).values_list("pk", flat=True).first() if flow else None
        if flow and flow_id is None:
            problems.append(Problem("flow", f"There is no flow “{shorten(flow)}”."))
        if problems:
            raise InvalidQuery(problems)
        page = _read_page(paging, statuses=frozenset(statuses), run=run, flow_id=flow_id)
        writer = _Writer(request)
        return answer_page(request, page, [writer.describe(row) for row in page.rows])


class DeliveryDetail(ApiView):
    """One delivery."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS}

    @extend_schema(
        operation_id="getWebhookDelivery",
        tags=TAGS,
        summary="Read a delivery with its tries",
        description="What was sent, and what came of each try: the status and the beginning of the answer, or why "
        "there was none.",
        responses={200: OpenApiResponse(WholeDeliverySerializer, "The delivery."), **problem_responses(404)},
    )
    def get(self, request: Request, delivery_id: int) -> Response:
        """The delivery."""
        return Response(_Writer(request).describe_whole(_find_delivery(delivery_id)))


class DeliveryAgain(ApiView):
    """Sending a delivery again."""

    needs: ClassVar[Mapping[str, Need]] = {"POST": CHANGE_AND_SEE_RUNS}

    @extend_schema(
        operation_id="sendWebhookAgain",
        tags=TAGS,
        summary="Send a webhook again",
        description="Makes a new try at once, under the same `message_id` and with all retries before it, however the "
        "delivery stands. Refused with 409 while a try is under way.",
        parameters=[IDEMPOTENCY_KEY, RETRY_AFTER, REPLAYED],
        request=NothingSerializer,
        responses={
            202: OpenApiResponse(WholeDeliverySerializer, "It is about to be sent."),
            **problem_responses(404, 409),
        },
    )
    @idempotent
    def post(self, request: Request, delivery_id: int) -> HttpResponseBase:
        """Let it be tried now; 409 if it is being sent."""
        read_body(NothingSerializer, request)
        delivery = _find_delivery(delivery_id)
        with transaction.atomic():
            if not delivery.send_again():
                raise Conflict(
                    "being-sent", f"Delivery {delivery_id} is being sent at this moment; see what comes of it."
                )
            leave_trail(action=TrailAction.WEBHOOK_SENT_AGAIN, about=delivery)
            wake_sender()
        document = _Writer(request).describe_whole(_find_delivery(delivery_id))
        return Response(document, HTTPStatus.ACCEPTED, headers={"Retry-After": "1"})


class _Writer:
    """Makes documents of deliveries, with addresses as whoever asks may see them."""

    def __init__(self, request: Request) -> None:
        self._runs = RunLinks(request)
        self._url = request.build_absolute_uri(reverse("api:webhook-delivery-list"))
        self._pages = request.build_absolute_uri(reverse("runs:webhooks"))
        self._now = timezone.now()

    def describe(self, row: Any) -> dict[str, Any]:
        """A delivery without its tries."""
        return {
            "id": row.pk,
            "message_id": row.message_id,
            "run": row.run_id,
            "flow": row.flow_name,
            "event": row.event,
            "webhook_url": row.url if self._runs.has_address else hide_path(row.url),
            "status": row.state,
            "is_being_sent": row.sending_until is not None and row.sending_until > self._now,
            "try_count": row.try_count,
            "last_http_status": row.last_status,
            "created_at": row.created_at,
            "next_try_at": row.next_try_at,
            "ended_at": row.ended_at,
            "url": f"{self._url}/{row.pk}",
            "page_url": f"{self._pages}{row.pk}/",
            "run_url": self._runs.link_run(row.run_id),
        }

    def describe_whole(self, delivery: WebhookDelivery) -> dict[str, Any]:
        """A delivery with what is sent and its latest tries. One query, and two more before the first try."""
        tries = list(delivery.tries.order_by("-number")[:MOST_TRIES])[::-1]
        payload: dict[str, Any] = json.loads(delivery.body or build_body(delivery))
        return {**self.describe(delivery), "payload": payload, "tries": [_describe_try(one) for one in tries]}


def _describe_try(one: WebhookTry) -> dict[str, Any]:
    return {
        "number": one.number,
        "started_at": one.started_at,
        "ended_at": one.ended_at,
        "duration": one.seconds,
        "http_status": one.status,
        "problem": one.problem or None,
        "response": one.response,
    }


def _select() -> QuerySet[Any, Any]:
    rows: QuerySet[Any, Any] = WebhookDelivery.objects.annotate(flow_name=F("run__flow__name")).defer("body")
    return rows


def _read_page(
    paging: Paging[int], *, statuses: Collection[str], run: int | None, flow_id: int | None
) -> Page[WebhookDelivery]:
    """The page of the deliveries that match, read without going through all others."""
    if run is not None:
        # A run has few of them.
        rows = _select().filter(run=run)
        if statuses:
            rows = rows.filter(state__in=statuses)
        if flow_id is not None:
            rows = rows.filter(run__flow=flow_id)
        return read_page(rows, paging, column="pk", key_of=_find_key, is_descending=True)
    # The index of each status has its deliveries in order; several together would have to be sorted.
    is_any = not statuses or len(statuses) == len(DeliveryState)
    conditions = [Q()] if is_any else [Q(state=status) for status in statuses]
    if flow_id is None and len(conditions) == 1:
        rows = _select().filter(conditions[0])
        return read_page(rows, paging, column="pk", key_of=_find_key, is_descending=True)
    streams = [Stream(WebhookDelivery.objects.filter(condition), time="") for condition in conditions]
    # Joined, a database may choose to begin with all runs of the flow.
    of_flow = Run.objects.filter(pk=OuterRef("run"), flow=flow_id).values("pk")[:1]
    matches = None if flow_id is None else Subquery(of_flow)
    found = find_page(streams, paging, matches=matches)
    return Page(list(_select().filter(pk__in=found.rows).order_by("-pk")), found.next, found.previous)


def _find_key(row: Any) -> int:
    key: int = row.pk
    return key


def _find_delivery(delivery_id: int) -> Any:
    delivery = _select().defer(None).filter(pk=delivery_id).first() if delivery_id <= LARGEST_NUMBER else None
    if delivery is None:
        raise Http404
    return delivery


urls: list[URLPattern] = [
    path("webhook-deliveries", DeliveryList.as_view(), name="webhook-delivery-list"),
    path("webhook-deliveries/<int:delivery_id>", DeliveryDetail.as_view(), name="webhook-delivery"),
    path("webhook-deliveries/<int:delivery_id>/send-again", DeliveryAgain.as_view(), name="webhook-delivery-again"),
]
