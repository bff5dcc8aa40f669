"""Following a run until its end: ``Prefer: wait=30`` (RFC 7240), and a stream of server-sent events.

What the client of a stream has follows from the ``id`` of the last event that it got: the run, its revision that the
client knows, and the last attempt that was sent. Attempts end in the order of steps and numbers, so what is missing
comes after it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator
from http import HTTPStatus
from time import monotonic, sleep
from typing import Any, NamedTuple
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import Error as DatabaseError
from django.db.models import Q
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import READ_RUNS, build_links, still_has_access
from runs.api.base import ApiView, header, operation
from runs.api.problems import ApiProblem
from runs.documents.base import Answer
from runs.documents.loading import WHOLE, build_attempt, load_run, select_attempts
from runs.documents.run import RunParts
from runs.models import Run
from runs.models.run import ENDED
from runs.request_slots import give_back_connection, release_slot

MEDIA_TYPE = "text/event-stream"
POLL_INTERVAL = 1.0
"""Seconds."""
HEARTBEAT_INTERVAL = 15.0
"""Seconds without an event after which a comment shows that the connection lives."""
ACCESS_INTERVAL = 15.0
"""Seconds after which it is checked again that the client may read runs."""
MAX_AGE = 900.0
"""Seconds after which a stream is closed; the client asks again."""
RETRY_MILLISECONDS = 3000
"""How long a client waits before it opens a stream again that broke off."""
MAX_STREAMS = 200
"""Streams that one process has open."""
BATCH_SIZE = 20
"""Attempts that are read at a time: outputs may be large."""

read_clock = monotonic

# ---------------------------------------------------------------------------------------------------------------------
# Waiting

MAX_WAIT = 60
"""Seconds."""
WAIT_INTERVAL = 0.2
"""Seconds."""
MAX_WAITING = 100
"""Requests of one process that wait at the same time; others are answered at once."""

_WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*(?:"([0-9]{1,9})"|([0-9]{1,9}))\s*(?=$|[,;])', re.ASCII | re.IGNORECASE)
_slots = threading.BoundedSemaphore(MAX_WAITING)


class RunState(NamedTuple):
    """What changes of a run are noticed by."""

    revision: int
    has_ended: bool


def fetch_state(run_id: int) -> RunState | None:
    """The state of a run, None if it is gone. One query."""
    row = Run.objects.filter(pk=run_id).order_by().values_list("revision", "status").first()
    return None if row is None else RunState(row[0], row[1] in ENDED)


def answer_at_end(request: Request, response: HttpResponseBase) -> HttpResponseBase:
    """The answer to a request that started a run: the finished run if it prefers to wait and the run ends in time.

    A request that is sent again waits again. If the run is deleted meanwhile, the answer is that it was started.
    """
    seconds = parse_wait(request.headers.get("Prefer", ""))
    if seconds is None or response.status_code != HTTPStatus.ACCEPTED:
        return response
    if not request.user.has_perm(READ_RUNS.permission):
        return response
    run_id = int(response["Location"].rpartition("/")[2])
    state = _wait_for_end(run_id, seconds)
    if state is None:
        return response
    # Also where it goes on: what was true when it was started may have changed.
    run = load_run(run_id, build_links(request), RunParts(attempts="all" if state.has_ended else "none"))
    if run is None:
        return response
    kept = ("Location", "Idempotency-Replayed", *(() if state.has_ended else ("Retry-After",)))
    headers = {name: response[name] for name in kept if name in response}
    headers["Preference-Applied"] = f"wait={seconds}"
    return Response(run, HTTPStatus.OK if state.has_ended else HTTPStatus.ACCEPTED, headers=headers)


def parse_wait(preferences: str) -> int | None:
    """The seconds that the header ``Prefer`` asks to wait, at most ``MAX_WAIT``; None if it doesn't.

    Preferences that can't be met are ignored, as the RFC has it; the answer names what was applied.
    """
    found = _WAIT.search(preferences)
    return min(int(found[1] or found[2]), MAX_WAIT) or None if found else None


def _wait_for_end(run_id: int, seconds: float) -> RunState | None:
    """The state at the end of a run, or after ``seconds``. None if it is gone or too many requests wait."""
    if not _slots.acquire(blocking=False):
        return None
    try:
        with release_slot():
            deadline = read_clock() + seconds
            while (state := fetch_state(run_id)) is not None and not state.has_ended:
                if (left := deadline - read_clock()) <= 0:
                    break
                # The thread sleeps; it holds nothing of the database meanwhile.
                give_back_connection()
                sleep(min(WAIT_INTERVAL, left))
            return state
    finally:
        _slots.release()


# ---------------------------------------------------------------------------------------------------------------------
# The stream

logger = logging.getLogger(__name__)

_ID = "([0-9]{1,19})-([0-9]{1,10})-([0-9]{1,9})-([0-9]{1,9})(-end)?"


class Position(NamedTuple):
    """What a client knows: the ``id`` of events."""

    run_id: int
    revision: int = 0
    """The revision of the run; 0 before its first document."""
    step: int = 0
    number: int = 0
    """The last attempt that was sent; zeros for none."""
    has_ended: bool = False
    """Whether everything was sent."""

    def __str__(self) -> str:
        return f"{self.run_id}-{self.revision}-{self.step}-{self.number}{'-end' if self.has_ended else ''}"


def parse_position(text: str, run_id: int) -> Position:
    """The position that an ``id`` names. Raises ``ApiProblem`` (400) for what is none of this run."""
    found = re.fullmatch(_ID, text, re.ASCII)
    if found is None or int(found[1]) != run_id:
        sentence = f"Last-Event-ID is “{text[:60]}”, not an event id of run {run_id}. Leave it out to start over."
        raise ApiProblem(HTTPStatus.BAD_REQUEST, "bad-request", sentence)
    revision, step, number = map(int, found.groups()[1:4])
    return Position(run_id, revision, step, number, has_ended=found[5] is not None)


class RunEvents:
    """The events of one run for one client, as the bytes of ``text/event-stream``."""

    open: WeakSet[RunEvents] = WeakSet()
    """Held weakly: a stream whose client left before its answer began is closed by nothing else."""

    def __init__(self, request: Request, position: Position, *, is_new: bool) -> None:
        """``is_new`` is whether the client knows nothing of the run yet."""
        self._request = request
        self._links = build_links(request)
        self._position = position
        self._is_new = is_new
        self._is_over = False
        self.open.add(self)

    def close(self) -> None:
        """Make room for another stream. Django calls it once the answer is sent, or the client is gone."""
        self.open.discard(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        opened = sent = checked = read_clock()
        try:
            while not self._is_over and (now := read_clock()) - opened <= MAX_AGE:
                if now - checked >= ACCESS_INTERVAL:
                    if not await sync_to_async(still_has_access)(self._request, READ_RUNS):
                        return
                    checked = now
                for event in (events := await sync_to_async(self._fetch_events)()):
                    sent = now
                    yield event
                if events or self._is_over:
                    continue
                if now - sent >= HEARTBEAT_INTERVAL:
                    sent = now
                    yield b": still here\n\n"
                await asyncio.sleep(POLL_INTERVAL)
        except DatabaseError as error:
            logger.warning("The event stream of run %s ends: the database failed: %s", self._position.run_id, error)
        finally:
            self.close()

    def _fetch_events(self) -> list[bytes]:
        """What is new: attempts that ended, then the run as it is with them, then its end."""
        run_id = self._position.run_id
        state = fetch_state(run_id)
        if state is None:
            self._is_over = True
            return []
        is_changed = self._is_new or state.revision != self._position.revision
        if not is_changed and not state.has_ended:
            return []
        last = self._position
        is_later = Q(step__index__gt=last.step) | Q(step__index=last.step, number__gt=last.number)
        rows = select_attempts().filter(is_later, step__run=run_id).exclude(outcome="")
        events = []
        for row in rows.order_by("step__index", "number")[:BATCH_SIZE]:
            self._position = self._position._replace(step=row.step.index, number=row.number)
            events.append(self._write("attempt", build_attempt(row, run_id, self._links, WHOLE)))
        if len(events) == BATCH_SIZE:
            return events
        run = load_run(run_id, self._links, RunParts(attempts="none"))
        if run is None:
            self._is_over = True
            return events
        if is_changed:
            self._position = self._position._replace(revision=state.revision)
            self._is_new = False
            events.append(self._write("run", run))
        if state.has_ended:
            self._position = self._position._replace(has_ended=True)
            self._is_over = True
            events.append(self._write("end", run))
        return events

    def _write(self, name: str, document: Answer) -> bytes:
        return b"event: %b\nid: %b\ndata: %b\n\n" % (
            name.encode(),
            str(self._position).encode(),
            document.model_dump_json(exclude_unset=True).encode(),
        )


# ---------------------------------------------------------------------------------------------------------------------
# The endpoint


class EventStreamRenderer(BaseRenderer):
    """Accepts requests for an event stream, which ``RunEvents`` writes."""

    media_type = MEDIA_TYPE
    format = "events"


class RunEventStreams(ApiView):
    """Events of a run."""

    renderer_classes: Any = (EventStreamRenderer,)

    @operation(
        "GET runs/<int:run_id>/events",
        "Follow a run as a stream of events",
        READ_RUNS,
        tag="Runs",
        parameters=[
            header(
                "Last-Event-ID",
                {"type": "string", "pattern": f"^{_ID}$"},
                "The `id` of the last event received; the stream continues after it. The id of another run is refused "
                "(400).",
            )
        ],
        answers={
            (200, MEDIA_TYPE): OpenApiResponse(OpenApiTypes.STR, "The stream of events."),
            204: OpenApiResponse(None, "No events follow this `id`: the run has ended, and all events were sent."),
        },
        problems=[501],
    )
    def stream_run_events(self, request: Request, run_id: int) -> HttpResponseBase:
        """Keeps the connection open and reports the run as it goes on, as server-sent events:

        - `run`: the run, as `GET /runs/{id}?attempts=none` gives it, after each change of it;
        - `attempt`: an attempt that has ended, with its issues and its usage, in the order in which they ended;
        - `end`: the run, when it has ended. It is the last event; the connection is then closed.

        The stream begins with the attempts that ended before it was opened. Every event has an `id`: sent as
        `Last-Event-ID` it brings what came after it, nothing twice and nothing left out; after the `id` of `end` the
        answer is 204, which makes a browser’s `EventSource` stop. A comment every 15 seconds shows that the connection
        lives. After 15 minutes the server closes a stream; as after any break, ask again with the last `id`. A stream
        is closed at most 15 seconds after its token was revoked or has expired, the user has signed out, or the account
        was closed or may no longer read runs.

        A server process has at most 200 streams open; beyond that the answer is 503 with `Retry-After`. A server that
        does not run ASGI can’t stream and answers 501: ask for the run again from time to time instead.
        """
        state = fetch_state(run_id)
        if state is None:
            raise Http404
        last = request.headers.get("Last-Event-ID")
        position = Position(run_id) if last is None else parse_position(last, run_id)
        if position.has_ended and state.has_ended:
            return HttpResponse(status=HTTPStatus.NO_CONTENT)
        if not isinstance(request._request, ASGIRequest):
            raise ApiProblem(
                HTTPStatus.NOT_IMPLEMENTED,
                "no-streams",
                "Only an ASGI server such as uvicorn streams events; poll the run instead.",
            )
        if request.method == "HEAD":
            return HttpResponse(content_type=MEDIA_TYPE)
        if len(RunEvents.open) >= MAX_STREAMS:
            sentence = "Too many streams are open. Try again in 10 seconds, or poll the run."
            headers = {"Retry-After": "10"}
            raise ApiProblem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", sentence, headers=headers)
        events: Any = RunEvents(request, position, is_new=last is None)
        # A proxy that collects answers before it sends them on would hold events back.
        return StreamingHttpResponse(events, content_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
