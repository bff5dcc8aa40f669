"""Reading bodies: JSON that says exactly what it means, and nothing that the endpoint doesn't know."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import IO, Any

from django.conf import settings
from rest_framework import exceptions, serializers
from rest_framework.parsers import BaseParser

from flows.engine.errors import Problem
from flows.engine.json_value import format_pointer, parse_json
from runs.api.problems import ApiProblem, InvalidBody


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
        """The values, by their names. Raises ``InvalidBody`` for names that are not known."""
        if isinstance(data, Mapping):
            unknown = [name for name in data if name not in self.fields or self.fields[name].read_only]
            if unknown:
                known = ", ".join(name for name, field in self.fields.items() if not field.read_only)
                sentence = f"There is no field of this name; known are {known}."
                raise InvalidBody([Problem(format_pointer([name]), sentence) for name in unknown])
        return super().to_internal_value(data)
