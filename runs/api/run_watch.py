"""Looking whether runs have changed, once for all who want to hear of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from runs.models import Run
from runs.models.run import ENDED, RunQuerySet

LOOK = 1.0
"""Seconds between looks."""

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RunState:
    """What tells whether there is anything new about a run."""

    revision: int
    has_ended: bool


class RunListener:
    """Somebody who wants to hear of changes of one run."""

    def __init__(self, watch: RunWatch, run_id: int, state: RunState) -> None:
        self.run_id = run_id
        self.state: RunState | None = state
        """As it was seen last; None once the run is gone."""
        self._watch = watch
        self._news = asyncio.Event()

    def tell(self, state: RunState | None) -> None:
        """Take in what was seen."""
        if state != self.state:
            self.state = state
            self._news.set()

    async def hear(self, patience: float) -> bool:
        """Wait for a change; False if there is none for ``patience`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._news.wait()
        has_news = self._news.is_set()
        self._news.clear()
        return has_news

    async def read(self, function: Callable[[], _Value]) -> _Value:
        """What ``function`` reads from the database, in the thread of the watch. Raises what it raises."""
        return await self._watch.ask(function)


class RunWatch:
    """One look after the other at all runs that somebody of an event loop listens to.

    It has a thread and a connection for as long as there is anybody who listens, and not longer.
    """

    _by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, RunWatch] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._listeners: set[RunListener] = set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="run-watch")
        # In a context of its own: it must not live in the one of the request that happened to be first.
        self._looking = asyncio.get_running_loop().create_task(self._look_on(), context=Context())

    @classmethod
    def of_running_loop(cls) -> RunWatch:
        """The watch of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in cls._by_loop:
            cls._by_loop[loop] = cls()
        return cls._by_loop[loop]

    def add(self, listener: RunListener) -> None:
        """Tell ``listener`` of changes from now on."""
        self._listeners.add(listener)

    def remove(self, listener: RunListener) -> None:
        """Tell it no more. Without anybody left the watch ends."""
        self._listeners.discard(listener)
        if not self._listeners:
            self._by_loop.pop(asyncio.get_running_loop(), None)
            self._looking.cancel()
            self._thread.submit(connections.close_all)
            self._thread.shutdown(wait=False)

    async def ask(self, function: Callable[[], _Value]) -> _Value:
        """What ``function`` gives, called in the thread of the watch."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, _call, function)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            listeners = list(self._listeners)
            run_ids = {listener.run_id for listener in listeners}
            try:
                states = await self.ask(partial(find_states, run_ids))
            except DatabaseError as error:
                # Those who listen have their heartbeats meanwhile; the next look may find it back.
                logger.warning("Whether runs have changed can't be seen: %s", error)
                continue
            for listener in listeners:
                listener.tell(states.get(listener.run_id))


def find_state(run_id: int) -> RunState | None:
    """The state of a run, if there is one of that number. One query."""
    return next(iter(_read_states(Run.objects.filter(pk=run_id)).values()), None)


def find_states(run_ids: Collection[int]) -> dict[int, RunState]:
    """The states of those of the runs that there are. One query."""
    return _read_states(Run.objects.filter(pk__in=run_ids))


def _read_states(runs: RunQuerySet) -> dict[int, RunState]:
    rows = runs.order_by().values_list("pk", "revision", "status")
    return {pk: RunState(revision, status in ENDED) for pk, revision, status in rows}


@asynccontextmanager
async def listen_to_run(run_id: int, state: RunState) -> AsyncIterator[RunListener]:
    """Hear of changes of a run after ``state``, in this event loop."""
    watch = RunWatch.of_running_loop()
    listener = RunListener(watch, run_id, state)
    watch.add(listener)
    try:
        yield listener
    finally:
        watch.remove(listener)


def _call(function: Callable[[], _Value]) -> _Value:
    # Before, for a connection that was cut; after, so that one of a pool goes back to it.
    close_old_connections()
    try:
        return function()
    finally:
        close_old_connections()
