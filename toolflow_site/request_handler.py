"""How the web server hands requests to Django: bodies within bounds, and each request in one call in one thread.

Django's own ASGI handler keeps a whole body before anything checks it, gives every request a new thread with a new
database connection, and crosses between event loop and thread several times. See docs/decisions for what that costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from http import HTTPStatus
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.http import FileResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from runs.request_slots import RequestSlots
from toolflow_site.middleware import PROBES, BodyRefusedError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_WORKING = 16
"""Requests of one process that are worked on at a time. More threads answer nothing sooner: they share one lock."""
MAX_PROBES = 2
"""The same for probes, which wait for no other request."""
MAX_THREADS = 250
"""Threads of requests: those that are worked on, and those that released their slot while they wait."""
MAX_PARTS = 4
"""Parts of streamed answers that are made at a time."""

ANONYMOUS_MAX_BODY = 1_000_000
"""Bytes that a body may have where the request names no session and no token."""
BODY_TIMEOUT = 60
"""Seconds that a body may take to arrive."""
SMALL_BODY = 65_536
"""Bytes up to which a body does not count towards ``MAX_FULL_BODIES``: large ones keep no user from signing in."""
MAX_FULL_BODIES = 10
"""Bodies of the largest size that one process holds at a time, or as many bytes of smaller ones."""


class RequestHandler(ASGIHandler):
    """Django's handler with kept threads, a bound on requests at a time, and bounds on bodies."""

    def __init__(self, *, max_working: int = MAX_WORKING, max_body: int | None = None) -> None:
        super().__init__()
        self._slots = RequestSlots(max_working)
        self._probe_slots = RequestSlots(MAX_PROBES)
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="request")
        self._stream_threads = _StreamThreads(MAX_PARTS, thread_name_prefix="stream")
        self._max_body = max_body or settings.TOOLFLOW_MAX_BODY
        self._held_bytes = 0

    def load_middleware(self, is_async: bool = False) -> None:
        """Load the middleware in its synchronous form: a request goes through it in one call."""
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise ValueError(f"Only HTTP is served, not {scope['type']}.")
        with SpooledTemporaryFile(max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE) as body, ExitStack() as held:
            try:
                await self._receive(scope, receive, body, held)
            except RequestAborted:
                return
            except BodyRefusedError as refusal:
                # The middleware answers, so that a refusal has an id, headers and a line in the log like all answers.
                scope["toolflow.refusal"] = refusal
                body.truncate(0)
            body.seek(0)
            slots = self._probe_slots if scope["path"].endswith(PROBES) else self._slots
            async with slots.hold():
                respond = sync_to_async(self._respond, thread_sensitive=False, executor=self._threads)
                response = await respond(scope, body)
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)

    async def _receive(self, scope: Scope, receive: Receive, body: IO[bytes], held: ExitStack) -> None:
        """Write what arrives to ``body``, which counts as held until ``held`` is closed.

        Raises ``BodyRefusedError``, and ``RequestAborted`` if the client leaves.
        """
        most = self._max_body if _names_user(scope) else min(self._max_body, ANONYMOUS_MAX_BODY)
        length = _read_length(scope)
        # One of unknown length counts as the largest.
        size = most if length is None else length
        if size > most:
            raise build_size_refusal(most)
        if size > SMALL_BODY:
            if self._held_bytes + size > MAX_FULL_BODIES * self._max_body:
                sentence = "Too many large bodies arrive at once. Try again soon."
                raise BodyRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
            self._held_bytes += size
            held.callback(self._release_bytes, size)
        is_whole = False
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                while not is_whole:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestAborted
                    body.write(message.get("body", b""))
                    if body.tell() > most:
                        raise build_size_refusal(most)
                    is_whole = not message.get("more_body", False)
        except TimeoutError:
            sentence = f"The body did not arrive within {BODY_TIMEOUT} seconds."
            raise BodyRefusedError(HTTPStatus.REQUEST_TIMEOUT, sentence) from None

    def _release_bytes(self, size: int) -> None:
        self._held_bytes -= size

    def _respond(self, scope: Scope, body: Any) -> Any:
        """Answer a request in its thread."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = refusal if request is None else self.get_response(request)
        response._handler_class = self.__class__
        if response.streaming:
            close_old_connections()
        else:
            response.close()
        return response

    async def _stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        """Send an answer part by part until its end, or until the client leaves. No thread is held between parts."""
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        async with ThreadSensitiveContext(executor=self._stream_threads):
            sending = asyncio.create_task(self.send_response(response, send))
            leaving = asyncio.create_task(self.listen_for_disconnect(receive))
            try:
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                leaving.cancel()
                outcome, _ = await asyncio.gather(sending, leaving, return_exceptions=True)
                await sync_to_async(response.close)()
            if isinstance(outcome, Exception):
                raise outcome


class _StreamThreads(ThreadPoolExecutor):
    """Threads in which parts of streams are made. None keeps its connection of a pool between two parts."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def call() -> Any:
            close_old_connections()
            try:
                return fn(*args, **kwargs)
            finally:
                close_old_connections()

        return super().submit(call)


def build_size_refusal(size: int) -> BodyRefusedError:
    """The refusal of a body of more than ``size`` bytes."""
    sentence = f"The body is larger than {size:,} bytes, the limit here."
    return BodyRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)


def _read_length(scope: Scope) -> int | None:
    """The length of the body that the headers state, in bytes; 0 without a body, None for one in chunks."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    if b"transfer-encoding" in headers or (length and not length.isdigit()):
        return None
    # Longer numbers are as good as endless.
    return int(length[:18] or 0)


def _names_user(scope: Scope) -> bool:
    """Whether a request names a session or a token, good or not."""
    cookie = f"{settings.SESSION_COOKIE_NAME}=".encode()
    return any(name == b"authorization" or (name == b"cookie" and cookie in value) for name, value in scope["headers"])


class SubPath:
    """Gives every request the address that browsers know, whether or not a proxy takes the prefix away.

    Probes that come past the proxy need no prefix either.
    """

    def __init__(self, application: Application, prefix: str) -> None:
        self._application = application
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: str = scope.get("path", "")
        if scope["type"] == "http" and path != self._prefix and not path.startswith(f"{self._prefix}/"):
            scope = {**scope, "path": self._prefix + path}
        await self._application(scope, receive, send)
