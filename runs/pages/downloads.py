"""Files that are sent while they are read from the database, part by part.

Between two parts a file holds neither a thread nor a connection, and few parts are made at a time (see
``toolflow_site.request_threads``). A process sends at most ``MAX_FILES`` at a time.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

MAX_FILES = 20
"""Files that one process sends at a time."""
RETRY_AFTER_SECONDS = 30
"""When to ask again for a file that was refused."""

_answers: WeakSet[StreamingHttpResponse] = WeakSet()
"""Those that are being sent. Held weakly: nobody closes one whose client left before its first byte."""
_counting = threading.Lock()


class TooManyFilesError(Exception):
    """This process sends ``MAX_FILES`` files already. ``str(error)`` is a sentence."""

    def __init__(self) -> None:
        super().__init__(
            f"This server is sending {MAX_FILES} files already, as many as it may. "
            f"Try again in {RETRY_AFTER_SECONDS} seconds."
        )


def require_free_slot() -> None:
    """Raise ``TooManyFilesError`` if this process sends ``MAX_FILES`` files: before the audit trail is written."""
    with _counting:
        if sum(not answer.closed for answer in _answers) >= MAX_FILES:
            raise TooManyFilesError


def answer_too_many(request: HttpRequest, error: TooManyFilesError) -> HttpResponse:
    """The page for ``TooManyFilesError``."""
    answer = render(request, "runs/export_later.html", {"sentence": str(error)}, status=HTTPStatus.SERVICE_UNAVAILABLE)
    answer["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return answer


def announce_file(request: HttpRequest, *, name: str, content_type: str) -> StreamingHttpResponse:
    """The answer to HEAD: the headers of ``send_file``."""
    return _build_answer(request, iter(()), name, content_type)


def send_file(request: HttpRequest, parts: Iterator[bytes], *, name: str, content_type: str) -> StreamingHttpResponse:
    """The answer to ``request`` that is a file called ``name``, with the bytes of ``parts``."""
    answer = _build_answer(request, parts, name, content_type)
    with _counting:
        _answers.add(answer)
    return answer


def _build_answer(request: HttpRequest, parts: Iterator[bytes], name: str, content_type: str) -> StreamingHttpResponse:
    # A server of one kind would collect what is made for the other before it sends the first byte.
    content: Any = _read_in_threads(parts) if isinstance(request, ASGIRequest) else parts
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(content, content_type=content_type, headers=headers)


async def _read_in_threads(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    read_part = sync_to_async(lambda: next(parts, None))
    while (part := await read_part()) is not None:
        if part:
            yield part
