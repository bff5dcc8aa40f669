"""The messages of webhooks in the OpenAPI document, which has a place for requests that the API itself makes."""

from __future__ import annotations

from typing import Any

from runs.models.webhook import RUN_EVENTS

NAME = "runEnded"

LEFT_OUT = ("webhook_url", "steps", "url", "page_url")
"""Fields of a run that a message has not: one receiver is not to learn of another, and no host of ours was asked."""

_HEADERS = {
    "webhook-id": "Which message it is: the same with each try, so that a receiver knows what it has seen.",
    "webhook-timestamp": "When this try was made, in seconds since 1970. Libraries refuse old ones.",
    "webhook-signature": "Signatures such as `v1,K5oZ…=` with spaces between; one of them is made with your secret. "
    "There are several while a previous secret counts, and for an address that run and endpoint have in common.",
}
_ANSWERS = {
    "2XX": "Received. Answer within 15 seconds and process the message afterwards.",
    "410": "The receiver refuses this message for good: it is not tried again.",
    "default": "It is tried up to eight times with growing delays, and never before `Retry-After`.",
}


def describe_webhooks(schema: dict[str, Any]) -> None:
    """Add to the document what receivers get, with the objects that it takes. The component ``Run`` must be there."""
    shapes = schema["components"]["schemas"]
    run = shapes["Run"]
    shapes["EndedRun"] = {
        **run,
        "description": "A run that has ended, without its history. Its `id` leads to the rest.",
        "properties": {name: field for name, field in run["properties"].items() if name not in LEFT_OUT},
        "required": [name for name in run["required"] if name not in LEFT_OUT],
    }
    kind = {"type": "string", "enum": [event.value for event in RUN_EVENTS], "description": "What has happened."}
    shapes["RunMessage"] = {
        "type": "object",
        "description": "The message: that a run has ended, and the run.",
        "properties": {
            "type": kind,
            "timestamp": {"type": "string", "format": "date-time", "description": "When the run ended."},
            "data": {"allOf": [{"$ref": "#/components/schemas/EndedRun"}], "description": "The run."},
        },
        "required": ["type", "timestamp", "data"],
    }
    schema["components"]["schemas"] = dict(sorted(shapes.items()))
    message = {
        "operationId": NAME,
        "tags": ["Webhooks"],
        "summary": "A run has ended",
        "description": "Sent to the webhook endpoints of its flow and of the installation, and to `webhook_url` of the "
        "run. Signed by the Standard Webhooks scheme: verify it with one of its libraries and the secret of the "
        "endpoint; for `webhook_url` of a run with that of the installation, which an administrator knows. Messages "
        "may come twice and in any order. A test has the type `webhook.test` and other `data`.",
        "parameters": [
            {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in _HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RunMessage"}}},
        },
        "responses": {status: {"description": text} for status, text in _ANSWERS.items()},
        "security": [],
    }
    schema["webhooks"] = {NAME: {"post": message}}
