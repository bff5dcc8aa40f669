"""Answers as pages: what somebody sees who opens an address of the API in a browser, signed in as on the pages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from runs.api.problems import MEDIA_TYPE as PROBLEM

MOST_CHARACTERS = 200_000
"""Of an answer that are shown; a longer one is for scripts."""

_FAULTS = frozenset({HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE})
_READING = frozenset({"GET", "HEAD"})
_HIDDEN_HEADERS = frozenset({"content-type", "vary", "set-cookie"})
_ANYTHING = "*/*"
_INDENTED = f"{JSONRenderer.media_type}; indent=2"


class HeaderNegotiation(DefaultContentNegotiation):
    """What the header ``Accept`` asks for; an empty one, as some clients send it, asks for nothing in particular.

    Nor does one that names problem documents: every endpoint gives them, and generated clients name nothing else where
    no other JSON is documented.
    """

    def get_accept_list(self, request: Request) -> list[str]:
        """The media types that are asked for."""
        named: list[str] = super().get_accept_list(request)
        return [_ANYTHING if _is_problem(one) else one for one in named if one] or [_ANYTHING]


class BrowserNegotiation(HeaderNegotiation):
    """Pages for browsers, for all others what the endpoint gives. Only the Accept header is asked, no parameter."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The renderer and its media type. Raises ``NotAcceptable`` where the endpoint gives nothing of the kind."""
        if is_browsing(request) and any(isinstance(renderer, JSONRenderer) for renderer in renderers):
            return PageRenderer(), PageRenderer.media_type
        chosen: tuple[BaseRenderer, str] = super().select_renderer(request, renderers, format_suffix)
        return chosen


def _is_problem(media_type: str) -> bool:
    return media_type.partition(";")[0].strip().lower() == PROBLEM


def is_browsing(request: Request) -> bool:
    """Whether a browser asks, to show the answer to its user: it names HTML first, and no token."""
    if request.method not in _READING:
        return False
    first = request.META.get("HTTP_ACCEPT", "").partition(",")[0].partition(";")[0].strip()
    scheme = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")[0]
    return bool(first == PageRenderer.media_type and scheme.lower() != "bearer")


class PageRenderer(BaseRenderer):
    """Writes an answer as a page of the site: its status, its headers and its JSON, in which addresses are links."""

    media_type = "text/html"
    format = "page"
    charset = "utf-8"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """The page. What the server itself failed at stays JSON: a page needs what may have failed."""
        assert renderer_context is not None
        response, request = renderer_context["response"], renderer_context["request"]
        text = JSONRenderer().render(data, _INDENTED).decode()
        if response.status_code in _FAULTS:
            return text.encode()
        # Scripts get a problem document or JSON, and the page says which.
        told_type = response.content_type or JSONRenderer.media_type
        response["Content-Type"] = f"{self.media_type}; charset={self.charset}"
        site: HttpRequest = request._request
        root = site.build_absolute_uri("/")
        headers = [(name, value) for name, value in response.items() if name.lower() not in _HIDDEN_HEADERS]
        context = {
            "method": request.method,
            "command": f'curl -H "Authorization: Bearer $TOOLFLOW_TOKEN" {shlex.quote(site.build_absolute_uri())}',
            "path": site.get_full_path(),
            "status": HTTPStatus(response.status_code),
            "is_problem": response.status_code >= HTTPStatus.BAD_REQUEST,
            "headers": [
                (name, list(split_at_addresses(value, root))) for name, value in [("Content-Type", told_type), *headers]
            ],
            "pieces": list(split_at_addresses(text[:MOST_CHARACTERS], root)),
            "is_cut": len(text) > MOST_CHARACTERS,
        }
        return render_to_string("runs/api_answer.html", context, request=site).encode()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text. ``address`` is where it leads, empty if nowhere."""

    text: str
    address: str = ""


def split_at_addresses(text: str, root: str) -> Iterator[Piece]:
    """JSON text or a header in pieces, with what is an address of this installation as a whole set apart.

    ``root`` is where these begin, with a slash at the end. Others are no links: what a model wrote may name any.
    """
    end = 0
    for match in re.finditer(rf'(?<=["<]){re.escape(root)}[^"\\\s<>]*(?=[">])', text):
        yield Piece(text[end : match.start()])
        yield Piece(match[0], match[0])
        end = match.end()
    yield Piece(text[end:])
