"""The edge of the ASGI application: who asks, for what, and how much of it.

What a proxy says of a client is believed of the proxies that are named, and of nobody else: anybody may write
``X-Forwarded-For`` and ``X-Forwarded-Proto``. Behind the edge ``request.META["REMOTE_ADDR"]`` is the client's address
and ``request.is_secure()`` tells how it came, so that nothing else in ToolFlow reads those headers.
"""

from __future__ import annotations

import asyncio
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


STRANGER_BYTES, STRANGER_SECONDS = 1_000_000, 20
"""What the body of a request may have, and take to arrive, that names no session and no token."""
BODY_SECONDS = 60
"""Seconds that any other body may take."""
SMALL_BODY = 65_536
"""Bytes of each body that are not counted with those of others: nobody keeps people from signing in with large ones."""
FULL_BODIES = 10
"""Bodies of the largest size that may be in one process at the same time, or as many bytes of smaller ones."""


def build_edge(
    application: Application,
    *,
    trusted_proxies: Sequence[str] = (),
    url_prefix: str = "",
    most_bytes: int,
    session_cookie: str = "sessionid",
) -> Application:
    """``application`` behind its edge.

    ``trusted_proxies`` are addresses and networks, ``url_prefix`` is the path below which everything lies, and
    ``most_bytes`` bounds the body of a request. Who sends ``session_cookie`` may have signed in.
    """
    application = BodyLimit(application, most_bytes, session_cookie)
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


class _RefusedError(Exception):
    """The body of a request is not taken, for ``sentence``."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class BodyLimit:
    """Refuses bodies that are larger than anything ToolFlow takes, too slow or too many, before they fill the disk.

    Nobody knows yet who sends them: whoever names no session and no token may send little.

    What is read is counted: a body in chunks tells no length.
    """

    def __init__(self, application: Application, most_bytes: int, session_cookie: str = "sessionid") -> None:
        self._application = application
        self._most_bytes = most_bytes
        self._most_together = FULL_BODIES * most_bytes
        self._session_cookie = f"{session_cookie}=".encode()
        self._held = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or not (length := _read_length(scope)):
            await self._application(scope, receive, send)
            return
        most, seconds = self._find_bounds(scope)
        if length > most:
            await self._refuse(scope, send, self._describe_size(most))
            return
        count = counted = 0
        is_whole = False
        until = asyncio.get_running_loop().time() + seconds

        async def receive_counted() -> Message:
            nonlocal count, counted, is_whole
            if is_whole:
                # Whoever still listens waits for the client to leave.
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                sentence = f"The body did not arrive within {seconds} seconds."
                raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT, sentence) from None
            count += len(message.get("body", b""))
            is_whole = not message.get("more_body")
            if count > most:
                raise self._describe_size(most)
            if count > SMALL_BODY:
                self._held += count - SMALL_BODY - counted
                counted = count - SMALL_BODY
                if self._held > self._most_together:
                    sentence = "Too many large bodies arrive at once. Try again soon."
                    raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
            return message

        try:
            await self._application(scope, receive_counted, send)
        except _RefusedError as refusal:
            # Django reads the whole body before it answers: nothing has been sent.
            await self._refuse(scope, send, refusal)
        finally:
            self._held -= counted

    def _find_bounds(self, scope: Message) -> tuple[int, int]:
        """Bytes that the body may have, and seconds that it may take."""
        names_somebody = any(
            name == b"authorization" or (name == b"cookie" and self._session_cookie in value)
            for name, value in scope["headers"]
        )
        if names_somebody:
            return self._most_bytes, BODY_SECONDS
        return min(self._most_bytes, STRANGER_BYTES), STRANGER_SECONDS

    def _describe_size(self, most: int) -> _RefusedError:
        whose = "here" if most == self._most_bytes else "for whoever names no session and no token"
        sentence = f"The body is larger than {most:,} bytes, the limit {whose}."
        return _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)

    async def _refuse(self, scope: Message, send: Send, refusal: _RefusedError) -> None:
        status = refusal.status
        request_id = choose_request_id(_read_header(scope, HEADER.lower().encode()) or None)
        token = set_request_id(request_id)
        note_refusal(method=scope["method"], path=scope["path"], status=status)
        # Not before somebody sends too much: those who only build the edge need no Django that is set up.
        from runs.api.problems import MEDIA_TYPE, build_document

        document = build_document(status, refusal.sentence)
        reset_request_id(token)
        always = list_headers(is_secure=scope["scheme"] == "https")
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (HEADER.lower().encode(), request_id.encode()),
            (b"connection", b"close"),
            (b"cache-control", b"no-store"),
            (b"content-security-policy", b"default-src 'none'"),
            *([(b"retry-after", b"5")] if status == HTTPStatus.SERVICE_UNAVAILABLE else []),
            *((name.lower().encode(), value.encode()) for name, value in always.items()),
        ]
        await send({"type": "http.response.start", "status": int(status), "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})


def _read_length(scope: Message) -> int:
    """What the request says that its body has, in bytes; 1 where it has one of an unknown length, 0 if it has none."""
    length = 0
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return 1
        if name == b"content-length":
            # Nobody counts to what has more digits.
            length = int(value[:18]) if value.isdigit() else 1
    return length


def _read_header(scope: Message, name: bytes) -> str:
    """The header of that name (in small letters); empty if there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
