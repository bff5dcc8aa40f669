"""Waiting for the end of a run, and showing how far it is.

The server tells of each change in a stream of events. Where there is none, because the server is no ASGI server or a
proxy holds events back, the run is asked for from time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from runs.client.errors import RUN_EXITS, SilenceError, UnreachableError
from runs.client.printing import format_cost, format_plural, print_line
from runs.client.progress import Progress
from runs.client.server import Server

FIRST_PAUSE = 0.25
LAST_PAUSE = 2.0
"""Seconds between looks: the longer a run takes, the less a moment counts."""
SILENCE = 40.0
"""Seconds without a sign of life after which a stream of events is given up; one comes every 15 seconds."""
PATIENCE = 120.0
"""Seconds for which the server may be away before waiting is given up."""
WORKER_PATIENCE = 10.0
"""Seconds in the queue after which it is said why."""

_Found = TypeVar("_Found")


def wait_for_end(server: Server, run: dict[str, Any]) -> dict[str, Any]:
    """The document of a run once it has ended, without its attempts. What it does meanwhile is shown beside.

    Raises ``ClientError`` if the server refuses, or is away for ``PATIENCE``.
    """
    begun_at = time.monotonic()
    is_remarked = False
    with Progress() as progress:
        for run in _follow(server, run):  # noqa: B020  # it begins with the run as it is known
            if run["status"] in RUN_EXITS:
                # How it ended is for the caller to tell.
                break
            progress.tell(_describe(run))
            if run["status"] == "queued" and not is_remarked and time.monotonic() - begun_at >= WORKER_PATIENCE:
                is_remarked = True
                reason = run.get("waiting_for") or "It waits in the queue: no worker has had a place for it yet."
                print_line(reason, is_error=True)
    return run


def _follow(server: Server, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The run as it is, and after each change until it has ended; once also if nothing changes for a while."""
    path = f"runs/{run['id']}"
    patience, pause, last_id = WORKER_PATIENCE, FIRST_PAUSE, ""
    can_listen = True
    yield run
    while run["status"] not in RUN_EXITS:
        if can_listen:
            can_listen = False
            try:
                for event in server.listen(f"{path}/events", last_id=last_id, patience=patience):
                    # A stream that breaks off before it has told anything new is none to come back to.
                    can_listen = can_listen or event.id not in {"", last_id}
                    last_id = event.id or last_id
                    if event.event in {"run", "end"}:
                        run = server.read(event.data)
                        yield run
            except SilenceError:
                # The first time it is only a reason to look why nothing happens.
                can_listen, patience = patience < SILENCE, SILENCE
            if run["status"] in RUN_EXITS:
                return
        if not can_listen:
            time.sleep(pause)
            pause = min(LAST_PAUSE, pause * 1.3)
        run = look_patiently(lambda: server.get(path, attempts="none"))
        yield run


def look_patiently(look: Callable[[], _Found]) -> _Found:
    """What ``look`` finds, also if the server is away for a while. Raises ``ClientError`` after ``PATIENCE``."""
    given_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            return look()
        except UnreachableError as error:
            pause = max(LAST_PAUSE, error.pause or 0)
            if time.monotonic() + pause > given_up_at:
                raise
            time.sleep(pause)


def _describe(run: dict[str, Any]) -> str:
    usage = run["usage"]
    parts = [
        f"Run {run['id']}: {run['status']}",
        f"{run['steps_passed']} of {run['step_count']} steps passed",
        format_plural(run["attempt_count"], "attempt"),
    ]
    if usage["total"]:
        parts.append(format_plural(usage["total"], "token"))
        if usage["cost"] is not None:
            parts.append(format_cost(usage["cost"]))
    return ", ".join(parts)
