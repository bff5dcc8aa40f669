"""What requests about flows hold: the document of a flow as JSON or YAML, and parameters of the query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any

from rest_framework import exceptions
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.engine.json_values import describe_type, dump_json, parse_json
from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES, FlowFileError
from flows.portability import NOTE_LENGTH, parse_flow_file
from runs.api.base import read_text
from runs.api.problems import ApiProblem, InvalidBody, InvalidQuery

if TYPE_CHECKING:
    from django.contrib.auth.models import User

YAML = "application/yaml"
_SHOWN = 40
_FLAGS = {"true": True, "false": False}
# In JSON they may stand in text as they are; a flow file holds them escaped.
_ONLY_JSON = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class FlowSource:
    """The text of a body that should hold a flow."""

    text: str
    is_yaml: bool


class FlowJSONParser(BaseParser):
    """Reads a body as JSON, and leaves it to ``read_flow_body`` to make a flow of it."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """A ``FlowSource``. Raises ``ParseError`` for what is no JSON, ``ApiProblem`` for no object, or a large one."""
        text = _read_small_text(stream)
        try:
            value = parse_json(text)
        except ValueError as error:
            raise exceptions.ParseError(str(error)) from None
        if not isinstance(value, dict):
            raise InvalidBody(
                [Problem("", f"The body is the document of a flow, an object; got {describe_type(value)}.")]
            )
        return FlowSource(_escape(text), is_yaml=False)


class FlowYAMLParser(BaseParser):
    """Reads a body as YAML, and leaves it to ``read_flow_body`` to make a flow of it."""

    media_type = YAML

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """A ``FlowSource``. Raises as ``FlowJSONParser.parse``."""
        return FlowSource(_read_small_text(stream), is_yaml=True)


def _read_small_text(stream: IO[bytes]) -> str:
    text = read_text(stream)
    size = len(text.encode())
    if size > MAX_FILE_BYTES:
        sentence = f"The document of a flow has at most {MAX_FILE_BYTES:,} bytes, and this one has {size:,}."
        raise ApiProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", sentence)
    return text


def _escape(text: str) -> str:
    return _ONLY_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def read_flow_body(request: Request) -> FlowSpec:
    """The flow in a body that one of the parsers here read. Raises ``InvalidBody`` with all that is wrong."""
    source: object = request.data
    if not isinstance(source, FlowSource):
        raise InvalidBody([Problem("", "The body is empty. It should hold the document of a flow, as JSON or YAML.")])
    return _read_flow(source, "")


def read_flow_document(document: Mapping[str, Any], place: str) -> FlowSpec:
    """The flow in a part of a body. ``place`` is the JSON pointer to it. Raises as ``read_flow_body``."""
    return _read_flow(FlowSource(_escape(dump_json(document)), is_yaml=False), place)


def _read_flow(source: FlowSource, place: str) -> FlowSpec:
    try:
        return parse_flow_file(source.text)
    except FlowFileError as error:
        # Lines are for those who write them: of JSON, pointers tell more.
        places = [f"{problem.place}: " if source.is_yaml and problem.place else "" for problem in error.problems]
        raise InvalidBody(
            [
                Problem(place + problem.path, words + problem.message)
                for problem, words in zip(error.problems, places, strict=True)
            ]
        ) from None


def find_user(request: Request) -> User:
    """Who asks: nobody else than users who are signed in gets as far as that."""
    user = request.user
    assert user.is_authenticated
    return user


def require_no_body(request: Request) -> None:
    """Raises ``InvalidBody`` if a body says anything: there is nothing that it could mean."""
    if request.data not in ({}, None):
        raise InvalidBody([Problem("", "Nothing can be said in the body of this request; leave it empty.")])


def read_flag(request: Request, name: str, *, default: bool = False) -> bool:
    """A query parameter that is true or false. Raises ``InvalidQuery``."""
    return _FLAGS[read_choice(request, name, _FLAGS, default="true" if default else "false")]


def read_choice(request: Request, name: str, choices: Mapping[str, Any] | tuple[str, ...], *, default: str) -> str:
    """A query parameter that is one of some words. Raises ``InvalidQuery``."""
    text: str = request.query_params.get(name, default)
    if text not in choices:
        listed = ", ".join(choices)
        raise InvalidQuery([Problem(name, f"“{name}” is one of {listed}; got “{text[:_SHOWN]}”.")])
    return text


def read_note(request: Request) -> str:
    """The parameter ``note``: what the new version is said to bring. Raises ``InvalidQuery``."""
    text: str = request.query_params.get("note", "")
    note = " ".join(text.split())
    if "\0" in note:
        raise InvalidQuery([Problem("note", "The note holds a NUL character, which can’t be stored. Take it out.")])
    if len(note) > NOTE_LENGTH:
        sentence = f"The note has {len(note):,} characters; at most {NOTE_LENGTH} are stored."
        raise InvalidQuery([Problem("note", sentence)])
    return note
