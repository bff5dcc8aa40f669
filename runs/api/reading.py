"""Reading bodies: JSON that says exactly what it means, and nothing that the endpoint doesn't know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice
from typing import IO, Any

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from rest_framework import exceptions, serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.engine.json_values import describe_type, parse_json
from runs.api.problems import MAX_ERRORS, ApiProblem, InvalidBody


class JSONBodyParser(BaseParser):
    """Reads a body as JSON. Keys that stand twice, NaN and what is nested without end are refused, as everywhere."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The value in the body. Raises ``ParseError`` for what is no JSON, ``ApiProblem`` for what is too large."""
        text = read_text(stream)
        try:
            return parse_json(text)
        except ValueError as error:
            raise exceptions.ParseError(str(error)) from None


def read_text(stream: IO[bytes]) -> str:
    """The body as text. Raises as ``JSONBodyParser.parse``."""
    most: int = settings.TOOLFLOW_API_MAX_BODY
    body = stream.read(most + 1)
    if len(body) > most:
        raise ApiProblem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"The body is larger than {most:,} bytes, the limit here."
        )
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise exceptions.ParseError(f"The body is not UTF-8: byte {error.start} can’t be read.") from None


class StrictSerializer(serializers.Serializer[Any]):
    """Fields of a body. What is not among them is an error: a misspelt name must never be passed over."""

    def to_internal_value(self, data: Any) -> Any:
        """The values, by their names. Raises ``ValidationError`` with all that is wrong, unknown names first."""
        wrong = self._find_unknown(data) if isinstance(data, Mapping) else {}
        try:
            values = super().to_internal_value(data)
        except serializers.ValidationError as error:
            raise serializers.ValidationError({**wrong, **_by_name(error.detail)}) from None
        if wrong:
            raise serializers.ValidationError(wrong)
        return values

    def _find_unknown(self, data: Mapping[str, Any]) -> dict[str, Any]:
        known = [name for name, field in self.fields.items() if not field.read_only]
        unknown = islice((name for name in data if name not in known), MAX_ERRORS)
        listed = f"; known are {', '.join(known)}" if known else ""
        return {name: [f"There is no field of this name{listed}."] for name in unknown}


def _by_name(detail: Any) -> dict[str, Any]:
    assert isinstance(detail, dict)
    return detail


def read_body(kind: type[StrictSerializer], request: Request) -> dict[str, Any]:
    """What a body says, by name. Raises ``InvalidBody`` for no object, ``ValidationError`` with all that is wrong."""
    if not isinstance(request.data, Mapping):
        raise InvalidBody([Problem("", f"The body must be a JSON object, got {describe_type(request.data)}.")])
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    found: dict[str, Any] = serializer.validated_data
    return found


def prepare_body(request: HttpRequest) -> None:
    """Let a body be read that comes in chunks, and tells no length: without one it would count as empty.

    Raises ``ApiProblem``: 411 where the server doesn't hand such bodies on, 415 for one that is compressed.
    """
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise ApiProblem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            f"The body is encoded as “{coding[:40]}”; send it as it is, without Content-Encoding.",
            headers={"Accept-Encoding": "identity"},
        )
    if request.META.get("CONTENT_LENGTH"):
        return
    if isinstance(request, ASGIRequest):
        # It was received as a whole before anybody was asked to answer.
        body: IO[bytes] = request._stream
        request.META["CONTENT_LENGTH"] = str(body.seek(0, os.SEEK_END))
        body.seek(0)
    elif "Transfer-Encoding" in request.headers:
        raise ApiProblem(
            HTTPStatus.LENGTH_REQUIRED,
            "length-required",
            "This server reads no body in chunks; send it with Content-Length.",
        )
