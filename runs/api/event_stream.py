"""Server-sent events: how a run goes on, told as it happens, to whoever keeps a connection open.

An open stream costs the process next to nothing. One look a second, a single query, serves all streams of the process,
in one thread with one connection of its own; a stream reads more only when its run has changed.

Where a reader is follows from the ``id`` of the last event that it got: the run, the revision of it that it knows, and
the last attempt that it was told of. Attempts end in the order of their steps and numbers, so that what is missing is
whatever comes after that one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

from django.db import Error as DatabaseError
from django.db.models import Q
from rest_framework.renderers import JSONRenderer

from runs.api.admission import Admission
from runs.api.run_links import RunLinks
from runs.api.run_watch import RunListener, RunState, listen_to_run
from runs.documents import RunDocuments, build_attempt, list_attempts

HEARTBEAT = 15.0
"""Seconds of silence after which a comment says that the connection still lives."""
LIFE = 900.0
"""Seconds after which a stream is closed: whoever asks again shows again that they may."""
RETRY = 3000
"""Milliseconds after which a reader whose stream broke off should ask again."""
MOST_STREAMS = 200
"""Streams that one process has open."""
MOMENT = 10.0
"""Seconds for which a stream has its place before it begins: one whose reader left meanwhile never does."""
PART = 20
"""Attempts that are read at a time: outputs may be large."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """What a reader knows: the ``id`` of events."""

    run_id: int
    revision: int | None = None
    """Of the run; None before its first document."""
    step: int = 0
    number: int = 0
    """The last attempt that was told of; zeros for none."""
    has_ended: bool = False
    """Whether everything was told."""

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that ``text`` stands for. Raises ``ValueError`` if it is no ``id`` of ours."""
        found = re.fullmatch(r"([0-9]{1,19})-([0-9]{1,10})-([0-9]{1,9})-([0-9]{1,9})(-end)?", text, re.ASCII)
        if found is None:
            raise ValueError(text)
        return cls(int(found[1]), int(found[2]), int(found[3]), int(found[4]), has_ended=bool(found[5]))

    def __str__(self) -> str:
        # A run without a document at revision 0 has no attempts yet: the two are never taken for each other.
        return f"{self.run_id}-{self.revision or 0}-{self.step}-{self.number}{'-end' if self.has_ended else ''}"


class TooManyStreamsError(Exception):
    """This process has as many streams open as it may."""


class RunEvents:
    """The events of one run for one reader, as the bytes of ``text/event-stream``.

    ``run`` is the document of the run, after each change of it; ``attempt`` that of an attempt that ended; ``end``,
    the last one, the document of the run that has ended. Without an ``end`` the stream was broken off, and whoever
    asks again with the last ``id`` gets what comes after it. It is broken off once ``admission`` doesn't hold any more.
    """

    _open: WeakSet[RunEvents] = WeakSet()
    _counting = threading.Lock()

    def __init__(self, state: RunState, position: Position, links: RunLinks, admission: Admission) -> None:
        """``state`` is the run's, seen just now. Raises ``TooManyStreamsError``."""
        self._run_id = position.run_id
        self._links = links
        self._admission = admission
        self._state = state
        self._position = position
        self._begins_by = time.monotonic() + MOMENT
        self._has_begun = False
        with self._counting:
            if sum(stream._has_place() for stream in self._open) >= MOST_STREAMS:
                raise TooManyStreamsError
            # Held weakly: nobody closes one whose reader left before its answer got on its way.
            self._open.add(self)

    def _has_place(self) -> bool:
        return self._has_begun or time.monotonic() < self._begins_by

    def close(self) -> None:
        """Make room for another stream. Django calls it when the answer is sent, or its reader is gone."""
        with self._counting:
            self._open.discard(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._has_begun = True
        try:
            yield f"retry: {RETRY}\n\n".encode()
            async with listen_to_run(self._run_id, self._state) as listener:
                async for event in self._follow(listener):
                    if self._admission.is_due() and not await listener.read(self._admission.holds):
                        return
                    yield event
        except DatabaseError as error:
            logger.warning("The events of run %s break off, since the database refused: %s", self._run_id, error)
        finally:
            self.close()

    async def _follow(self, listener: RunListener) -> AsyncIterator[bytes]:
        read_clock = asyncio.get_running_loop().time
        closes_at = read_clock() + LIFE
        while (state := listener.state) is not None:
            if state.revision != self._position.revision:
                async for event in self._tell_change(listener, state):
                    yield event
            if state.has_ended:
                document = await listener.read(self._read_run)
                self._position = replace(self._position, has_ended=True)
                if document is not None:
                    yield self._write("end", document)
                return
            while not await listener.hear(HEARTBEAT):
                if read_clock() >= closes_at:
                    return
                yield b": still here\n\n"
            if read_clock() >= closes_at:
                return

    async def _tell_change(self, listener: RunListener, state: RunState) -> AsyncIterator[bytes]:
        """Attempts that ended, then the run as it is with them."""
        while True:
            attempts = await listener.read(self._read_attempts)
            for document in attempts:
                self._position = replace(self._position, step=document["step"], number=document["number"])
                yield self._write("attempt", document)
            if len(attempts) < PART:
                break
        run = await listener.read(self._read_run)
        if run is not None:
            self._position = replace(self._position, revision=state.revision)
            yield self._write("run", run)

    def _read_attempts(self) -> list[dict[str, Any]]:
        last = self._position
        is_later = Q(step__index__gt=last.step) | Q(step__index=last.step, number__gt=last.number)
        rows = list_attempts().filter(is_later, step__run=self._run_id).exclude(outcome="")
        rows = rows.order_by("step__index", "number")[:PART]
        return [self._links.complete_attempt(self._run_id, build_attempt(row)) for row in rows]

    def _read_run(self) -> dict[str, Any] | None:
        for document in RunDocuments(has_attempts=False, has_address=self._links.has_address).read([self._run_id]):
            return self._links.complete_run(document)
        return None

    def _write(self, name: str, document: dict[str, Any]) -> bytes:
        data = JSONRenderer().render(document)
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), str(self._position).encode(), data)
