"""The edge of the ASGI application: who asks, for what, and how much of it.

What a proxy says of a client is believed of the proxies that are named, and of nobody else: anybody may write
``X-Forwarded-For`` and ``X-Forwarded-Proto``. Behind the edge ``request.META["REMOTE_ADDR"]`` is the client's address
and ``request.is_secure()`` tells how it came, so that nothing else in ToolFlow reads those headers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from runs.request_id import HEADER, choose_request_id, reset_request_id, set_request_id
from runs.request_log import note_refusal
from toolflow_site.security import list_headers

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def build_edge(
    application: Application, *, trusted_proxies: Sequence[str] = (), url_prefix: str = "", most_bytes: int
) -> Application:
    """``application`` behind its edge.

    ``trusted_proxies`` are addresses and networks, ``url_prefix`` is the path below which everything lies, and
    ``most_bytes`` bounds the body of a request.
    """
    application = BodyLimit(application, most_bytes)
    if url_prefix:
        application = SubPath(application, url_prefix)
    if trusted_proxies:
        hosts: Any = list(trusted_proxies)
        proxied: Any = ProxyHeadersMiddleware(application, trusted_hosts=hosts)  # type: ignore[arg-type]  # ASGI, less narrow
        application = proxied
    return application


class SubPath:
    """Gives every request the address that browsers know, also where a proxy takes the prefix away or nobody puts it.

    So both ways of writing a proxy's configuration work, and probes that come past the proxy need no prefix.
    """

    def __init__(self, application: Application, prefix: str) -> None:
        self._application = application
        self._prefix = prefix

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            path: str = scope["path"]
            if path != self._prefix and not path.startswith(f"{self._prefix}/"):
                scope = {**scope, "path": self._prefix + path}
        await self._application(scope, receive, send)


class _BodyTooLargeError(Exception):
    """The body of a request is larger than it may be."""


class BodyLimit:
    """Refuses bodies that are larger than anything ToolFlow takes, before they fill the disk.

    What is read is counted: a body in chunks tells no length.
    """

    def __init__(self, application: Application, most_bytes: int) -> None:
        self._application = application
        self._most_bytes = most_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        if _read_length(scope) > self._most_bytes:
            await self._refuse(scope, send)
            return
        count = 0

        async def receive_counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._most_bytes:
                raise _BodyTooLargeError
            return message

        try:
            await self._application(scope, receive_counted, send)
        except _BodyTooLargeError:
            # Django reads the whole body before it answers: nothing has been sent.
            await self._refuse(scope, send)

    async def _refuse(self, scope: Message, send: Send) -> None:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        request_id = choose_request_id(_read_header(scope, HEADER.lower().encode()) or None)
        token = set_request_id(request_id)
        note_refusal(method=scope["method"], path=scope["path"], status=status)
        reset_request_id(token)
        document = {
            "type": "urn:toolflow:problem:too-large",
            "title": status.phrase,
            "status": int(status),
            "detail": f"The body is larger than {self._most_bytes:,} bytes, the limit here.",
            "request_id": request_id,
        }
        always = list_headers(is_secure=scope["scheme"] == "https")
        headers = [
            (b"content-type", b"application/problem+json"),
            (HEADER.lower().encode(), request_id.encode()),
            (b"connection", b"close"),
            (b"cache-control", b"no-store"),
            (b"content-security-policy", b"default-src 'none'"),
            *((name.lower().encode(), value.encode()) for name, value in always.items()),
        ]
        await send({"type": "http.response.start", "status": int(status), "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})


def _read_length(scope: Message) -> int:
    """What the request says that its body has, in bytes; 0 where it says nothing that makes sense."""
    text = _read_header(scope, b"content-length")
    return int(text) if text.isdecimal() else 0


def _read_header(scope: Message, name: bytes) -> str:
    """The header of that name (in small letters); empty if there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
