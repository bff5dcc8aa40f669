"""How the ASGI application uses threads: nearly all of its middleware and views are synchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections, connections
from django.http import FileResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

_Value = TypeVar("_Value")


class DashboardHandler(ASGIHandler):
    """Takes a request from its first middleware to its view, and whatever ends it, in one go, in one thread.

    Django's own handler goes back and forth between the event loop and the thread on the way, which costs more than
    most pages. At most ``most_at_once`` requests are in threads at a time, the others wait for their turn: more
    threads answer nothing sooner, and each of them holds memory and a connection to the database.
    """

    def __init__(self, *, most_at_once: int = 32) -> None:
        super().__init__()
        self.load_middleware()
        self._places = asyncio.Semaphore(most_at_once)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request. A client that leaves ends a stream; any other answer is made whole before it is sent."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        try:
            set_script_prefix(get_script_prefix(scope))
            # Who waits for the end of a run sleeps in a thread nearly all the time; how many do is bounded elsewhere.
            waits = any(name == b"prefer" for name, _ in scope["headers"])
            async with nullcontext() if waits else self._places:
                response: HttpResponseBase = await sync_to_async(self._answer)(scope, body)
            # Its thread serves the next request, with a connection that has been used just now.
            if thread := _lent_thread.get(None):
                thread.give_back()
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)
        finally:
            body.close()

    def _answer(self, scope: Any, body: Any) -> Any:
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = refusal if request is None else self.get_response(request)
        # The sender that Django tells of the end.
        response._handler_class = self.__class__
        if response.streaming:
            close_old_connections()
        else:
            response.close()
        return response

    async def _stream(self, response: HttpResponseBase, receive: Any, send: Any) -> None:
        """Send what is made bit by bit. It may take minutes: there is a thread only while something is done in one."""
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        sending = asyncio.create_task(self.send_response(response, send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError, RequestAborted):
                await leaving
            sending.cancel()
            try:
                with suppress(asyncio.CancelledError):
                    await sending
            finally:
                await sync_to_async(response.close)()


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
