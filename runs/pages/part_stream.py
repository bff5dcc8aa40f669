"""Files that are sent while they are still read from the database, a bounded part at a time.

Between two parts a file holds neither a thread nor a connection to the database, and few parts are made at a time (see
``toolflow_site.request_threads``): however many files are sent, pages are answered. What a file does hold is the part
that its reader has not taken yet, so that a process sends no more than ``MOST_FILES`` at a time.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from runs.admission import Admission

MOST_FILES = 20
"""Files that one process sends at a time."""
MOMENT = 30
"""Seconds after which somebody may ask again who found so many under way."""

_answers: WeakSet[StreamingHttpResponse] = WeakSet()
"""Those that are being sent. Held weakly: nobody closes one whose reader left before it got on its way."""
_counting = threading.Lock()


class TooManyFilesError(Exception):
    """This process sends as many files as it may. ``str(error)`` is a sentence."""

    def __init__(self) -> None:
        super().__init__(
            f"This server is sending {MOST_FILES} files already, as many as it may. Try again in {MOMENT} seconds."
        )


class PartStream(ABC):
    """The bytes of a file, for as long as somebody takes them.

    Served synchronously it is iterated; for an asynchronous server ``AsyncParts`` is. Whoever is done with it, at its
    end or before, calls ``close``.
    """

    head: bytes = b""
    """What comes before all parts, and is there without reading anything."""

    @abstractmethod
    def read_part(self) -> bytes | None:
        """The next part, which may be empty; None at the end."""

    def close(self) -> None:  # noqa: B027  # not all have something to end
        """Stop: what is not read by now is not wanted. Does nothing at the end."""

    def __iter__(self) -> Iterator[bytes]:
        if self.head:
            yield self.head
        while (part := self.read_part()) is not None:
            if part:
                yield part


class AsyncParts:
    """A stream for an asynchronous server, each part of it read in a thread."""

    def __init__(self, stream: PartStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._stream.head:
            yield self._stream.head
        read_part = sync_to_async(self._stream.read_part)
        while (part := await read_part()) is not None:
            if part:
                yield part

    def close(self) -> None:
        """What Django calls once the answer is sent, or its reader is gone."""
        self._stream.close()


def require_room() -> None:
    """Ask before anything is noted of a file that is to be sent. Raises ``TooManyFilesError``."""
    with _counting:
        if sum(not answer.closed for answer in _answers) >= MOST_FILES:
            raise TooManyFilesError


def answer_too_many(request: HttpRequest, error: TooManyFilesError) -> HttpResponse:
    """The page that says so."""
    answer = render(request, "runs/export_later.html", {"sentence": str(error)}, status=HTTPStatus.SERVICE_UNAVAILABLE)
    answer["Retry-After"] = str(MOMENT)
    return answer


class BrokenOffError(Exception):
    """A file ends before its time. Raised to the server, which then ends the answer so that its reader notices."""


class AdmittedParts(PartStream):
    """The parts of ``stream``, for as long as ``admission`` holds."""

    def __init__(self, stream: PartStream, admission: Admission) -> None:
        self.head = stream.head
        self._stream = stream
        self._admission = admission

    def read_part(self) -> bytes | None:
        """The next part. Raises ``BrokenOffError`` once the admission doesn't hold any more."""
        if not self._admission.holds():
            self.close()
            raise BrokenOffError("Whoever takes this file would not be let in any more: the file is broken off.")
        return self._stream.read_part()

    def close(self) -> None:
        """Stop."""
        self._stream.close()


class _NoParts(PartStream):
    """Nothing of a file."""

    def read_part(self) -> None:
        """There is none."""


def announce_file(request: HttpRequest, *, name: str, content_type: str) -> StreamingHttpResponse:
    """The answer to HEAD: what ``send_file`` would say of the file. Nothing is read, and nothing should be noted.

    Raises ``TooManyFilesError`` if this process sends enough files already; it counts for none itself.
    """
    require_room()
    return _make_answer(request, _NoParts(), name, content_type)


def send_file(
    request: HttpRequest, stream: PartStream, *, permission: str, name: str, content_type: str
) -> StreamingHttpResponse:
    """The answer to ``request`` that is a file called ``name``, with the bytes of ``stream``.

    It breaks off when whoever asks would not be let in any more, for ``permission``: see ``Admission``.
    """
    answer = _make_answer(request, AdmittedParts(stream, Admission(request, permission)), name, content_type)
    with _counting:
        _answers.add(answer)
    return answer


def _make_answer(request: HttpRequest, stream: PartStream, name: str, content_type: str) -> StreamingHttpResponse:
    # A server of one kind would collect what is made for the other before it sends the first byte.
    content: Any = AsyncParts(stream) if isinstance(request, ASGIRequest) else stream
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(content, content_type=content_type, headers=headers)
