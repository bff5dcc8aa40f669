"""Conditional requests: ETags, and what ``If-Match`` and ``If-None-Match`` ask for."""

from __future__ import annotations

import hashlib
from http import HTTPStatus

from django.http import HttpRequest, HttpResponseNotModified
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags, quote_etag
from rest_framework.request import Request

from runs.api.problems import ApiProblem

_OF_BODY = ("Content-Type", "Content-Length", "Content-Disposition")


def make_tag(representation: bytes) -> str:
    """The ETag of an answer: the same only if all parts are."""
    return quote_etag(hashlib.sha256(representation).hexdigest()[:32])


def not_modified(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """The answer; 304 without a body if ``If-None-Match`` says that the caller has it already."""
    tag, known = response.get("ETag"), parse_etags(request.headers.get("If-None-Match", ""))
    is_read = request.method in ("GET", "HEAD") and response.status_code == HTTPStatus.OK
    if tag is None or not is_read or not is_among(tag, known):
        return response
    return HttpResponseNotModified(headers={name: text for name, text in response.items() if name not in _OF_BODY})


def is_among(tag: str, tags: list[str]) -> bool:
    """Whether ``tags`` of a header name that tag. A weak one will do (``W/"…"``), as caches on the way make them."""
    return tags == ["*"] or tag in {one.removeprefix("W/") for one in tags}


def require_unchanged(request: Request, kind: str, *tags: str) -> None:
    """Raise ``ApiProblem`` (412) unless ``If-Match``, if it was sent, names one of ``tags``, those of what is there.

    There are none of what does not exist. ``kind`` is the type of the problem. Raises 400 for a header without an ETag.
    """
    wanted = _parse_tags(request, "If-Match")
    if wanted is not None and not (tags if wanted == ["*"] else set(tags).intersection(wanted)):
        raise _build_problem(kind, "This has changed since you read it, or no longer exists. Read it again.", tags)


def require_other(request: Request, kind: str, *tags: str) -> None:
    """Raise ``ApiProblem`` (412) if ``If-None-Match`` names the first of ``tags``. Else as above."""
    unwanted = _parse_tags(request, "If-None-Match")
    if unwanted and tags and is_among(tags[0], unwanted):
        raise _build_problem(kind, "This already exists, and the request must not change it.", tags)


def _build_problem(kind: str, sentence: str, tags: tuple[str, ...]) -> ApiProblem:
    return ApiProblem(HTTPStatus.PRECONDITION_FAILED, kind, sentence, headers={"ETag": tags[0]} if tags else {})


def _parse_tags(request: Request, name: str) -> list[str] | None:
    sent = request.headers.get(name)
    tags = None if sent is None else parse_etags(sent)
    if tags == []:
        sentence = f"“{name}” holds the ETag of what is changed, as it was read with its double quotes, or *."
        raise ApiProblem(HTTPStatus.BAD_REQUEST, "bad-request", sentence)
    return tags
