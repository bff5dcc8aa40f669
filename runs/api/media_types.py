"""Media types of the API: how bodies are read, how answers are written, and which of both is chosen."""

from __future__ import annotations

from http import HTTPStatus
from typing import IO, Any

from django.conf import settings
from pydantic import BaseModel
from rest_framework import exceptions
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from flows.engine.json_values import parse_json
from runs.api.problems import MEDIA_TYPE as PROBLEM
from runs.api.problems import ApiProblem


class JsonParser(BaseParser):
    """Reads a body as JSON. Repeated keys, NaN and what is nested without end are refused."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """The value in the body. Raises ``ParseError`` for what is not JSON, ``ApiProblem`` for what is too large."""
        text = read_text(stream)
        try:
            return parse_json(text)
        except ValueError as error:
            raise exceptions.ParseError(str(error)) from None


def read_text(stream: IO[bytes]) -> str:
    """The body as text. Raises as ``JsonParser.parse``."""
    limit: int = settings.TOOLFLOW_API_MAX_BODY
    body = stream.read(limit + 1)
    if len(body) > limit:
        sentence = f"The body is larger than {limit:,} bytes, the limit here."
        raise ApiProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", sentence)
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise exceptions.ParseError(f"The body is not UTF-8: byte {error.start} can’t be read.") from None


class JsonRenderer(JSONRenderer):
    """Writes models."""

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """The bytes of an answer; none for None."""
        model: BaseModel | None = data
        return b"" if model is None else model.model_dump_json(exclude_unset=True).encode()


class HeaderNegotiation(DefaultContentNegotiation):
    """What the header ``Accept`` asks for; an empty one, as some clients send it, asks for nothing in particular.

    Nor does one that names problem documents: every endpoint gives them, and generated clients name nothing else where
    no other JSON is documented.
    """

    def get_accept_list(self, request: Request) -> list[str]:
        """The media types that are asked for."""
        named: list[str] = super().get_accept_list(request)
        return ["*/*" if one.lower().startswith(PROBLEM) else one for one in named if one] or ["*/*"]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """The renderer and its media type. The parameter ``format`` wins; an unknown one is refused with the query."""
        for renderer in renderers:
            if renderer.format == request.query_params.get("format"):
                return renderer, renderer.media_type
        return super().select_renderer(request, renderers, format_suffix)
