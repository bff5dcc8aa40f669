"""How the ASGI application uses threads: nearly all of its middleware and views are synchronous."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.db import close_old_connections, connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

_Value = TypeVar("_Value")


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

    async def send_response(self, response: HttpResponseBase, send: Any) -> None:
        """Send the answer. A stream may take minutes: it has a thread only while it does something in one."""
        thread = _lent_thread.get(None)
        if response.streaming and thread is not None:
            await sync_to_async(close_old_connections)()
            thread.give_back()
        await super().send_response(response, send)


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
        thread = LentThread(self)
        token = _lent_thread.set(thread)
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self._handler(scope, receive, send)
        finally:
            _lent_thread.reset(token)
            thread.give_back()

    def take(self) -> ThreadPoolExecutor:
        """A thread for whoever needs one."""
        try:
            return self._idle.pop()
        except IndexError:
            return ThreadPoolExecutor(max_workers=1, thread_name_prefix="request")

    def put(self, thread: ThreadPoolExecutor) -> None:
        """Keep a thread that is needed no more, or end it."""
        if len(self._idle) < self._most_idle:
            self._idle.append(thread)
        else:
            _end(thread)

    def end(self) -> None:
        """End the threads that wait for requests, and close their connections."""
        while self._idle:
            _end(self._idle.pop())


class LentThread(Executor):
    """The thread of one request. Given back early, each further call has one for as long as it takes."""

    def __init__(self, threads: KeptThreads) -> None:
        self._threads = threads
        self._thread: ThreadPoolExecutor | None = threads.take()

    def submit(self, fn: Callable[..., _Value], /, *args: Any, **kwargs: Any) -> Future[_Value]:
        """Call ``fn`` in the thread."""
        if self._thread is not None:
            return self._thread.submit(fn, *args, **kwargs)
        thread = self._threads.take()
        future = thread.submit(_call_and_close, fn, *args, **kwargs)
        future.add_done_callback(lambda _: self._threads.put(thread))
        return future

    def give_back(self) -> None:
        """Let another request have the thread."""
        if self._thread is not None:
            self._threads.put(self._thread)
            self._thread = None


_lent_thread: ContextVar[LentThread] = ContextVar("lent_thread")


def _call_and_close(fn: Callable[..., _Value], /, *args: Any, **kwargs: Any) -> _Value:
    try:
        return fn(*args, **kwargs)
    finally:
        # No end of a request will do it in this thread.
        close_old_connections()


def _end(thread: ThreadPoolExecutor) -> None:
    thread.submit(connections.close_all)
    thread.shutdown(wait=False)
