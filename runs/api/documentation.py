"""The description of the API for programs (OpenAPI) and for people (the reference page)."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib.auth.decorators import login_required
from django.http.response import HttpResponseBase
from django.urls import URLPattern, include, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.authentication import SessionAuthentication
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.base import ApiView, operation

ADDRESS = "/api/v1"
"""Where the API lies on an installation that has a host for itself."""


class YamlRenderer(OpenApiYamlRenderer):
    """Writes the document as ``application/yaml``, which knows no other encoding than UTF-8."""

    media_type = "application/yaml"
    charset = None


class OpenApiYaml(YamlRenderer):
    """The same under the type that OpenAPI has for it."""

    media_type = OpenApiYamlRenderer.media_type


_DOCUMENT = OpenApiResponse(OpenApiTypes.OBJECT, "The OpenAPI document.")
RENDERERS = (OpenApiJsonRenderer2, OpenApiJsonRenderer, YamlRenderer, OpenApiYaml)


@cache
def build_schema() -> dict[str, Any]:
    """The OpenAPI document. It is the same for everybody, and made once."""
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
        "getSchema",
        "Read this description as OpenAPI 3.1",
        tag="Documentation",
        requires=None,
        answers={
            (200, renderer.media_type): OpenApiResponse(OpenApiTypes.OBJECT, "The OpenAPI document.")
            for renderer in RENDERERS
        },
    )
    def get(self, request: Request) -> Response:
        """As JSON or as YAML, as the Accept header asks. Generators make clients from it."""
        # With the address under which this installation has the API.
        return Response({**build_schema(), "servers": [{"url": reverse("api:schema").rpartition("/")[0]}]})

    def finalize_response(self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any) -> Any:
        """Problems are JSON also for those who would have liked YAML."""
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        answer: Any = response
        return super().finalize_response(request, answer, *args, **kwargs)


@method_decorator(csp_update({"style-src": [UNSAFE_INLINE]}), name="dispatch")
class ReferenceView(SpectacularSwaggerSplitView):
    """The reference page: Swagger UI, which sets styles in line. What is tried there runs in the user's session."""

    url_name = "api:schema"
    authentication_classes = (SessionAuthentication,)


urls: list[URLPattern] = [
    path("schema", SchemaView.as_view(), name="schema"),
    path("docs", require_safe(login_required(ReferenceView.as_view())), name="docs"),
]
