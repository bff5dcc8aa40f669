"""The slots that a web process answers requests in: few at a time, so that each is soon done.

A request that only waits, for a model, a provider or the end of a run, releases its slot meanwhile, and its connection
to the database if that is one of a pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from django.db import close_old_connections, connection


class RequestSlots:
    """Slots of one event loop. A request holds one while it is worked on."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        self._loop = asyncio.get_running_loop()
        async with self._free:
            token = _current.set(self)
            try:
                yield
            finally:
                _current.reset(token)

    def release(self) -> None:
        """Let another request have the slot. Called in the thread of the request, like ``acquire``."""
        assert self._loop is not None, "The request holds a slot."
        self._loop.call_soon_threadsafe(self._free.release)

    def acquire(self) -> None:
        """Wait for a slot in the thread of the request."""
        assert self._loop is not None, "The request has held a slot."
        asyncio.run_coroutine_threadsafe(self._free.acquire(), self._loop).result()


_current: ContextVar[RequestSlots | None] = ContextVar("request_slots", default=None)
"""Where the request that is being answered holds a slot; None where nothing bounds them."""


@contextmanager
def release_slot() -> Iterator[None]:
    """Let other requests be answered while this one only waits."""
    give_back_connection()
    slots = _current.get()
    if slots is None:
        yield
        return
    slots.release()
    try:
        yield
    finally:
        slots.acquire()


def give_back_connection() -> None:
    """Let other requests have the database connection if it is one of a pool."""
    # Within a transaction Django would close it nonetheless.
    if not connection.in_atomic_block:
        close_old_connections()
