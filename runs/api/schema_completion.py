"""What the OpenAPI document says of every endpoint alike; drf-spectacular calls ``complete_schema`` at the end."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, ClassVar

from django.conf import settings
from drf_spectacular.drainage import set_override
from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from pydantic.json_schema import JsonSchemaMode

from flows.engine.differences import ChangeKind
from flows.engine.history import Outcome, Severity
from runs.api.problems import KINDS, MEDIA_TYPE
from runs.api.schema_webhooks import describe_webhooks
from runs.api.schemas.problems import STATUSES as PROBLEMS

ANY_REQUEST = (400, 401, 403, 406, 413, 429, 503)
"""What every endpoint can answer, whatever it does."""
REQUEST_WITH_BODY = (408, 411, 415, 422)
METHODS_WITH_BODY = ("post", "put", "patch")

DONE = {200: "What was asked for.", 201: "It was made.", 202: "It was taken in, and goes on."}
"""What an answer means that says nothing of itself."""

PLACES = {
    "run_id": "The number of the run.",
    "index": "The number of the step; 0 is the input.",
    "number": "The number of the attempt, from 1.",
    "name": "The name of the flow.",
    "delivery_id": "The number of the delivery.",
    "endpoint_id": "The number of the endpoint.",
    "action_id": "The number of the bulk action.",
    "view_id": "The number of the view.",
}
"""What parts of addresses are that say nothing of themselves."""

# What settings name choices by.
SEVERITIES = [severity.value for severity in Severity]
OUTCOMES = [outcome.value for outcome in Outcome]
CHANGE_KINDS = [kind.value for kind in ChangeKind]

_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_HEADERS: dict[int, dict[str, tuple[str, dict[str, Any]]]] = {
    401: {"WWW-Authenticate": ("How to sign in: `Bearer`.", {"type": "string"})},
    409: {
        "Retry-After": (
            "Seconds after which to ask again, if the first request with an `Idempotency-Key` is still under way.",
            {"type": "integer", "minimum": 0},
        )
    },
    412: {"ETag": ("Stands for what is there now, if anything is.", {"type": "string"})},
    415: {"Accept-Encoding": ("`identity`, if the body was compressed.", {"type": "string"})},
    429: {"Retry-After": ("Seconds until the next request is let through.", {"type": "integer", "minimum": 0})},
    503: {
        "Retry-After": (
            "Seconds after which to ask again, if too many streams are open.",
            {"type": "integer", "minimum": 0},
        )
    },
}

QUOTA_HEADERS = {
    "RateLimit-Policy": (
        "How many requests there may be in how many seconds: `q` and `w`. Reading and writing are counted apart.",
        '"reads";q=12000;w=60',
    ),
    "RateLimit": (
        "How many of them are left, and in how many seconds all will be there again: `r` and `t`.",
        '"reads";r=11997;t=41',
    ),
}
"""Headers of every answer to somebody who could be told apart, with an example each."""
LINK = (
    "The pages before and after this one, as far as there are any: `rel` is `prev` or `next`.",
    '<https://flows.example.com/api/v1/runs?before=1240>; rel="next"',
)
"""The header of pages of lists."""
_KNOWN = {
    "in": "header",
    "name": "If-None-Match",
    "schema": {"type": "string"},
    "description": "The `ETag` of an earlier answer: 304 without a body if the answer would be the same.",
}


class ApiTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # it registers itself
    """How tokens are sent."""

    target_class = "runs.api.access.ApiTokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The security scheme."""
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from the page “API tokens”, or from `manage.py create_token`. "
            "Its scope is `read`, `run` or `edit`; the permissions of its owner apply as well.",
        }


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # it registers itself
    """How somebody who is signed in on the pages is known."""

    target_class = "rest_framework.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The security scheme."""
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": settings.SESSION_COOKIE_NAME,
            "description": "The cookie of somebody who is signed in on the pages. Requests other than GET also send "
            "the header `X-CSRFToken`.",
        }


class ModelShape(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # it registers itself
    """Models of the API: what is sent as it is validated, what is answered as it is written."""

    target_class = "runs.api.schemas.base.Model"
    match_subclasses = True
    # Before the one of drf-spectacular, which knows answers only.
    priority = 1

    def get_name(self, auto_schema: AutoSchema, direction: Any) -> str:
        """The name of the component."""
        set_override(self.target, "suppress_collision_warning", True)
        name: str = self.target.__name__
        return name

    def map_serializer(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        """The schema of the model; those of models in it become components of their own."""
        mode: JsonSchemaMode = "validation" if direction == "request" else "serialization"
        schema: dict[str, Any] = self.target.model_json_schema(ref_template="#/components/schemas/{model}", mode=mode)
        for name, part in schema.pop("$defs", {}).items():
            component = ResolvedComponent(name, ResolvedComponent.SCHEMA, _without_titles(part), name)  # type: ignore[no-untyped-call]  # it has no types
            auto_schema.registry.register_on_missing(component)
        return _without_titles(schema)


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that pydantic makes of names."""
    fields = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema.get("properties", {}).items()
    }
    rest = {key: value for key, value in schema.items() if key not in ("title", "properties")}
    return {**rest, "properties": fields} if fields or schema.get("type") == "object" else rest


class StrictSerializerShape(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # it registers itself
    """Bodies in which unknown fields are errors say so."""

    target_class = "runs.api.reading.StrictSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        """The schema of the body."""
        mapping: Any = auto_schema  # it has no types
        schema: dict[str, Any] = mapping._map_serializer(self.target, direction, bypass_extensions=True)
        return {**schema, "additionalProperties": False}


class _Names:
    """How the answers that many endpoints share are called in the document."""

    by_status: ClassVar[dict[int, str]] = {
        status: "".join(word.capitalize() for word in KINDS.get(HTTPStatus(status), f"status-{status}").split("-"))
        for status in PROBLEMS
    } | {409: "Conflict", 412: "PreconditionFailed", 422: "InvalidBody"}


def know_choices_by_values(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Let choices with the same values be one component, whatever their labels are: it goes before they are named."""
    for schema in result.get("components", {}).get("schemas", {}).values():
        for field in schema.get("properties", {}).values():
            for part in (field, field.get("items")):
                if isinstance(part, dict):
                    part.pop("x-spec-enum-id", None)
    return result


def complete_schema(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Add to each operation the problems and headers that every endpoint can answer with, and the webhooks."""
    used = set()
    for method, operation in _list_operations(result):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                parameter.setdefault("description", PLACES.get(parameter["name"], ""))
        answers = operation["responses"]
        common = ANY_REQUEST + (REQUEST_WITH_BODY if method in METHODS_WITH_BODY else ())
        for status, answer in answers.items():
            answer["description"] = answer.get("description") or DONE.get(int(status), "")
        for status in {*common, *(int(code) for code in answers if int(code) >= HTTPStatus.BAD_REQUEST)}:
            told = answers.get(str(status), {}).get("description", PROBLEMS.get(status))
            if told == PROBLEMS.get(status):
                used.add(status)
                answers[str(status)] = {"$ref": f"#/components/responses/{_Names.by_status[status]}"}
            else:
                answers[str(status)] = {"description": told, **_write_headers(status), **_PROBLEM}
        if method == "get":
            _describe_reading(operation)
        operation["responses"] = dict(sorted(answers.items()))
    result["components"]["responses"] = {_Names.by_status[status]: _describe(status) for status in sorted(used)}
    result["components"]["headers"] = {
        name: {"description": description, "schema": {"type": "string", "examples": [example]}}
        for name, (description, example) in {**QUOTA_HEADERS, "Link": LINK}.items()
    }
    answers = [answer for _, operation in _list_operations(result) for answer in operation["responses"].values()]
    for answer in (*answers, *result["components"]["responses"].values()):
        if "$ref" not in answer:
            told = {name: {"$ref": f"#/components/headers/{name}"} for name in QUOTA_HEADERS}
            answer["headers"] = {**answer.get("headers", {}), **told}
    describe_webhooks(result)
    return result


def _list_operations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for methods in schema["paths"].values():
        yield from methods.items()


def _describe_reading(operation: dict[str, Any]) -> None:
    """Say of what is read that it comes in pages, or need not be sent twice, where that is so."""
    answers, parameters = operation["responses"], operation.get("parameters", [])
    headers = answers["200"].get("headers", {})
    if {"before", "after"} <= {parameter["name"] for parameter in parameters}:
        answers["200"]["headers"] = {**headers, "Link": {"$ref": "#/components/headers/Link"}}
    if "ETag" in headers:
        parameters.append(_KNOWN)
        answers["304"] = {"description": "It is the same as before.", "headers": {"ETag": headers["ETag"]}}


def _describe(status: int) -> dict[str, Any]:
    return {"description": PROBLEMS[status], **_write_headers(status), **_PROBLEM}


def _write_headers(status: int) -> dict[str, Any]:
    headers = {
        name: {"description": description, "schema": schema}
        for name, (description, schema) in _HEADERS.get(status, {}).items()
    }
    return {"headers": headers} if headers else {}
