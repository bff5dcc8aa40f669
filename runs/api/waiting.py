"""Waiting for the end of a run while a request is open: ``Prefer: wait=30`` (RFC 7240).

A request has a thread of its own, which sleeps between looks; nothing of the database is held meanwhile.
"""

from __future__ import annotations

import re
import threading
from time import monotonic, sleep

from rest_framework.request import Request

from runs.api.run_watch import find_state
from runs.request_slots import give_back_connection, release_slot

LONGEST = 60
"""Seconds."""
LOOK = 0.2
"""Seconds between looks."""
LATER_LOOK = 0.5
"""The same for a run that has been waited for longer than ``SOON``."""
SOON = 10
MOST_WAITING = 100
"""Requests of one process that wait at the same time; what comes on top is answered at once."""

_PREFERENCE = re.compile(r'\s*([^\s=;,"]+)\s*(?:=\s*(?:"([^"]*)"|([^\s;,"]*)))?\s*(?:;(?:"[^"]*"|[^,"])*)?(?:,|$)')

_places = threading.BoundedSemaphore(MOST_WAITING)


def read_wait(request: Request) -> int | None:
    """The seconds that a request would wait, at most ``LONGEST``; None if it would not, or says nothing of use.

    What a server can't do with a preference it passes over, as the RFC says; the answer names what it did.
    """
    for name, quoted, plain in _PREFERENCE.findall(request.headers.get("Prefer", "")[:1_000]):
        if name.lower() == "wait":
            text = quoted or plain
            is_number = text.isascii() and text.isdigit() and len(text) < 10
            return min(int(text), LONGEST) or None if is_number else None
    return None


def wait_for_end(run_id: int, seconds: float) -> bool | None:
    """Whether a run ends within so many seconds. None, without waiting on, if it is gone or too many wait already."""
    if not _places.acquire(blocking=False):
        return None
    try:
        with release_slot():
            return _wait_for_end(run_id, seconds)
    finally:
        _places.release()


def _wait_for_end(run_id: int, seconds: float) -> bool | None:
    start = monotonic()
    while (state := find_state(run_id)) is not None and not state.has_ended:
        waited = monotonic() - start
        if waited >= seconds:
            return False
        give_back_connection()
        sleep(min(LOOK if waited < SOON else LATER_LOOK, seconds - waited))
    return None if state is None else True
