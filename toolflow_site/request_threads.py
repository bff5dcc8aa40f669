"""How the ASGI application uses threads: nearly all of its middleware and views are synchronous."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class DashboardHandler(ASGIHandler):
    """Takes a request from its first middleware to its view in one go, in one thread.

    Django's own handler goes back and forth between the event loop and the thread on the way, which costs more than
    most pages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware()

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """The answer; if it is a stream, the event loop reads it afterwards."""
        response: HttpResponseBase = await sync_to_async(self.get_response)(request)
        return response


class KeptThreads:
    """Lends each request a thread that requests before it had, and with it their database connection.

    By itself every request has a thread of its own, and opens a connection that nobody uses again. A burst may have
    more than ``most_idle`` threads; those too many end with it.
    """

    def __init__(self, handler: ASGIHandler, *, most_idle: int = 32) -> None:
        self._handler = handler
        self._most_idle = most_idle
        self._idle: list[ThreadPoolExecutor] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        thread = self._idle.pop() if self._idle else ThreadPoolExecutor(max_workers=1, thread_name_prefix="request")
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self._handler(scope, receive, send)
        finally:
            if len(self._idle) < self._most_idle:
                self._idle.append(thread)
            else:
                _end(thread)

    def end(self) -> None:
        """End the threads that wait for requests, and close their connections."""
        while self._idle:
            _end(self._idle.pop())


def _end(thread: ThreadPoolExecutor) -> None:
    thread.submit(connections.close_all)
    thread.shutdown(wait=False)
