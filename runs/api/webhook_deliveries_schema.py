"""The shapes of webhook deliveries in the OpenAPI document, and what their lists are asked by."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from runs.api.run_query import LONGEST_TEXT
from runs.api.schema_parts import LIMIT, PageSerializer
from runs.models import DeliveryState, WebhookEvent

TAGS = ["Webhooks"]

FILTERS = [
    OpenApiParameter(
        "status",
        {"type": "array", "items": {"type": "string", "enum": list(DeliveryState.values)}, "minItems": 1},
        explode=False,
        description="Only deliveries that stand so.",
    ),
    OpenApiParameter("run", {"type": "integer", "minimum": 1}, description="Only those of this run."),
    OpenApiParameter(
        "flow",
        {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT},
        description="Only those of runs of the flow of this name.",
    ),
]
_PLACE = {"type": "integer", "minimum": 1}
_FOLLOW = "Follow `next` and `previous` rather than make it."
DELIVERY_PAGING = [
    LIMIT,
    OpenApiParameter("before", _PLACE, description=f"Only what is older than the delivery of this number. {_FOLLOW}"),
    OpenApiParameter("after", _PLACE, description=f"Only what is newer than the delivery of this number. {_FOLLOW}"),
]
RETRY_AFTER = OpenApiParameter(
    "Retry-After",
    OpenApiTypes.INT,
    OpenApiParameter.HEADER,
    description="Seconds after which it may be read again.",
    response=[202],
)


class DeliverySerializer(serializers.Serializer[Any]):
    """The end of a run, told to one address."""

    id = serializers.IntegerField(min_value=1, help_text="The number of the delivery.")
    message_id = serializers.CharField(help_text="What receivers read as `webhook-id`: the same at each try.")
    run = serializers.IntegerField(min_value=1, help_text="The number of the run.")
    flow = serializers.CharField(help_text="The name of its flow.")
    event = serializers.ChoiceField(list(WebhookEvent.values), help_text="What happened: `type` of the message.")
    webhook_url = serializers.CharField(
        help_text="Who is told. Without the permission to start runs, or the scope for it, only the host is shown: the "
        "rest may hold a key."
    )
    status = serializers.ChoiceField(
        list(DeliveryState.values),
        help_text="`waiting`: it is tried, or tried again, by itself. `failed`: it is not tried again unless somebody "
        "asks for it.",
    )
    is_being_sent = serializers.BooleanField(help_text="Whether a try is under way.")
    try_count = serializers.IntegerField(min_value=0, help_text="Tries so far.")
    last_http_status = serializers.IntegerField(
        allow_null=True, help_text="HTTP status of the last answer; null where none came."
    )
    created_at = serializers.DateTimeField(help_text="UTC.")
    next_try_at = serializers.DateTimeField(allow_null=True, help_text="UTC; null unless it waits for one.")
    ended_at = serializers.DateTimeField(allow_null=True, help_text="UTC; null while it waits.")
    url = serializers.URLField(help_text="Where it is read.")
    page_url = serializers.URLField(help_text="Where people see it.")
    run_url = serializers.URLField(help_text="Where the run is read.")


class DeliveryPageSerializer(PageSerializer):
    """A page of deliveries."""

    items = serializers.ListField(child=DeliverySerializer(), help_text="The newest first, without their tries.")


class TrySerializer(serializers.Serializer[Any]):
    """One POST to the address."""

    number = serializers.IntegerField(min_value=1, help_text="Which try it was, from 1.")
    started_at = serializers.DateTimeField(help_text="UTC.")
    ended_at = serializers.DateTimeField(
        allow_null=True, help_text="UTC; null while it is under way, or if its sender died."
    )
    duration = serializers.FloatField(allow_null=True, help_text="Seconds; null if that is not known.")
    http_status = serializers.IntegerField(allow_null=True, help_text="HTTP status of the answer; null if none came.")
    problem = serializers.CharField(allow_null=True, help_text="Why it did not succeed, in a sentence.")
    response = serializers.CharField(help_text="How the body of the answer begins.")


class WholeDeliverySerializer(DeliverySerializer):
    """A delivery with its tries."""

    payload = serializers.DictField(
        help_text="What is sent: `type`, `timestamp`, and the run in `data`. See `webhooks` in this document."
    )
    tries = serializers.ListField(child=TrySerializer(), help_text="The latest 50, in their order.")
