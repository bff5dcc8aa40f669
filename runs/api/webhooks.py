"""Webhook endpoints, and what was delivered to them and to addresses given with runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow
from runs.api.access import (
    ADD_ENDPOINTS,
    CHANGE_ENDPOINTS,
    CHANGE_RUNS,
    DELETE_ENDPOINTS,
    READ_ENDPOINTS,
    READ_RUNS,
    build_links,
)
from runs.api.base import LOCATION, RETRY_AFTER, ApiView, build_urls, operation
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_page
from runs.api.problems import Conflict, InvalidBody, InvalidQuery
from runs.api.schemas.webhooks import (
    ChangedEndpoint,
    DeliveryPage,
    DeliveryQuery,
    NewEndpoint,
    NewWebhookEndpoint,
    RotatedSecret,
    Rotation,
    WebhookEndpoint,
    WebhookEndpointPage,
    WholeDelivery,
)
from runs.documents.base import Nothing, RowPaging
from runs.models import WebhookDelivery
from runs.models import WebhookEndpoint as EndpointRow
from runs.webhooks.deliveries import create_test, send_again
from runs.webhooks.messages import (
    RotatedRecentlyError,
    build_body,
    derive_secret,
    find_overlap_end,
    rotate_secret,
)

MAX_TRIES = 50
"""Of a delivery, the latest; it has eight unless it is sent again."""
_operation = partial(operation, tag="Webhooks")
_SENT = {202: OpenApiResponse(WholeDelivery, "It will be sent shortly.")}

# ---------------------------------------------------------------------------------------------------------------------
# Endpoints


class WebhookEndpoints(ApiView):
    """Addresses that are notified when runs end."""

    @_operation("GET webhook-endpoints", "List webhook endpoints", READ_ENDPOINTS)
    def list_webhook_endpoints(self, request: Request, query: RowPaging) -> WebhookEndpointPage:
        """The endpoints of all flows and of single ones, each with its last delivery."""
        rows = EndpointRow.objects.with_last_delivery().select_related("flow")
        page = fetch_page(rows, query)
        return build_page(WebhookEndpointPage, request, page, list(_describe_endpoints(request, page.rows)))

    @_operation(
        "POST webhook-endpoints",
        "Create a webhook endpoint",
        ADD_ENDPOINTS,
        parameters=[LOCATION],
        answers={201: OpenApiResponse(NewWebhookEndpoint, "The endpoint, with its secret.")},
        problems=[409],
    )
    def create_webhook_endpoint(self, request: Request, body: NewEndpoint) -> Response:
        """Sends the ends of the runs of a flow, or of all flows, to an address from now on.

        The answer has the secret that receivers verify messages with; it is not shown again. An address that the flow
        has already is refused with 409, so that a request that is sent twice creates one endpoint.
        """
        flow = Flow.objects.filter(name=body.flow).first() if body.flow else None
        if body.flow and flow is None:
            raise InvalidBody([Problem("/flow", "No flow has this name.")])
        row = EndpointRow(
            url=body.webhook_url,
            flow=flow,
            event_types=sorted(set(body.event_types or ())),
            is_enabled=body.is_enabled is not False,
        )
        _save(row)
        (values,) = _describe_endpoints(request, [_fetch_endpoint(row.pk)])
        answer = NewWebhookEndpoint.model_validate({**values, "secret": derive_secret(row)})
        return Response(answer, HTTPStatus.CREATED, headers={"Location": answer.url})

    @_operation("GET webhook-endpoints/<int:endpoint_id>", "Read a webhook endpoint", READ_ENDPOINTS)
    def get_webhook_endpoint(self, request: Request, endpoint_id: int) -> WebhookEndpoint:
        """With its last delivery, without its secret."""
        return _read_endpoint(request, endpoint_id)

    @_operation(
        "PATCH webhook-endpoints/<int:endpoint_id>", "Change a webhook endpoint", CHANGE_ENDPOINTS, problems=[409]
    )
    def change_webhook_endpoint(self, request: Request, endpoint_id: int, body: ChangedEndpoint) -> WebhookEndpoint:
        """What is waiting for a retry still goes to the address that it was made for; none if it is disabled."""
        row = _fetch_endpoint(endpoint_id)
        if body.webhook_url is not None:
            row.url = body.webhook_url
        if body.event_types is not None:
            row.event_types = sorted(set(body.event_types))
        if body.is_enabled is not None:
            row.is_enabled = body.is_enabled
        _save(row, ["url", "event_types", "is_enabled"])
        return _read_endpoint(request, endpoint_id)

    @_operation(
        "DELETE webhook-endpoints/<int:endpoint_id>",
        "Delete a webhook endpoint",
        DELETE_ENDPOINTS,
        answers={204: OpenApiResponse(None, "It is deleted.")},
    )
    def delete_webhook_endpoint(self, request: Request, endpoint_id: int) -> Response:
        """Its deliveries stay listed; those that wait are not sent any more."""
        _fetch_endpoint(endpoint_id).delete()
        return Response(status=HTTPStatus.NO_CONTENT)

    @_operation(
        "POST webhook-endpoints/<int:endpoint_id>/test",
        "Send a test to a webhook endpoint",
        CHANGE_ENDPOINTS,
        parameters=[RETRY_AFTER],
        answers=_SENT,
    )
    @idempotent
    def test_webhook_endpoint(self, request: Request, endpoint_id: int, body: Nothing) -> HttpResponseBase:
        """Sends a signed message of the type `webhook.test`, also to an endpoint that is disabled."""
        return _answer_sent(request, create_test(_fetch_endpoint(endpoint_id)).pk)

    @_operation(
        "POST webhook-endpoints/<int:endpoint_id>/rotate-secret",
        "Rotate the secret of a webhook endpoint",
        CHANGE_ENDPOINTS,
        problems=[409],
    )
    def rotate_webhook_secret(self, request: Request, endpoint_id: int, body: Rotation) -> RotatedSecret:
        """Messages are signed with the new secret at once, and for seven days with the previous one, too.

        While a previous one counts, another rotation would end it at once: that is refused with 409 unless `again` is
        true.
        """
        row = _fetch_endpoint(endpoint_id)
        try:
            rotate_secret(row, ends_previous=body.again)
        except RotatedRecentlyError as error:
            raise Conflict("secret-changed-lately", f"{error} Send “again” to do so.") from error
        return RotatedSecret.model_validate({"secret": derive_secret(row), "previous_until": find_overlap_end(row)})


def _save(row: EndpointRow, fields: Collection[str] | None = None) -> None:
    """Store all columns, or only ``fields``: a secret that is rotated at the same time stays."""
    try:
        with transaction.atomic():
            row.save(update_fields=fields)
    except IntegrityError:
        raise Conflict("endpoint-exists", "An endpoint with this URL and flow already exists.") from None


def _fetch_endpoint(endpoint_id: int) -> Any:
    row = EndpointRow.objects.with_last_delivery().select_related("flow").filter(pk=endpoint_id).first()
    if row is None:
        raise Http404
    return row


def _read_endpoint(request: Request, endpoint_id: int) -> WebhookEndpoint:
    (values,) = _describe_endpoints(request, [_fetch_endpoint(endpoint_id)])
    return WebhookEndpoint.model_validate(values)


def _describe_endpoints(request: Request, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    links, url = build_links(request), request.build_absolute_uri(reverse("api:list_webhook_endpoints"))
    for row in rows:
        yield {
            **vars(row),
            "webhook_url": links.show_webhook(row.url),
            "flow": row.flow.name if row.flow else None,
            "last_delivery": vars(row) if row.last_delivery_id else None,
            "url": f"{url}/{row.pk}",
        }


# ---------------------------------------------------------------------------------------------------------------------
# Deliveries


class WebhookDeliveries(ApiView):
    """What was sent, or is to be."""

    @_operation("GET webhook-deliveries", "List webhook deliveries", READ_RUNS)
    def list_webhook_deliveries(self, request: Request, query: DeliveryQuery) -> DeliveryPage:
        """One delivery for each run that has ended and each address that it is sent to, and for each test."""
        rows = _select_deliveries().defer("body")
        if query.run is not None:
            rows = rows.filter(run=query.run)
        if query.endpoint is not None:
            rows = rows.filter(endpoint=query.endpoint)
        if 0 < len(set(query.status)) < len(WebhookDelivery._meta.get_field("state").flatchoices):
            rows = rows.filter(state__in=query.status)
        if query.flow is not None:
            flow_id = Flow.objects.filter(name=query.flow).values_list("pk", flat=True).first()
            if flow_id is None:
                raise InvalidQuery([Problem("flow", "No flow has this name.")])
            rows = rows.filter(flow=flow_id)
        page = fetch_page(rows, query, is_descending=True)
        return build_page(DeliveryPage, request, page, list(_describe_deliveries(request, page.rows)))

    @_operation("GET webhook-deliveries/<int:delivery_id>", "Read a delivery with its tries", READ_RUNS)
    def get_webhook_delivery(self, request: Request, delivery_id: int) -> WholeDelivery:
        """What was sent, and of each try the status and the beginning of the answer, or why there is none."""
        return _read_delivery(request, delivery_id)

    @_operation(
        "POST webhook-deliveries/<int:delivery_id>/send-again",
        "Send a webhook again",
        CHANGE_RUNS,
        parameters=[RETRY_AFTER],
        answers=_SENT,
    )
    @idempotent
    def send_webhook_again(self, request: Request, delivery_id: int, body: Nothing) -> HttpResponseBase:
        """Makes a new try at once, under the same `message_id` and with all retries before it.

        Refused with 409 while a try is under way.
        """
        if not send_again(_fetch_delivery(delivery_id)):
            raise Conflict("being-sent", f"Delivery {delivery_id} is being sent. Read it again for the result.")
        return _answer_sent(request, delivery_id)


def _select_deliveries() -> QuerySet[Any, Any]:
    rows: QuerySet[Any, Any] = WebhookDelivery.objects.annotate(flow_name=F("flow__name"))
    return rows


def _fetch_delivery(delivery_id: int) -> Any:
    delivery = _select_deliveries().filter(pk=delivery_id).first()
    if delivery is None:
        raise Http404
    return delivery


def _read_delivery(request: Request, delivery_id: int) -> WholeDelivery:
    """A delivery with its latest tries. Two queries, and two more before the first try."""
    delivery = _fetch_delivery(delivery_id)
    tries = [{**vars(one), "duration": one.duration} for one in delivery.tries.order_by("-number")[:MAX_TRIES]]
    payload = json.loads(delivery.body or build_body(delivery))
    (values,) = _describe_deliveries(request, [delivery])
    return WholeDelivery.model_validate({**values, "payload": payload, "tries": tries[::-1]})


def _answer_sent(request: Request, delivery_id: int) -> Response:
    return Response(_read_delivery(request, delivery_id), HTTPStatus.ACCEPTED, headers={"Retry-After": "1"})


def _describe_deliveries(request: Request, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The values of rows, with addresses as the caller may see them."""
    links, now = build_links(request), timezone.now()
    url = request.build_absolute_uri(reverse("api:list_webhook_deliveries"))
    pages = request.build_absolute_uri(reverse("runs:webhooks"))
    for row in rows:
        yield {
            **vars(row),
            "webhook_url": links.show_webhook(row.url),
            "is_being_sent": row.sending_until is not None and row.sending_until > now,
            "url": f"{url}/{row.pk}",
            "page_url": f"{pages}{row.pk}/",
            "run_url": links.link_run(row.run_id) if row.run_id else None,
        }


urls = build_urls(WebhookEndpoints, WebhookDeliveries)
