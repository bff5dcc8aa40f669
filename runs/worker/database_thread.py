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

GATHER_SECONDS = 0.01
"""How long writes are gathered for one commit, which costs the same for one as for fifty."""

OUTAGE_ERRORS = (OperationalError, InterfaceError, InternalError)
"""What it raises when the database is away, full, locked or takes no writes for now: worth another try."""

LARGEST_GROUP = 100
"""Writes in one transaction: more gain nothing, and hold up the others that wait for the lock."""
RETRY_PAUSE = 0.5
"""Seconds between tries to store what could not be stored."""
PATIENCE = 300.0
"""Seconds that a write is tried again while others get through; while none does there is no limit."""

_Result = TypeVar("_Result")


class WriteRefusedError(Exception):
    """The database takes other writes, and not this one."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A write that is stored, and how many transactions with writes had been committed then."""

    written: Written
    commits: int


@dataclass(slots=True)
class _Question:
    ask: Callable[[], Any]
    future: asyncio.Future[Any]


@dataclass(slots=True)
class _Storing:
    write: RunWrite
    future: asyncio.Future[Stored]
    since: float = field(default_factory=time.monotonic)


class DatabaseThread:
    """Does database work for one event loop, in the order of asking; writes of runs go first, many at once."""

    def __init__(self, *, note_batch: Callable[[int, float], None] | None = None) -> None:
        """Call it on the event loop. ``note_batch`` hears of each transaction: its writes, and its seconds."""
        self._note_batch = note_batch
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._storing: list[_Storing] = []
        self._questions: list[_Question] = []
        self._is_closing = False
        self._retry_at = 0.0
        self._outage_since: float | None = None
        self._stored_at = 0.0
        self.commits = 0
        """How many transactions with writes were committed; to be read on the thread."""
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
        """Do ``write`` on the thread, again and again while the database is away; it must bear being repeated."""
        while True:
            try:
                return await self.ask(write)
            except OUTAGE_ERRORS as error:
                logger.info("Something waits for the database: %s", error)
                await asyncio.sleep(RETRY_PAUSE)

    async def store(self, write: RunWrite) -> Stored:
        """Store what a run did. Returns once it is stored; while the database is away that is not.

        Raises ``LeaseLostError`` if the run is no longer held, and ``WriteRefusedError`` if it can't be stored.
        """
        future: asyncio.Future[Stored] = self._loop.create_future()
        with self._changed:
            self._storing.append(_Storing(write, future))
            self._changed.notify()
        return await future

    async def close(self) -> None:
        """Finish what was asked for, close the connections and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while (work := self._wait_for_work()) is not None:
                storing, questions = work
                close_old_connections()
                if storing:
                    self._store(storing)
                for question in questions:
                    self._answer(question)
        finally:
            connections.close_all()

    def _wait_for_work(self) -> tuple[list[_Storing], list[_Question]] | None:
        with self._changed:
            while True:
                pause = self._retry_at - time.monotonic()
                is_due = bool(self._storing) and pause <= 0
                if is_due or self._questions:
                    break
                if self._is_closing and not self._storing:
                    return None
                self._changed.wait(pause if self._storing else None)
        if is_due:
            # More comes soon, and a commit costs the same for all of it.
            time.sleep(GATHER_SECONDS)
        with self._changed:
            storing: list[_Storing] = []
            if is_due:
                storing, self._storing = self._storing[:LARGEST_GROUP], self._storing[LARGEST_GROUP:]
            questions, self._questions = self._questions, []
        return storing, questions

    def _answer(self, question: _Question) -> None:
        try:
            result = question.ask()
        except BaseException as error:  # noqa: BLE001  # whatever it is, whoever asked gets it
            self._settle([(question.future, error)])
        else:
            self._settle([(question.future, result)])

    def _store(self, storing: list[_Storing]) -> None:
        began_at = time.perf_counter()
        try:
            results = commit_writes([one.write for one in storing])
        except OUTAGE_ERRORS as error:
            if len(storing) > 1 and self._answers():
                self._store_singly(storing)
            else:
                self._postpone(storing, error)
        except Exception as error:  # noqa: BLE001  # whoever asked for it gets it
            if len(storing) > 1:
                # One of them can't be stored: the others can.
                self._store_singly(storing)
            else:
                self._refuse(storing[0], error)
        else:
            self._note_return()
            self._settle([(one.future, self._stamp(result)) for one, result in zip(storing, results, strict=True)])
            if self._note_batch is not None:
                self._note_batch(len(storing), time.perf_counter() - began_at)

    def _stamp(self, result: Written | LeaseLostError) -> Stored | LeaseLostError:
        return Stored(result, self.commits) if isinstance(result, Written) else result

    def _refuse(self, storing: _Storing, error: Exception) -> None:
        refused = WriteRefusedError(f"{type(error).__name__}: {str(error).strip()}")
        refused.__cause__ = error
        self._settle([(storing.future, refused)])

    def _store_singly(self, storing: list[_Storing]) -> None:
        for one in storing:
            self._store([one])

    def _postpone(self, storing: list[_Storing], error: Exception) -> None:
        """Try again soon: what could not be stored is paid for."""
        now = time.monotonic()
        kept = []
        for one in storing:
            # Where others got through it is this one's own fault, and it must not hold its run for ever.
            if now - one.since > PATIENCE and self._stored_at > one.since:
                self._refuse(one, error)
            else:
                kept.append(one)
        if self._outage_since is None:
            self._outage_since = now
            logger.warning("Attempts can't be stored now and are kept until they can: %s", str(error).strip())
        with self._changed:
            self._storing = kept + self._storing
            self._retry_at = now + RETRY_PAUSE

    def _note_return(self) -> None:
        self._stored_at = time.monotonic()
        self.commits += 1
        if self._outage_since is not None:
            logger.warning("Attempts are stored again, after %.0f seconds.", time.monotonic() - self._outage_since)
            self._outage_since = None

    def _answers(self) -> bool:
        """Whether the database takes questions at all."""
        try:
            close_old_connections()
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except DATABASE_ERRORS:
            return False
        return True

    def _settle(self, results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
        self._loop.call_soon_threadsafe(_settle_futures, results)


def _settle_futures(results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
