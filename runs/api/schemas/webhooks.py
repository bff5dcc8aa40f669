"""Webhook endpoints, and deliveries with their tries."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from runs.api.schemas.runs import WebhookUrl
from runs.documents.base import Answer, Body, Count, Page, RowNumber, RowPaging, Text, TextOrNull, Url
from runs.models import DeliveryState, WebhookEvent

EventType = Literal["run.succeeded", "run.failed", "run.errored", "run.cancelled"]
_SHOWN_TO = "Without the permission to start runs, or the scope for it, only the host is shown."

# ---------------------------------------------------------------------------------------------------------------------
# Endpoints


class LastDelivery(Answer):
    """The latest delivery to an endpoint."""

    id: int = Field(ge=1, validation_alias="last_delivery_id", description="The number of the delivery.")
    status: DeliveryState = Field(validation_alias="last_delivery_state", description="As in the delivery itself.")
    created_at: datetime = Field(validation_alias="last_delivery_at", description="UTC.")


class WebhookEndpoint(Answer):
    """An address that is notified when runs end."""

    id: int = Field(ge=1, description="The number of the endpoint.")
    webhook_url: str = Field(description=f"Where messages are sent. {_SHOWN_TO}")
    flow: str | None = Field(description="The name of the flow whose runs are sent; null for those of all flows.")
    event_types: list[EventType] = Field(description="The events to send; empty for all.")
    is_enabled: bool = Field(description="Whether anything is sent.")
    last_delivery: LastDelivery | None = Field(description="Null if there is none, or none is kept.")
    created_at: datetime = Field(description="UTC.")
    url: Url = Field(description="Its address.")


class NewWebhookEndpoint(WebhookEndpoint):
    """An endpoint that was just created, with its secret."""

    secret: str = Field(
        pattern=r"^whsec_[A-Za-z0-9+/]{43}=$",
        description=(
            "The secret to verify signatures with, in the format of Standard Webhooks libraries. Shown only "
            "once: store it like a password."
        ),
    )


class WebhookEndpointPage(Page):
    """A page of endpoints."""

    items: list[WebhookEndpoint] = Field(description="In the order of their creation.")


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


class NewEndpoint(Body):
    """An endpoint to be created."""

    webhook_url: WebhookUrl = Field(description="An http or https address.")
    flow: Annotated[Text, Field(min_length=1, max_length=100)] | None = Field(
        None, description="The name of the flow whose runs are sent; null for those of all flows."
    )
    event_types: list[EventType] | None = Field(None, description="The events to send; all if left out.")
    is_enabled: bool | None = Field(None, description="Whether anything is sent; true if left out.")


class Rotation(Body):
    """How a secret is rotated."""

    again: bool = Field(False, description="Whether a previous secret that is still valid may expire at once.")


# ---------------------------------------------------------------------------------------------------------------------
# Deliveries


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
    webhook_url: str = Field(description=f"Where it is sent. {_SHOWN_TO}")
    status: DeliveryState = Field(
        validation_alias="state",
        description="`waiting`: it is tried, or tried again, by itself. `failed`: it is not tried again unless it is "
        "sent again.",
    )
    is_being_sent: bool = Field(description="Whether a try is in progress.")
    try_count: Count = Field(description="Tries so far.")
    last_http_status: int | None = Field(
        validation_alias="last_status", description="HTTP status of the last response; null if none arrived."
    )
    created_at: datetime = Field(description="UTC.")
    next_try_at: datetime | None = Field(description="UTC; null unless it waits for one.")
    ended_at: datetime | None = Field(description="UTC; null while it waits.")
    url: Url = Field(description="Its address.")
    page_url: Url = Field(description="Its page.")
    run_url: Url | None = Field(description="The address of the run; null for a test.")


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


class DeliveryPage(Page):
    """A page of deliveries."""

    items: list[Delivery] = Field(description="The newest first, without their tries.")


class DeliveryQuery(RowPaging):
    """Which deliveries are listed."""

    status: list[Literal["waiting", "delivered", "failed"]] = Field(
        default_factory=list, min_length=1, description="Only deliveries in one of these states."
    )
    run: RowNumber | None = Field(None, description="Only those of this run.")
    flow: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Only those of the flow of this name."
    )
    endpoint: RowNumber | None = Field(None, description="Only those to this endpoint.")
