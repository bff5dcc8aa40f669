"""Waiting for the end of a run while a request is open: ``Prefer: wait=30`` (RFC 7240)."""

from __future__ import annotations

import re
import threading
from http import HTTPStatus
from time import monotonic, sleep
from typing import NamedTuple

from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import READ_RUNS, build_links
from runs.documents.loading import load_run
from runs.documents.run import RunParts
from runs.models import Run
from runs.models.run import ENDED
from runs.request_slots import give_back_connection, release_slot

MAX_WAIT = 60
"""Seconds."""
POLL_INTERVAL = 0.2
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
    """The state at the end of a run, or after so many seconds. None if it is gone or too many requests wait."""
    if not _slots.acquire(blocking=False):
        return None
    try:
        with release_slot():
            deadline = monotonic() + seconds
            while (state := fetch_state(run_id)) is not None and not state.has_ended:
                if (left := deadline - monotonic()) <= 0:
                    break
                # The thread sleeps; it holds nothing of the database meanwhile.
                give_back_connection()
                sleep(min(POLL_INTERVAL, left))
            return state
    finally:
        _slots.release()
