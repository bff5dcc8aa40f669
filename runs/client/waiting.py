"""Waiting for the end of a run, and showing how far it is."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from rich.status import Status

from runs.client.errors import RUN_EXITS, UnreachableError
from runs.client.printing import clean, format_cost, format_count, make_console, print_line
from runs.client.server import Server

FIRST_PAUSE = 0.25
LAST_PAUSE = 2.0
"""Seconds between looks: the longer a run takes, the less a moment counts."""
PATIENCE = 120.0
"""Seconds for which the server may be away before waiting is given up."""
WORKER_PATIENCE = 10.0
"""Seconds in the queue after which it is said that no worker took the run."""


def wait_for_end(server: Server, run: dict[str, Any]) -> dict[str, Any]:
    """The document of a run once it has ended, without its attempts. What it does meanwhile is shown beside.

    Raises ``ClientError`` if the server refuses, or is away for ``PATIENCE``.
    """
    console = make_console(is_error=True)
    is_live = console.is_terminal
    said = ""
    begun_at = time.monotonic()
    is_remarked = False
    pause = FIRST_PAUSE
    with Status(_describe(run), console=console) if is_live else nullcontext() as status:
        while run["status"] not in RUN_EXITS:
            now = _describe(run)
            if status is not None:
                status.update(now)
            elif now != said:
                print_line(now, is_error=True)
                said = now
            if run["status"] == "queued" and not is_remarked and time.monotonic() - begun_at > WORKER_PATIENCE:
                is_remarked = True
                reason = run.get("waiting_for") or "No worker has taken the run yet."
                print_line(reason, is_error=True)
            time.sleep(pause)
            pause = min(LAST_PAUSE, pause * 1.3)
            run = _look(server, run["id"])
    return run


def _look(server: Server, run_id: int) -> dict[str, Any]:
    """The run, also if the server is away for a while."""
    given_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            found: dict[str, Any] = server.get(f"runs/{run_id}", attempts="none")
            return found
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
        f"{format_count(run['attempt_count'])} attempts",
    ]
    if usage["total"]:
        parts += [f"{format_count(usage['total'])} tokens", format_cost(usage["cost"])]
    return clean(", ".join(parts))
