"""Bulk actions of ``cancel`` and ``rerun``: requested with filters, confirmed by a person, and followed."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from runs.client.errors import ERRORED, FAILED, SUCCEEDED, ClientError
from runs.client.printing import clean, format_cost, format_plural, paint, print_json, print_line
from runs.client.progress import RARELY, Progress
from runs.client.server import Server
from runs.client.waiting import look_patiently

CANCEL, RUN_AGAIN = "cancel", "run_again"
UNFINISHED = ("waiting", "working")
PAUSE = 1.0
"""Seconds between two looks."""

_VERBS = {CANCEL: "Cancel", RUN_AGAIN: "Run again"}
_DONE = {CANCEL: "cancelled", RUN_AGAIN: "started again"}


def begin_action(
    server: Server, kind: str, filters: Mapping[str, Any], *, is_sure: bool, as_json: bool, **terms: Any
) -> dict[str, Any] | None:
    """Do something to all runs that match, once whoever sits at the terminal has said yes; ``terms`` go to the API.

    None if there is none to which it could be done; ``as_json`` prints the preview, which says so. Raises
    ``ClientError``, also where nobody can be asked.
    """
    body: dict[str, Any] = {"kind": kind, "filters": _build_filters(filters)}
    preview = server.ask("POST", "bulk-actions/preview", json=body)
    count = min(preview["count"], terms.get("most") or preview["count"])
    if not count:
        print_line("There are no such runs.", is_error=True)
        if as_json:
            print_json(preview)
        return None
    if not is_sure:
        _confirm(_write_question(kind, preview, count, "most" in terms))
    # What has begun since the question was asked is not meant.
    body |= {"newest": preview["newest"], **terms}
    # Sent again because no answer came, it is done once.
    headers = {"Idempotency-Key": str(uuid4())}
    return server.ask("POST", "bulk-actions", json=body, headers=headers)


def _build_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Filters of a command as the body of a request has them."""
    statuses = filters.get("status")
    return {**filters, **({} if statuses is None else {"status": statuses.split(",")})}


def _write_question(kind: str, preview: Mapping[str, Any], count: int, is_bounded: bool) -> str:
    number = format_plural(count, "run")
    if not preview["is_exact"] and not is_bounded:
        number = f"{number} or more"
    price = f", which cost {format_cost(preview['cost'])} so far" if kind == RUN_AGAIN and preview["cost"] else ""
    newest = ", ".join(str(run) for run in preview["examples"][:5])
    return f"{_VERBS[kind]} {number}{price} (the newest: {newest})?"


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise ClientError(f"{question} Nobody is here to say so; --yes does it without being asked.")
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise ClientError("Nothing is done.")


def wait_for_action(server: Server, action: dict[str, Any]) -> dict[str, Any]:
    """The action once it has ended. Raises ``ClientError``."""
    path = f"bulk-actions/{action['id']}"
    try:
        with Progress(pause=RARELY) as progress:
            while action["status"] in UNFINISHED:
                done = f"{format_plural(action['done'], 'run')} {_DONE[action['kind']]}"
                progress.tell(f"Bulk action {action['id']}: {action['percent']} %, {done}")
                time.sleep(PAUSE)
                action = look_patiently(lambda: server.get(path))
    except KeyboardInterrupt:
        print_line(f"\nBulk action {action['id']} goes on; it can be stopped at {action['page_url']}", is_error=True)
        raise
    return action


def tell_action(action: dict[str, Any], *, as_json: bool) -> int:
    """Say how far an action is, and why runs were left out. Gives the exit status."""
    if as_json:
        print_json(action)
    else:
        parts = [f"{format_plural(action['done'], 'run')} {_DONE[action['kind']]}"]
        parts += [f"{action[name]:,} {name}" for name in ("skipped", "failed") if action[name]]
        print_line(f"Bulk action {action['id']}: ", paint(action["status"]), f", {', '.join(parts)}")
        if action["problem"]:
            print_line("  ", action["problem"])
        for note in action["notes"]:
            print_line(f"  Run {note['run']}: ", note["sentence"], is_error=True)
        if action["label"] and action["done"]:
            print_line(f"Label of the new runs: {action['label']}", is_error=True)
        if action["status"] in UNFINISHED:
            print_line(f"A worker goes on with it. Its progress: {action['page_url']}", is_error=True)
    if action["status"] in {"failed", "stopped"}:
        return ERRORED
    return FAILED if action["failed"] else SUCCEEDED
