"""Problem documents (RFC 9457) as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Iterable

from drf_spectacular.utils import OpenApiResponse
from pydantic import Field

from runs.documents.base import Model, Omitted

STATUSES = {
    400: "A query parameter is unknown or not valid, or the body is not JSON.",
    401: "No token was sent, or it is unknown, revoked or expired.",
    403: "The token’s scope or its owner’s permissions don’t allow this.",
    404: "Nothing exists at this address.",
    405: "The address does not allow this method.",
    406: "No media type in the Accept header is available.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the current state; the detail says why.",
    411: "The body came in chunks, and this server needs a `Content-Length`.",
    412: "It has changed since it was read.",
    413: "The body is too large, or the query has too many parameters.",
    415: "The media type in the Content-Type header is not supported.",
    422: "The body is not valid; `errors` lists each problem with a JSON pointer.",
    429: "Too many requests; `Retry-After` says in how many seconds to try again.",
    501: "This server can’t stream events; it needs ASGI.",
    503: "The database is not available; try again soon.",
}
"""What a problem of each status means in general."""


class ProblemError(Model):
    """One mistake in a request."""

    detail: str = Field(description="What is wrong and how to fix it, in a sentence.")
    pointer: str | Omitted = Field(None, description="JSON pointer to the value in the body; empty for the whole body.")
    parameter: str | Omitted = Field(None, description="Name of the query parameter.")


class Problem(Model):
    """Why a request can’t be done: a problem document as RFC 9457 defines it, the same for every status."""

    type: str = Field(description="Identifies the kind of problem: `urn:toolflow:problem:…`.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong and how to fix it, in a sentence for people.")
    request_id: str | Omitted = Field(
        None, description="The id of this request in the server’s log; also in the header `X-Request-ID`."
    )
    errors: list[ProblemError] | Omitted = Field(None, description="The problems, at most 100.")


def describe_problems(statuses: Iterable[int]) -> dict[int, OpenApiResponse]:
    """For ``extend_schema(responses=…)``: the problem document as the answer of each of ``statuses``.

    400, 401, 403, 406, 413, 429 and 503, and for methods with a body 408, 411, 415 and 422, stand in the schema without
    being named: every endpoint can answer them.
    """
    return {status: OpenApiResponse(Problem, STATUSES[status]) for status in statuses}
