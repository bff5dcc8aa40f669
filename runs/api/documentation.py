"""The description of the API for programs (OpenAPI) and for people (the reference page)."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, include, path, reverse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api import schema_completion  # noqa: F401  # it tells drf-spectacular about tokens and strict bodies
from runs.api.browsing import HeaderNegotiation
from runs.api.reference import Reference
from runs.api.rendering import DocumentRenderer
from runs.api.view import ApiView

ADDRESS = "/api/v1"
"""Where the API lies on an installation that has a host for itself."""


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

    renderer_classes = RENDERERS  # type: ignore[assignment]  # other formats than elsewhere
    # A browser gets the document itself, too: it is too large for a page.
    content_negotiation_class = HeaderNegotiation  # type: ignore[assignment]  # not as elsewhere

    @extend_schema(
        operation_id="getSchema",
        tags=["Documentation"],
        summary="Read this description as OpenAPI 3.1",
        description="As JSON or as YAML, as the Accept header asks. Generators make clients from it.",
        responses={
            (200, renderer.media_type): OpenApiResponse(OpenApiTypes.OBJECT, "The OpenAPI document.")
            for renderer in RENDERERS
        },
    )
    def get(self, request: Request) -> Response:
        """The document, with the address under which this installation has the API."""
        return Response({**build_schema(), "servers": [{"url": _find_address()}]})

    def finalize_response(self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any) -> Any:
        """Problems are JSON also for those who would have liked YAML."""
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        return super().finalize_response(request, response, *args, **kwargs)


class HtmlRenderer(DocumentRenderer):
    """Lets whoever asks for HTML in; what is rendered are the problems that came in its place."""

    media_type = "text/html"
    format = "html"


class ReferenceView(ApiView):
    """The reference page, for everybody who is signed in. What can't be done is told in the API's own way."""

    schema = None
    permission_classes: Any = ()
    renderer_classes: Any = (DocumentRenderer, HtmlRenderer)

    def get(self, request: Request) -> HttpResponse:
        """The page; strangers are led to where they sign in."""
        site = request._request
        if not request.user.is_authenticated:
            return redirect_to_login(site.get_full_path())
        address = _find_address()
        reference = Reference(build_schema(), address=address, site=site.build_absolute_uri("/").rstrip("/"))
        return render(site, "runs/api_reference.html", {"reference": reference, "address": address})


def _find_address() -> str:
    return reverse("api:schema").rpartition("/")[0]


urls: list[URLPattern] = [
    path("schema", SchemaView.as_view(), name="schema"),
    path("docs", ReferenceView.as_view(), name="docs"),
]
