"""Webhook endpoints: the addresses that are notified when runs end."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow
from runs.api.access import (
    ADD_ENDPOINTS,
    CHANGE_ENDPOINTS,
    DELETE_ENDPOINTS,
    READ_ENDPOINTS,
)
from runs.api.base import DELETED, LOCATION, RETRY_AFTER, ApiView, operation
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_rows
from runs.api.problems import Conflict, InvalidBody
from runs.api.run_bodies import FlowName, WebhookUrl
from runs.api.webhook_deliveries import SENT, SHOWN_TO, ShownUrl, answer_sent
from runs.documents.base import (
    Answer,
    Body,
    Nothing,
    Page,
    RowPaging,
    Url,
    link,
)
from runs.models import DeliveryState
from runs.models import WebhookEndpoint as EndpointRow
from runs.webhooks.deliveries import create_test
from runs.webhooks.messages import (
    RotatedRecentlyError,
    derive_secret,
    find_overlap_end,
    rotate_secret,
)

EventType = Literal["run.succeeded", "run.failed", "run.errored", "run.cancelled"]


class LastDelivery(Answer):
    """The latest delivery to an endpoint."""

    id: int = Field(ge=1, validation_alias="last_delivery_id", description="The number of the delivery.")
    status: DeliveryState = Field(validation_alias="last_delivery_state", description="As in the delivery itself.")
    created_at: datetime = Field(validation_alias="last_delivery_at", description="UTC.")


class WebhookEndpoint(Answer):
    """An address that is notified when runs end."""

    id: int = Field(ge=1, description="The number of the endpoint.")
    webhook_url: ShownUrl = Field(validation_alias="url", description=f"Where messages are sent. {SHOWN_TO}")
    flow: str | None = Field(
        validation_alias="flow_name",
        description="The name of the flow whose runs are sent; null for those of all flows.",
    )
    event_types: list[EventType] = Field(description="The events to send; empty for all.")
    is_enabled: bool = Field(description="Whether anything is sent.")
    last_delivery: LastDelivery | None = Field(description="Null if there is none, or none is kept.")
    created_at: datetime = Field(description="UTC.")
    url: Annotated[Url, link("api:get_webhook_endpoint")] = Field(validation_alias="id", description="Its address.")


class NewWebhookEndpoint(WebhookEndpoint):
    """An endpoint that was just created, with its secret."""

    secret: str = Field(
        pattern=r"^whsec_[A-Za-z0-9+/]{43}=$",
        description=(
            "The secret to verify signatures with, in the format of Standard Webhooks libraries. Shown only "
            "once: store it like a password."
        ),
    )


class RotatedSecret(Answer):
    """The new secret of an endpoint."""

    secret: str = Field(pattern=r"^whsec_[A-Za-z0-9+/]{43}=$", description="Shown only once.")
    previous_until: datetime = Field(
        description="UTC. Until then messages are signed with the previous secret, too: give receivers the new one."
    )


class ChangedEndpoint(Body):
    """What is changed of an endpoint. What is left out or null stays as it is."""

    webhook_url: WebhookUrl | None = Field(None, description="An http or https address.")
    event_types: list[EventType] | None = Field(None, description="The events to send; empty for all.")
    is_enabled: bool | None = Field(None, description="Whether anything is sent.")


class NewEndpoint(ChangedEndpoint):
    """An endpoint to be created. All events are sent if none is named, and it is enabled."""

    webhook_url: WebhookUrl = Field(description="An http or https address.")
    flow: FlowName | None = Field(
        None, description="The name of the flow whose runs are sent; null for those of all flows."
    )


class Rotation(Body):
    """How a secret is rotated."""

    again: bool = Field(False, description="Whether a previous secret that is still valid may expire at once.")


_operation = partial(operation, tag="Webhooks")


class WebhookEndpoints(ApiView):
    """Addresses that are notified when runs end."""

    @_operation("GET webhook-endpoints", "List webhook endpoints", READ_ENDPOINTS)
    def list_webhook_endpoints(self, request: Request, query: RowPaging) -> Page[WebhookEndpoint]:
        """The endpoints of all flows and of single ones in the order of their creation, each with its last delivery."""
        page = fetch_rows(_select_endpoints(), query)
        return build_page(Page[WebhookEndpoint], request, page, [_describe_endpoint(row) for row in page.rows])

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
        values = _describe_endpoint(_fetch_endpoint(row.pk))
        answer = NewWebhookEndpoint.build({**values, "secret": derive_secret(row)}, request)
        return Response(answer, HTTPStatus.CREATED, headers={"Location": answer.url})

    @_operation("GET webhook-endpoints/<int:endpoint_id>", "Read a webhook endpoint", READ_ENDPOINTS)
    def get_webhook_endpoint(self, request: Request, endpoint_id: int) -> WebhookEndpoint:
        """With its last delivery, without its secret."""
        return WebhookEndpoint.build(_describe_endpoint(_fetch_endpoint(endpoint_id)), request)

    @_operation(
        "PATCH webhook-endpoints/<int:endpoint_id>", "Change a webhook endpoint", CHANGE_ENDPOINTS, problems=[409]
    )
    def change_webhook_endpoint(self, request: Request, endpoint_id: int, body: ChangedEndpoint) -> WebhookEndpoint:
        """Deliveries that wait for a retry keep their address; a disabled endpoint gets none."""
        row = _fetch_endpoint(endpoint_id)
        event_types = None if body.event_types is None else sorted(set(body.event_types))
        given = {"url": body.webhook_url, "event_types": event_types, "is_enabled": body.is_enabled}
        changes = {name: value for name, value in given.items() if value is not None}
        for name, value in changes.items():
            setattr(row, name, value)
        # Others may change the rest meanwhile.
        _save(row, list(changes))
        return WebhookEndpoint.build(_describe_endpoint(_fetch_endpoint(endpoint_id)), request)

    @_operation(
        "DELETE webhook-endpoints/<int:endpoint_id>",
        "Delete a webhook endpoint",
        DELETE_ENDPOINTS,
        answers=DELETED,
    )
    def delete_webhook_endpoint(self, request: Request, endpoint_id: int) -> Response:
        """Its deliveries stay listed; waiting ones are no longer sent."""
        _fetch_endpoint(endpoint_id).delete()
        return Response(status=HTTPStatus.NO_CONTENT)

    @_operation(
        "POST webhook-endpoints/<int:endpoint_id>/test",
        "Send a test to a webhook endpoint",
        CHANGE_ENDPOINTS,
        parameters=[RETRY_AFTER],
        answers=SENT,
    )
    @idempotent
    def test_webhook_endpoint(self, request: Request, endpoint_id: int, body: Nothing) -> HttpResponseBase:
        """Sends a signed message of the type `webhook.test`, also to an endpoint that is disabled."""
        return answer_sent(request, create_test(_fetch_endpoint(endpoint_id)).pk)

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


def _select_endpoints() -> QuerySet[Any, Any]:
    rows: QuerySet[Any, Any] = EndpointRow.objects.with_last_delivery().annotate(flow_name=F("flow__name"))
    return rows


def _fetch_endpoint(endpoint_id: int) -> Any:
    return get_object_or_404(_select_endpoints(), pk=endpoint_id)


def _describe_endpoint(row: Any) -> dict[str, Any]:
    return {**vars(row), "last_delivery": vars(row) if row.last_delivery_id else None}
