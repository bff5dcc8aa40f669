"""What the descriptions of all endpoints in the OpenAPI document share: problems, pages of lists, common headers."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from runs.api.schemas.problems import describe_problems


class PageSerializer(serializers.Serializer[Any]):
    """What a page of a list has beside its ``items``: subclass it and name them."""

    next = serializers.URLField(allow_null=True, help_text="Address of the next page; null on the last one.")
    previous = serializers.URLField(allow_null=True, help_text="Address of the page before; null on the first one.")


def problem_responses(*statuses: int) -> dict[int, OpenApiResponse]:
    """As ``describe_problems``."""
    return describe_problems(statuses)


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


def _answer_header(name: str, kind: Any, description: str, *statuses: int) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, response=list(statuses))


LOCATION = _answer_header("Location", OpenApiTypes.URI, "Where the run is read.", 200, 202)
LOCATION_OF_MANY = _answer_header("Location", OpenApiTypes.URI, "Where the runs are listed.", 202)
RETRY_AFTER = _answer_header("Retry-After", OpenApiTypes.INT, "Seconds after which it may be read again.", 202)
APPLIED = _answer_header("Preference-Applied", OpenApiTypes.STR, "How long the request may have waited.", 200, 202)
REPLAYED = _answer_header(
    "Idempotency-Replayed",
    {"type": "string", "enum": ["true"]},
    "The answer is that to an earlier request with the same key.",
    200,
    201,
    202,
)
