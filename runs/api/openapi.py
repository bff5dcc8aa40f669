"""What the OpenAPI document says of every endpoint alike: parameters, headers, problems, and what models leave open."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from runs.api.problems import MEDIA_TYPE
from runs.api.schema_webhooks import describe_webhooks
from runs.api.schemas.problems import STATUSES

# ---------------------------------------------------------------------------------------------------------------------
# Parameters and headers that several operations have


def _header(name: str, kind: Any, description: str, *statuses: int) -> OpenApiParameter:
    """A header of requests, or of answers with one of ``statuses``."""
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, response=list(statuses))


IDEMPOTENCY_KEY = _header(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    "A text of your own, such as a UUID. A repeated request with the same key and body gets the answer of the first "
    "one for 24 hours; the same key with another body is refused with 409.",
)
PREFER = _header(
    "Prefer",
    str,
    ("`wait=30` waits up to 30 seconds for the run to end, and answers 200 with the finished run if it ends in time."),
)
LOCATION = _header("Location", OpenApiTypes.URI, "The address of the run.", 200, 202)
LOCATION_OF_MANY = _header("Location", OpenApiTypes.URI, "The address of the list of runs.", 202)
RETRY_AFTER = _header("Retry-After", int, "Seconds after which it may be read again.", 202)
APPLIED = _header("Preference-Applied", str, "How long the request may have waited.", 200, 202)
REPLAYED = _header(
    "Idempotency-Replayed",
    {"type": "string", "enum": ["true"]},
    "The answer is that to an earlier request with the same key.",
    200,
    201,
    202,
)

# ---------------------------------------------------------------------------------------------------------------------
# Every operation

_EACH = (400, 401, 403, 406, 413, 429, 503)
_EACH_WITH_BODY = (408, 411, 415, 422)
_PLACES = {"index": "The number of the step; 0 is the input.", "name": "The name of the flow."}
_HEADERS = {
    "RateLimit-Policy": 'How many requests are allowed in how many seconds, such as `"reads";q=12000;w=60`. Reading '
    "and writing are counted apart.",
    "RateLimit": 'How many are left, and in how many seconds the count is reset, such as `"reads";r=11997;t=41`.',
    "Link": "The pages before and after this one, as far as there are any: `rel` is `prev` or `next`.",
    "Retry-After": "Seconds after which to try again, if known.",
    "WWW-Authenticate": "How to sign in: `Bearer`.",
    "Accept-Encoding": "`identity`, if the body was compressed.",
    "ETag": "Identifies the current state, if the resource exists.",
}
_QUOTA = ("RateLimit-Policy", "RateLimit")
_OF_PROBLEMS = {
    401: ["WWW-Authenticate"],
    409: ["Retry-After"],
    412: ["ETag"],
    415: ["Accept-Encoding"],
    429: ["Retry-After"],
    503: ["Retry-After"],
}
_KNOWN = {
    "in": "header",
    "name": "If-None-Match",
    "schema": {"type": "string"},
    "description": "The `ETag` of an earlier answer: 304 without a body if the answer would be the same.",
}


def complete_schema(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Add what every operation can answer, the headers of answers, and the webhooks; drf-spectacular calls this."""
    components = result["components"]
    for methods in result["paths"].values():
        for method, operation in methods.items():
            _complete_operation(method, operation)
    for schema in components["schemas"].values():
        for part in (schema, *schema.get("properties", {}).values()):
            # Pydantic makes titles of names. A field with a default is a required one for generators of TypeScript.
            part.pop("title", None)
            part.pop("default", None)
    components["headers"] = {
        name: {"description": description, "schema": {"type": "string"}} for name, description in _HEADERS.items()
    }
    components["responses"] = {f"Problem{status}": _describe_problem(status) for status in STATUSES}
    describe_webhooks(result)
    return result


def _complete_operation(method: str, operation: dict[str, Any]) -> None:
    answers, parameters = operation["responses"], operation.setdefault("parameters", [])
    for parameter in parameters:
        if parameter["in"] == "path":
            name = parameter["name"]
            parameter.setdefault("description", _PLACES.get(name, f"The number of the {name.removesuffix('_id')}."))
    for status, answer in answers.items():
        answer["description"] = answer.get("description") or HTTPStatus(int(status)).phrase
        answer["headers"] = {**answer.get("headers", {}), **_refer_to(*_QUOTA)}
    if {"before", "after"} <= {parameter["name"] for parameter in parameters}:
        answers["200"]["headers"].update(_refer_to("Link"))
    if method == "get" and "ETag" in answers["200"]["headers"]:
        parameters.append(_KNOWN)
        answers["304"] = {"description": "It has not changed.", "headers": answers["200"]["headers"]}
    problems = {int(status) for status in answers if int(status) >= HTTPStatus.BAD_REQUEST} | {*_EACH}
    problems.update(_EACH_WITH_BODY if method in ("post", "put", "patch") else ())
    for status in problems:
        answers[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    operation["responses"] = dict(sorted(answers.items()))


def _describe_problem(status: int) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        "description": STATUSES[status],
        "headers": _refer_to(*_QUOTA, *_OF_PROBLEMS.get(status, ())),
        "content": content,
    }


def _refer_to(*headers: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
