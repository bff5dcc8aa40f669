"""Files that are sent while they are still read from the database, a bounded part at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse


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


def send_file(request: HttpRequest, stream: PartStream, *, name: str, content_type: str) -> StreamingHttpResponse:
    """The answer to ``request`` that is a file called ``name``, with the bytes of ``stream``."""
    # A server of one kind would collect what is made for the other before it sends the first byte.
    content: Any = AsyncParts(stream) if isinstance(request, ASGIRequest) else stream
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(content, content_type=content_type, headers=headers)
