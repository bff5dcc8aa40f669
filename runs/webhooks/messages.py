"""What receivers are sent: the body about a run, and the headers with its signature."""

from __future__ import annotations

import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from runs.documents.loading import load_ended_run
from runs.models import WebhookDelivery


def build_body(delivery: WebhookDelivery) -> str:
    """The message as JSON: its type, when it happened, and the run without its attempts."""
    if delivery.run_id is None:
        data: dict[str, Any] = {"endpoint": delivery.endpoint_id}
        message = {"type": delivery.event, "timestamp": delivery.created_at, "data": data}
    else:
        data = load_ended_run(delivery.run_id).model_dump(mode="json", exclude_unset=True)
        message = {"type": delivery.event, "timestamp": data["ended_at"], "data": data}
    return json.dumps(message, cls=DjangoJSONEncoder, ensure_ascii=False, separators=(",", ":"))


def build_headers(*, message_id: str, at: Any, signature: str) -> dict[str, str]:
    """The headers of a message that was signed at that moment."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }
