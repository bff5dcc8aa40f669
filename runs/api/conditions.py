"""Headers by which a request depends on what is there (RFC 9110): ETags, and answers that need not be sent again."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponseNotModified
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags, quote_etag
from rest_framework.utils.encoders import JSONEncoder

READING = ("GET", "HEAD")
_OF_BODY = ("Content-Type", "Content-Length", "Content-Disposition")
_encoder = JSONEncoder()


def make_tag(representation: Any) -> str:
    """The ETag of a document, or of the bytes of a file: another one for whatever is not the same in all parts."""
    said = representation if isinstance(representation, bytes) else _encoder.encode(representation).encode()
    return quote_etag(hashlib.sha256(said).hexdigest()[:32])


def is_among(tag: str, tags: list[str]) -> bool:
    """Whether ``If-None-Match`` names it: there a weak ETag will do (``W/"…"``), as caches on the way make them."""
    return tags == ["*"] or tag in {one.removeprefix("W/") for one in tags}


def leave_out_known(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """The answer; 304 without a body if ``If-None-Match`` says that whoever asks has it already."""
    tag = response.get("ETag")
    tags = parse_etags(request.headers.get("If-None-Match", ""))
    if tag is None or request.method not in READING or response.status_code != HTTPStatus.OK:
        return response
    if not is_among(tag, tags):
        return response
    headers = {name: value for name, value in response.items() if name not in _OF_BODY}
    return HttpResponseNotModified(headers=headers)
