"""Webhook deliveries: what was sent to endpoints and to addresses given with runs, with the tries."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from django.db.models import F, QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse
from pydantic import BeforeValidator, Field, ValidationInfo
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow
from runs.api.access import (
    CHANGE_RUNS,
    READ_RUNS,
    START_RUNS,
    has_access,
)
from runs.api.base import RETRY_AFTER, ApiView, operation
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_rows
from runs.api.problems import Conflict, InvalidQuery
from runs.documents.base import (
    Answer,
    Count,
    Name,
    Nothing,
    Omitted,
    Page,
    RowNumber,
    RowPaging,
    TextOrNull,
    Url,
    link,
)
from runs.models import DeliveryState, WebhookDelivery, WebhookEvent
from runs.models.webhook import hide_path
from runs.webhooks.deliveries import send_again
from runs.webhooks.messages import (
    build_body,
)


def _show_url(url: str, info: ValidationInfo) -> str:
    return url if info.context is not None and has_access(info.context, START_RUNS) else hide_path(url)


ShownUrl = Annotated[str, BeforeValidator(_show_url)]
SHOWN_TO = "Without the permission to start runs, or the scope for it, only the host is shown."


class Delivery(Answer):
    """One event, sent to one address."""

    id: int = Field(ge=1, description="The number of the delivery.")
    message_id: str = Field(description="What receivers read as `webhook-id`: the same at each try.")
    run: int | None = Field(validation_alias="run_id", description="The number of the run; null for a test.")
    flow: str | None = Field(
        validation_alias="flow_name", description="The name of its flow; null for a test of an endpoint of all flows."
    )
    endpoint: int | None = Field(
        validation_alias="endpoint_id",
        description="The number of the endpoint; null for an address given with the run, and if it was deleted.",
    )
    event: WebhookEvent = Field(description="What happened: `type` of the message.")
    webhook_url: ShownUrl = Field(validation_alias="url", description=f"Where it is sent. {SHOWN_TO}")
    status: DeliveryState = Field(
        validation_alias="state",
        description="`waiting`: it is tried, or tried again, by itself. `failed`: it is not tried again unless it is "
        "sent again.",
    )
    is_being_sent: Annotated[bool, BeforeValidator(lambda until: until is not None and until > timezone.now())] = Field(
        validation_alias="sending_until", description="Whether a try is in progress."
    )
    try_count: Count = Field(description="Tries so far.")
    last_http_status: int | None = Field(
        validation_alias="last_status", description="HTTP status of the last response; null if none arrived."
    )
    created_at: datetime = Field(description="UTC.")
    next_try_at: datetime | None = Field(description="UTC; null unless it waits for one.")
    ended_at: datetime | None = Field(description="UTC; null while it waits.")
    url: Annotated[Url, link("api:get_webhook_delivery")] = Field(validation_alias="id", description="Its address.")
    page_url: Annotated[Url, link("runs:webhook")] = Field(validation_alias="id", description="Its page.")
    run_url: Annotated[Url | None, link("api:get_run")] = Field(
        validation_alias="run_id", description="The address of the run; null for a test."
    )


class Try(Answer):
    """One POST to the address."""

    number: int = Field(ge=1, description="Which try it was, from 1.")
    started_at: datetime = Field(description="UTC.")
    ended_at: datetime | None = Field(description="UTC; null while it is in progress, or if the worker stopped.")
    duration: timedelta | None = Field(description="Seconds; null if that is not known.")
    http_status: int | None = Field(
        validation_alias="status", description="HTTP status of the response; null if none arrived."
    )
    problem: TextOrNull = Field(description="Why it did not succeed, in a sentence.")
    response: str = Field(description="How the body of the answer begins.")


class WholeDelivery(Delivery):
    """A delivery with what is sent and its tries."""

    payload: dict[str, Any] = Field(
        description="What is sent: `type`, `timestamp`, and the run in `data`. See `webhooks` in this document."
    )
    tries: list[Try] = Field(description="The latest 50, in their order.")


class DeliveryQuery(RowPaging):
    """Which deliveries are listed."""

    status: list[Literal["waiting", "delivered", "failed"]] = Field(
        default_factory=list, min_length=1, description="Only deliveries in one of these states."
    )
    run: RowNumber | Omitted = Field(None, description="Only those of this run.")
    flow: Name | Omitted = Field(None, description="Only those of the flow of this name.")
    endpoint: RowNumber | Omitted = Field(None, description="Only those to this endpoint.")


MAX_SHOWN_TRIES = 50
"""The latest tries of a delivery that are listed; it has at most eight unless it is sent again."""
_operation = partial(operation, tag="Webhooks")
SENT = {202: OpenApiResponse(WholeDelivery, "It will be sent shortly.")}


class WebhookDeliveries(ApiView):
    """What was sent, or is to be."""

    @_operation("GET webhook-deliveries", "List webhook deliveries", READ_RUNS)
    def list_webhook_deliveries(self, request: Request, query: DeliveryQuery) -> Page[Delivery]:
        """One delivery for each run that has ended and each address that it is sent to, and for each test; the newest
        first, without their tries.
        """
        rows = query.filter(_select_deliveries().defer("body"), run="run", endpoint="endpoint")
        if 0 < len(set(query.status)) < len(WebhookDelivery._meta.get_field("state").flatchoices):
            rows = rows.filter(state__in=query.status)
        if query.flow is not None:
            flow_id = Flow.objects.filter(name=query.flow).values_list("pk", flat=True).first()
            if flow_id is None:
                raise InvalidQuery([Problem("flow", "No flow has this name.")])
            rows = rows.filter(flow=flow_id)
        return build_page(Page[Delivery], request, fetch_rows(rows, query, is_descending=True))

    @_operation("GET webhook-deliveries/<int:delivery_id>", "Read a delivery with its tries", READ_RUNS)
    def get_webhook_delivery(self, request: Request, delivery_id: int) -> WholeDelivery:
        """What was sent, and of each try the status and the beginning of the answer, or why there is none."""
        return _load_delivery(request, delivery_id)

    @_operation(
        "POST webhook-deliveries/<int:delivery_id>/send-again",
        "Send a webhook again",
        CHANGE_RUNS,
        parameters=[RETRY_AFTER],
        answers=SENT,
    )
    @idempotent
    def send_webhook_again(self, request: Request, delivery_id: int, body: Nothing) -> HttpResponseBase:
        """Makes a new try at once, under the same `message_id` and with all retries before it.

        Refused with 409 while a try is under way.
        """
        if not send_again(get_object_or_404(_select_deliveries(), pk=delivery_id)):
            raise Conflict("being-sent", f"Delivery {delivery_id} is being sent. Read it again for the result.")
        return answer_sent(request, delivery_id)


def _select_deliveries() -> QuerySet[Any, Any]:
    rows: QuerySet[Any, Any] = WebhookDelivery.objects.annotate(flow_name=F("flow__name"))
    return rows


def _load_delivery(request: Request, delivery_id: int) -> WholeDelivery:
    """A delivery with its latest tries. Two queries, and two more before the first try."""
    delivery = get_object_or_404(_select_deliveries(), pk=delivery_id)
    tries = list(delivery.tries.order_by("-number")[:MAX_SHOWN_TRIES])
    payload = json.loads(delivery.body or build_body(delivery))
    return WholeDelivery.build({**vars(delivery), "payload": payload, "tries": tries[::-1]}, request)


def answer_sent(request: Request, delivery_id: int) -> Response:
    """The answer where a delivery will be sent shortly: the delivery."""
    return Response(_load_delivery(request, delivery_id), HTTPStatus.ACCEPTED, headers={"Retry-After": "1"})
