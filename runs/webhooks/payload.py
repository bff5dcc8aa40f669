"""What receivers are told of a run."""

from __future__ import annotations

import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from runs.documents import RunDocuments
from runs.models import WebhookDelivery


def build_body(delivery: WebhookDelivery) -> str:
    """The message about the end of a run as JSON: its type, when it happened, and the run without its attempts."""
    (document,) = RunDocuments(has_attempts=False).read([delivery.run_id])
    # One receiver is not to learn the address of another, which may hold a key.
    document.pop("webhook_url", None)
    message: dict[str, Any] = {"type": delivery.event, "timestamp": document["ended_at"], "data": document}
    return json.dumps(message, cls=DjangoJSONEncoder, ensure_ascii=False, separators=(",", ":"))
