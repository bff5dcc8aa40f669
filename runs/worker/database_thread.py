"""The one thread of a drain that talks to the database.

SQLite gains nothing from more writers, and every thread would hold a connection. What runs have to store is gathered
while the last transaction is under way and then written in one (``runs.group_commit``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

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


@dataclass(frozen=True, slots=True)
class _Question:
    ask: Callable[[], Any]
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Pending:
    write: RunWrite
    future: asyncio.Future[Written]
    since: float = field(default_factory=time.monotonic)


class DatabaseThread:
    """Does database work for one event loop, in the order of asking; writes of runs go first, many at once."""

    def __init__(self, *, on_commit: OnCommit | None = None) -> None:
        """Call it on the event loop.

        ``on_commit`` is called on the thread after each transaction, with the writes that it stored and its seconds.
        """
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._pending: list[_Pending] = []
        self._questions: list[_Question] = []
        self._is_closing = False
        self._retry_at = 0.0
        self._outage_since: float | None = None
        self._stored_at = 0.0
        self._thread = threading.Thread(target=self._run, name="database", daemon=True)
        self._thread.start()

    async def ask(self, question: Callable[[], _Result]) -> _Result:
        """Do ``question`` on the thread; gives its result or raises what it raises."""
        future: asyncio.Future[_Result] = self._loop.create_future()
        with self._changed:
            if self._is_closing:
                raise RuntimeError("The database thread is closed.")
            self._questions.append(_Question(question, future))
            self._changed.notify()
        return await future

    async def persist(self, write: Callable[[], _Result]) -> _Result:
        """Do the idempotent ``write`` on the thread, and repeat it while the database is away."""
        while True:
            try:
                return await self.ask(write)
            except OUTAGE_ERRORS as error:
                logger.info("Something waits for the database: %s", error)
                await asyncio.sleep(RETRY_INTERVAL)

    def store(self, write: RunWrite) -> asyncio.Future[Written]:
        """Store what a run did. The future is done once it is stored, which may take as long as an outage.

        It raises ``LeaseLostError`` if the run is no longer held, and ``WriteRefusedError`` if it can't be stored.
        """
        future: asyncio.Future[Written] = self._loop.create_future()
        with self._changed:
            self._pending.append(_Pending(write, future))
            self._changed.notify()
        return future

    async def close(self) -> None:
        """Finish what was asked for, close the connections and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        checked_at = 0.0
        try:
            while (work := self._wait_for_work()) is not None:
                if time.monotonic() - checked_at >= CONNECTION_CHECK_INTERVAL:
                    checked_at = time.monotonic()
                    close_old_connections()
                pending, questions = work
                if pending:
                    self._store(pending)
                for question in questions:
                    self._answer(question)
        finally:
            connections.close_all()

    def _wait_for_work(self) -> tuple[list[_Pending], list[_Question]] | None:
        with self._changed:
            while True:
                pause = self._retry_at - time.monotonic()
                is_due = bool(self._pending) and pause <= 0
                if is_due or self._questions:
                    break
                if self._is_closing and not self._pending:
                    return None
                self._changed.wait(pause if self._pending else None)
        if is_due:
            # More comes soon, and a commit costs the same for all of it.
            time.sleep(GATHER_SECONDS)
        with self._changed:
            pending: list[_Pending] = []
            if is_due:
                pending, self._pending = self._pending[:MAX_GROUP], self._pending[MAX_GROUP:]
            questions, self._questions = self._questions, []
        return pending, questions

    def _answer(self, question: _Question) -> None:
        result: Any
        try:
            result = question.ask()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the caller gets it
            result = error
            # The check of the connection is not due at once, and a broken one would fail the next question too.
            _close_broken_connection()
        self._settle([(question.future, result)])

    def _store(self, pending: list[_Pending]) -> None:
        began_at = time.perf_counter()
        try:
            results = commit_writes([one.write for one in pending])
        except OUTAGE_ERRORS as error:
            if len(pending) > 1 and _is_database_up():
                self._store_singly(pending)
            else:
                self._postpone(pending, error)
        except Exception as error:  # noqa: BLE001  # the caller gets it
            if len(pending) > 1:
                # One of them can't be stored: the others can.
                self._store_singly(pending)
            else:
                self._refuse(pending[0], error)
        else:
            self._end_outage()
            if self._on_commit is not None:
                pairs = zip(pending, results, strict=True)
                stored = [one.write for one, result in pairs if not isinstance(result, LeaseLostError)]
                self._on_commit(stored, time.perf_counter() - began_at)
            self._settle([(one.future, result) for one, result in zip(pending, results, strict=True)])

    def _store_singly(self, pending: list[_Pending]) -> None:
        for one in pending:
            self._store([one])

    def _refuse(self, pending: _Pending, error: Exception) -> None:
        refused = WriteRefusedError(f"{type(error).__name__}: {str(error).strip()}")
        refused.__cause__ = error
        self._settle([(pending.future, refused)])

    def _postpone(self, pending: list[_Pending], error: Exception) -> None:
        """Retry soon: what could not be stored is paid for."""
        now = time.monotonic()
        kept = []
        for one in pending:
            # Where others are stored the cause is this write itself, which must not hold its run for ever.
            if now - one.since > RETRY_TIMEOUT and self._stored_at > one.since:
                self._refuse(one, error)
            else:
                kept.append(one)
        if self._outage_since is None:
            self._outage_since = now
            logger.warning("Attempts can't be stored now and are kept until they can: %s", str(error).strip())
        _close_broken_connection()
        with self._changed:
            self._pending = kept + self._pending
            self._retry_at = now + RETRY_INTERVAL

    def _end_outage(self) -> None:
        self._stored_at = time.monotonic()
        if self._outage_since is not None:
            logger.warning("Attempts are stored again, after %.0f seconds.", time.monotonic() - self._outage_since)
            self._outage_since = None

    def _settle(self, results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
        self._loop.call_soon_threadsafe(_settle_futures, results)


def _close_broken_connection() -> None:
    if connection.errors_occurred:
        close_old_connections()


def _is_database_up() -> bool:
    """Whether the database answers at all."""
    try:
        close_old_connections()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DATABASE_ERRORS:
        return False
    return True


def _settle_futures(results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
