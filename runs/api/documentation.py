"""The description of the API for programs (OpenAPI) and for people (the reference page)."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from http import HTTPStatus
from typing import Any

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.urls import include, path, reverse
from django.utils.decorators import method_decorator
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from drf_spectacular.views import SpectacularSwaggerSplitView
from pydantic import Field
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.base import ApiView, operation
from runs.api.problems import MEDIA_TYPE, STATUSES
from runs.documents.base import Answer, Model, Omitted
from runs.documents.run import EndedRun
from runs.models.webhook import RUN_EVENTS

ADDRESS = "/api/v1"
"""Where the API lies on an installation that has a host for itself."""

# ---------------------------------------------------------------------------------------------------------------------
# Components that no operation names itself


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


class RunMessage(Answer):
    """The message: that a run has ended, and the run."""

    type: str = Field(json_schema_extra={"enum": [event.value for event in RUN_EVENTS]}, description="What happened.")
    timestamp: datetime = Field(description="When the run ended.")
    data: EndedRun = Field(description="The run.")


MESSAGE_HEADERS = {
    "webhook-id": "Which message it is: the same with each try, so that a receiver knows what it has seen.",
    "webhook-timestamp": "When this try was made, in seconds since 1970. Libraries refuse old ones.",
    "webhook-signature": "Signatures such as `v1,K5oZ…=` with spaces between; one of them is made with your secret. "
    "There are several while a previous secret counts, and for an address that run and endpoint have in common.",
}
RUN_ENDED: dict[str, Any] = {
    "operationId": "runEnded",
    "tags": ["Webhooks"],
    "summary": "A run has ended",
    "description": "Sent to the webhook endpoints of its flow and of the installation, and to `webhook_url` of the "
    "run. Signed by the Standard Webhooks scheme: verify it with one of its libraries and the secret of the "
    "endpoint; for `webhook_url` of a run with that of the installation, which an administrator knows. Messages "
    "may come twice and in any order. A test has the type `webhook.test` and other `data`.",
    "parameters": [
        {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
        for name, text in MESSAGE_HEADERS.items()
    ],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RunMessage"}}},
    },
    "responses": {
        "2XX": {"description": "Received. Answer within 15 seconds and process the message afterwards."},
        "410": {"description": "The receiver refuses this message for good: it is not tried again."},
        "default": {
            "description": "It is tried up to eight times with growing delays, and never before `Retry-After`."
        },
    },
    "security": [],
}
"""The request that the API itself makes."""

# ---------------------------------------------------------------------------------------------------------------------
# What every operation can answer

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
    """Add what every operation can answer, the headers of answers, and the webhook; drf-spectacular calls this."""
    components = result["components"]
    for methods in result["paths"].values():
        for method, one in methods.items():
            _complete_operation(method, one)
    shapes = components["schemas"]
    for model in (Problem, RunMessage):
        schema = model.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        shapes.update({**schema.pop("$defs"), **shapes, model.__name__: schema})
    components["schemas"] = dict(sorted(shapes.items()))
    for schema in shapes.values():
        for part in (schema, *schema.get("properties", {}).values()):
            # Pydantic makes titles of names. A field with a default is a required one for generators of TypeScript.
            part.pop("title", None)
            part.pop("default", None)
    components["headers"] = {
        name: {"description": description, "schema": {"type": "string"}} for name, description in _HEADERS.items()
    }
    components["responses"] = {
        f"Problem{status}": {
            "description": meaning,
            "headers": _refer_to(*_QUOTA, *_OF_PROBLEMS.get(status, ())),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, (_, meaning) in STATUSES.items()
        if meaning
    }
    result["webhooks"] = {RUN_ENDED["operationId"]: {"post": RUN_ENDED}}
    return result


def _complete_operation(method: str, operation: dict[str, Any]) -> None:
    answers, parameters = operation["responses"], operation.setdefault("parameters", [])
    for parameter in parameters:
        parameter["schema"].pop("title", None)
        if parameter["schema"].get("default", ...) is None:
            del parameter["schema"]["default"]
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


def _refer_to(*headers: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in headers}


# ---------------------------------------------------------------------------------------------------------------------
# The document


class YamlRenderer(OpenApiYamlRenderer):
    """Writes the document as ``application/yaml``, which knows no other encoding than UTF-8."""

    media_type = "application/yaml"
    charset = None


class OpenApiYaml(YamlRenderer):
    """The same under the type that OpenAPI has for it."""

    media_type = OpenApiYamlRenderer.media_type


RENDERERS = (OpenApiJsonRenderer2, OpenApiJsonRenderer, YamlRenderer, OpenApiYaml)


@cache
def build_schema() -> dict[str, Any]:
    """The OpenAPI document. It is the same for all users, and built once."""
    patterns = [path("api/v1/", include("runs.api.urls"))]
    generator: Any = SchemaGenerator  # it has no types
    schema: dict[str, Any] = generator(patterns=patterns).get_schema(request=None, public=True)
    return {**schema, "servers": [{"url": ADDRESS}]}


def write_yaml(schema: dict[str, Any]) -> str:
    """The document as ``docs/openapi.yaml`` has it."""
    renderer: Any = YamlRenderer()  # it has no types
    text: bytes = renderer.render(schema, renderer_context={})
    return text.decode()


class SchemaView(ApiView):
    """The OpenAPI document."""

    renderer_classes = RENDERERS

    @operation(
        "GET schema",
        "Read this description as OpenAPI 3.1",
        None,
        tag="Documentation",
        answers={
            (200, renderer.media_type): OpenApiResponse(OpenApiTypes.OBJECT, "The OpenAPI document.")
            for renderer in RENDERERS
        },
    )
    def get_schema(self, request: Request) -> Response:
        """As JSON or as YAML, as the Accept header asks. Generators make clients from it."""
        # With the address under which this installation has the API.
        return Response({**build_schema(), "servers": [{"url": reverse("api:get_schema").rpartition("/")[0]}]})


@method_decorator(csp_update({"style-src": [UNSAFE_INLINE]}), name="dispatch")
class ReferenceView(SpectacularSwaggerSplitView):
    """The reference page: Swagger UI, which sets styles in line. What is tried there runs in the user's session."""

    url_name = "api:get_schema"
    authentication_classes = (SessionAuthentication,)
