"""What the descriptions of all endpoints in the OpenAPI document share: problems, pages of lists, common headers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

PROBLEMS = {
    400: "A query parameter is unknown or makes no sense, or the body is no JSON.",
    401: "No token was sent, or it is not known, was revoked or has expired.",
    403: "The token’s scope or its owner’s permissions don’t allow this.",
    404: "There is nothing under this address.",
    405: "The address knows no such method.",
    406: "The Accept header names nothing that can be answered.",
    408: "The body did not arrive in time.",
    409: "What is asked for doesn’t fit what is: the detail says why.",
    411: "The body came in chunks, and this server needs a `Content-Length`.",
    412: "It has changed since it was read.",
    413: "The body is too large, or the query has too many parameters.",
    415: "The Content-Type header names nothing that can be read here.",
    422: "The body has mistakes: each is in `errors`, with a JSON pointer.",
    429: "Too many requests; `Retry-After` says in how many seconds to try again.",
    501: "This server can’t stream; it needs ASGI.",
    503: "The database is not available; try again soon.",
}
"""What a problem of each status means in general."""


class ProblemErrorSerializer(serializers.Serializer[Any]):
    """One mistake in a request."""

    detail = serializers.CharField(help_text="What is wrong and what would be right, in a sentence.")
    pointer = serializers.CharField(
        required=False, help_text="JSON pointer to the value in the body; empty for the whole body."
    )
    parameter = serializers.CharField(required=False, help_text="Name of the query parameter.")


class ProblemSerializer(serializers.Serializer[Any]):
    """Why a request can’t be done: a problem document as RFC 9457 defines it, the same for every status."""

    type = serializers.CharField(help_text="What programs tell problems apart by: `urn:toolflow:problem:…`.")
    title = serializers.CharField(help_text="The status in words.")
    status = serializers.IntegerField(help_text="The HTTP status.")
    detail = serializers.CharField(help_text="What is wrong and what would be right, in a sentence for people.")
    request_id = serializers.CharField(
        required=False, help_text="What the log of the server calls this request; also in the header `X-Request-ID`."
    )
    errors = serializers.ListField(  # type: ignore[assignment]  # a declared field, not what the class has of that name
        child=ProblemErrorSerializer(), required=False, help_text="The single mistakes, at most 100."
    )


class PageSerializer(serializers.Serializer[Any]):
    """What a page of a list has beside its ``items``: subclass it and name them."""

    next = serializers.URLField(allow_null=True, help_text="Address of the next page; null on the last one.")
    previous = serializers.URLField(allow_null=True, help_text="Address of the page before; null on the first one.")


def problem_responses(*statuses: int) -> dict[int, OpenApiResponse]:
    """For ``extend_schema(responses=…)``: the problem document as the answer of each of ``statuses``.

    400, 401, 403, 406, 413, 429 and 503, and for methods with a body 408, 411, 415 and 422, stand in the schema without
    being named: every endpoint can answer them.
    """
    return {
        int(status): OpenApiResponse(ProblemSerializer, PROBLEMS.get(int(status), HTTPStatus(status).phrase))
        for status in statuses
    }


IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    OpenApiParameter.HEADER,
    description="A text of your own, such as a UUID. A repeated request with the same key and body gets the answer of "
    "the first one for 24 hours; the same key with another body is refused with 409.",
)
PREFER = OpenApiParameter(
    "Prefer",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="`wait=30` waits up to so many seconds for the end of the run, and answers 200 with the finished run "
    "if it ends in time.",
    examples=[],
)
LIMIT = OpenApiParameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
    description="How many items a page has at most.",
)
BEFORE = OpenApiParameter(
    "before",
    {"type": "integer", "minimum": 1},
    description="Only what is older than the run of this number. Follow `next` and `previous` rather than make it.",
)
AFTER = OpenApiParameter(
    "after",
    {"type": "integer", "minimum": 1},
    description="Only what is newer than the run of this number. Follow `next` and `previous` rather than make it.",
)
PAGE_PARAMETERS = [LIMIT, BEFORE, AFTER]
"""The parameters of a list that is paged by run numbers."""
