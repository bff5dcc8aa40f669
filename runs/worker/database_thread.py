"""The one thread of a drain that talks to the database.

SQLite gains nothing from more writers, and every thread would hold a connection. What runs have to store is gathered
while the last transaction is under way and then written in one (``runs.group_commit``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from django.db import (
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
    close_old_connections,
    connection,
    connections,
)

from runs.group_commit import LeaseLostError, RunWrite, Written, commit_writes

logger = logging.getLogger(__name__)

DATABASE_ERRORS = (DatabaseError, InterfaceError)
"""What any work with the database may raise."""
OUTAGE_ERRORS = (OperationalError, InterfaceError, InternalError)
"""What it raises when the database is away, full, locked or read-only for now: worth another try."""

GATHER_SECONDS = 0.005
"""How long writes are gathered for one commit, which costs the same for one as for fifty."""
MAX_GROUP = 100
"""Writes in one transaction: more gain nothing, and hold up others that wait for the lock."""
RETRY_INTERVAL = 0.5
"""Seconds between tries to store what could not be stored."""
RETRY_TIMEOUT = 300.0
"""Seconds that a write is retried while others are stored; while none is there is no limit."""
CONNECTION_CHECK_INTERVAL = 1.0
"""Seconds between checks of the connection; on PostgreSQL each is a query."""

_Result = TypeVar("_Result")
OnCommit = Callable[[Sequence[RunWrite], float], None]


class WriteRefusedError(Exception):
    """The database accepts other writes, and not this one."""


class _Pending(NamedTuple):
    write: RunWrite
    future: asyncio.Future[Written]
    since: float


class DatabaseThread:
    """Does database work for one event loop, in the order of asking; writes of runs many at once."""

    def __init__(self, *, on_commit: OnCommit | None = None) -> None:
        """Call it on the event loop.

        ``on_commit`` is called on the thread after each transaction, with the writes that it stored and its seconds.
        """
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._checked_at = 0.0
        self._pending: list[_Pending] = []
        self._storing: asyncio.Task[None] | None = None
        self._pause = GATHER_SECONDS
        """Before the next writes are stored."""
        self._outage_since: float | None = None
        self._stored_at = 0.0

    async def ask(self, question: Callable[[], _Result]) -> _Result:
        """Do ``question`` on the thread; gives its result or raises what it raises."""
        return await self._loop.run_in_executor(self._executor, self._do, question)

    async def persist(self, write: Callable[[], _Result]) -> _Result:
        """Do the idempotent ``write`` on the thread, and repeat it while the database is away."""
        while True:
            try:
                return await self.ask(write)
            except OUTAGE_ERRORS as error:
                logger.info("Waiting for the database: %s", error)
                await asyncio.sleep(RETRY_INTERVAL)

    def store(self, write: RunWrite) -> asyncio.Future[Written]:
        """Store what a run did. The future is done once it is stored, which may take as long as an outage.

        It raises ``LeaseLostError`` if the run is no longer held, and ``WriteRefusedError`` if it can't be stored.
        """
        future: asyncio.Future[Written] = self._loop.create_future()
        self._pending.append(_Pending(write, future, time.monotonic()))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_pending(), name="writes")
        return future

    async def close(self) -> None:
        """Finish what was asked for, close the connections and end the thread."""
        while self._storing is not None:
            await self._storing
        await self.ask(connections.close_all)
        self._executor.shutdown()

    def _do(self, question: Callable[[], _Result]) -> _Result:
        """On the thread: answer ``question`` over a connection that works, as far as that is known."""
        if time.monotonic() - self._checked_at >= CONNECTION_CHECK_INTERVAL:
            self._checked_at = time.monotonic()
            close_old_connections()
        try:
            return question()
        finally:
            if connection.errors_occurred:
                close_old_connections()

    async def _store_pending(self) -> None:
        while self._pending:
            pause, self._pause = self._pause, GATHER_SECONDS
            await asyncio.sleep(pause)
            group, self._pending = self._pending[:MAX_GROUP], self._pending[MAX_GROUP:]
            await self._store(group)
        self._storing = None

    async def _store(self, group: list[_Pending]) -> None:
        try:
            results = await self.ask(lambda: self._commit([one.write for one in group]))
        except OUTAGE_ERRORS as error:
            if len(group) > 1 and await self.ask(_is_database_up):
                await self._store_singly(group)
            else:
                self._postpone(group, error)
        except Exception as error:  # noqa: BLE001  # the caller gets it
            if len(group) > 1:
                # One of them can't be stored: the others can.
                await self._store_singly(group)
            else:
                _refuse(group[0], error)
        else:
            self._end_outage()
            for one, result in zip(group, results, strict=True):
                _settle(one, result)

    async def _store_singly(self, group: list[_Pending]) -> None:
        for one in group:
            await self._store([one])

    def _commit(self, writes: list[RunWrite]) -> list[Written | LeaseLostError]:
        began_at = time.perf_counter()
        results = commit_writes(writes)
        if self._on_commit is not None:
            pairs = zip(writes, results, strict=True)
            stored = [write for write, result in pairs if not isinstance(result, LeaseLostError)]
            try:
                self._on_commit(stored, time.perf_counter() - began_at)
            except Exception:  # whatever it is, the writes are stored
                logger.exception("Storage metrics could not be recorded.")
        return results

    def _postpone(self, group: list[_Pending], error: Exception) -> None:
        """Retry soon: what could not be stored is paid for."""
        now = time.monotonic()
        if self._outage_since is None:
            self._outage_since = now
            logger.warning("Attempts can't be stored; they are kept in memory and retried: %s", str(error).strip())
        kept = []
        for one in group:
            # Where others are stored the cause is this write itself, which must not hold its run for ever.
            if now - one.since > RETRY_TIMEOUT and self._stored_at > one.since:
                _refuse(one, error)
            else:
                kept.append(one)
        self._pending = kept + self._pending
        self._pause = RETRY_INTERVAL

    def _end_outage(self) -> None:
        self._stored_at = time.monotonic()
        if self._outage_since is not None:
            logger.warning("Attempts are being stored again after %.0f s.", self._stored_at - self._outage_since)
            self._outage_since = None


def _is_database_up() -> bool:
    """Whether the database answers at all."""
    try:
        close_old_connections()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DATABASE_ERRORS:
        return False
    return True


def _refuse(pending: _Pending, error: Exception) -> None:
    refused = WriteRefusedError(f"{type(error).__name__}: {str(error).strip()}")
    refused.__cause__ = error
    _settle(pending, refused)


def _settle(pending: _Pending, result: Written | Exception) -> None:
    if pending.future.done():
        return
    if isinstance(result, Exception):
        pending.future.set_exception(result)
    else:
        pending.future.set_result(result)
