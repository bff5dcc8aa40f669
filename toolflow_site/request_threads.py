"""How the ASGI application uses threads: nearly all of its middleware and views are synchronous."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections, connections
from django.http import FileResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from runs.request_places import current_place
from toolflow_site.probes import PROBES

MOST_AT_ONCE = 16
"""Requests of one process that are worked on at a time. More threads answer nothing sooner: they share one lock."""
MOST_PROBES = 2
"""The same for probes: whoever asks whether the process lives is not kept waiting by others."""
MOST_PARTS = 4
"""Parts of streamed answers that are made at a time."""

_Value = TypeVar("_Value")


class DashboardHandler(ASGIHandler):
    """Takes a request from its first middleware to its view, and whatever ends it, in one go, in one thread.

    Django's own handler goes back and forth between the event loop and the thread on the way, which costs more than
    most pages. At most ``most_at_once`` requests are in threads at a time, the others wait for their turn.
    """

    def __init__(self, *, most_at_once: int = MOST_AT_ONCE) -> None:
        super().__init__()
        self._places = asyncio.Semaphore(most_at_once)
        self._probe_places = asyncio.Semaphore(MOST_PROBES)

    def load_middleware(self, is_async: bool = False) -> None:
        """The middleware in its synchronous form, whatever is asked for."""
        super().load_middleware(is_async=False)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request. A client that leaves ends a stream; any other answer is made whole before it is sent."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        try:
            set_script_prefix(get_script_prefix(scope))
            places = self._probe_places if scope["path"].endswith(tuple(PROBES)) else self._places
            async with places:
                token = current_place.set(_Place(places))
                try:
                    response: HttpResponseBase = await sync_to_async(self._answer)(scope, body)
                finally:
                    current_place.reset(token)
            # Its thread serves the next request, with a connection that has been used just now.
            thread = _lent_thread.get(None)
            if thread is not None:
                thread.give_back()
            if response.streaming:
                await self._stream(response, receive, send, thread)
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

    async def _stream(self, response: HttpResponseBase, receive: Any, send: Any, thread: LentThread | None) -> None:
        """Send what is made bit by bit. It may take minutes: there is a thread only while something is done in one."""
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        sending = asyncio.create_task(self.send_response(response, send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            try:
                await asyncio.gather(leaving, return_exceptions=True)
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
            finally:
                # A part that is being made is not stopped by that: nothing is closed in the middle of it.
                if thread is not None:
                    await thread.settle()
                await sync_to_async(response.close)()


class _Place:
    """The place of one request, in the hands of its thread."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._loop = asyncio.get_running_loop()

    def leave(self) -> None:
        self._loop.call_soon_threadsafe(self._places.release)

    def take(self) -> None:
        asyncio.run_coroutine_threadsafe(self._places.acquire(), self._loop).result()


class KeptThreads:
    """Lends each request a thread that requests before it had, and with it their database connection.

    By itself every request has a thread of its own, and opens a connection that nobody uses again. A burst may have
    more than ``most_idle`` threads; those too many end with it.
    """

    def __init__(self, handler: ASGIHandler, *, most_idle: int = MOST_AT_ONCE) -> None:
        self._handler = handler
        self._most_idle = most_idle
        self._idle: list[ThreadPoolExecutor] = []
        self._lock = threading.Lock()
        self._parts: deque[Callable[[], None]] = deque()
        self._parts_at_work = 0

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

    def make_part(self, call: Callable[[], _Value]) -> Future[_Value]:
        """Call ``call`` in any thread, as soon as fewer than ``MOST_PARTS`` others do so."""
        done: Future[_Value] = Future()
        with self._lock:
            self._parts.append(partial(self._make, call, done))
        self._go_on()
        return done

    def end(self) -> None:
        """End the threads that wait for requests, and close their connections."""
        while self._idle:
            _end(self._idle.pop())

    def _go_on(self) -> None:
        with self._lock:
            if not self._parts or self._parts_at_work >= MOST_PARTS:
                return
            self._parts_at_work += 1
            make = self._parts.popleft()
        thread = self.take()
        thread.submit(make).add_done_callback(lambda _: self._put_after_part(thread))

    def _put_after_part(self, thread: ThreadPoolExecutor) -> None:
        self.put(thread)
        with self._lock:
            self._parts_at_work -= 1
        self._go_on()

    @staticmethod
    def _make(call: Callable[[], _Value], done: Future[_Value]) -> None:
        if not done.set_running_or_notify_cancel():
            return
        tell: Callable[[], None]
        try:
            tell = partial(done.set_result, call())
        except BaseException as error:  # noqa: BLE001  # whoever waits for the part is told, as an executor tells
            tell = partial(done.set_exception, error)
        # No end of a request will do it in this thread.
        close_old_connections()
        tell()


class LentThread(Executor):
    """The thread of one request, from its first call on. Given back early, each later call is part of a stream."""

    def __init__(self, threads: KeptThreads) -> None:
        self._threads = threads
        self._thread: ThreadPoolExecutor | None = None
        self._is_given_back = False
        self._part: Future[Any] | None = None

    def submit(self, fn: Callable[..., _Value], /, *args: Any, **kwargs: Any) -> Future[_Value]:
        """Call ``fn`` in the thread."""
        if self._is_given_back:
            part = self._threads.make_part(partial(fn, *args, **kwargs))
            self._part = part
            return part
        if self._thread is None:
            self._thread = self._threads.take()
        return self._thread.submit(fn, *args, **kwargs)

    def give_back(self) -> None:
        """Let another request have the thread."""
        self._is_given_back = True
        if self._thread is not None:
            self._threads.put(self._thread)
            self._thread = None

    async def settle(self) -> None:
        """Wait until the part of a stream that is being made is made. One that has not been begun is not made."""
        part = self._part
        if part is not None and not part.cancel():
            await asyncio.wait([asyncio.wrap_future(part)])


_lent_thread: ContextVar[LentThread] = ContextVar("lent_thread")


def _end(thread: ThreadPoolExecutor) -> None:
    thread.submit(connections.close_all)
    thread.shutdown(wait=False)
