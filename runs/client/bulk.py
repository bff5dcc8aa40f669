"""What is done to many runs at once: asked for with filters, confirmed by a person, and followed."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import uuid4

import typer

from runs.client.chosen_view import write_body
from runs.client.errors import ERRORED, FAILED, SUCCEEDED, ClientError, naming
from runs.client.options import AS_JSON, LIMIT, find_server
from runs.client.printing import (
    NONE,
    clean,
    format_cost,
    format_count,
    format_plural,
    format_time,
    paint,
    print_json,
    print_line,
    print_table,
)
from runs.client.progress import RARELY, Progress
from runs.client.server import Server
from runs.client.waiting import look_patiently

CANCEL, RUN_AGAIN = "cancel", "run_again"
UNFINISHED = ("waiting", "working")
PAUSE = 1.0
"""Seconds between two looks."""

_VERBS = {CANCEL: "Cancel", RUN_AGAIN: "Run again"}
_DONE = {CANCEL: "cancelled", RUN_AGAIN: "started again"}
_ACTION = Annotated[int, typer.Argument(metavar="ACTION", min=1, help="The number of the bulk action.")]

commands = typer.Typer(help="Follow what is done to many runs at once.", no_args_is_help=True)


@commands.command("list")
def list_actions(context: typer.Context, limit: LIMIT = 20, as_json: AS_JSON = False) -> int:
    """List bulk actions, the newest first."""
    actions = list(find_server(context).list("bulk-actions", limit))
    if as_json:
        print_json(actions)
    elif not actions:
        print_line("There are no bulk actions.", is_error=True)
    else:
        rows = [
            (
                action["id"],
                action["kind"].replace("_", " "),
                action["status"],
                f"{action['percent']} %",
                *(format_count(action[name]) for name in ("done", "skipped", "failed")),
                action["started_by"] or NONE,
                format_time(action["created_at"]),
            )
            for action in actions
        ]
        columns = ("ACTION", "KIND", "STATUS", "PERCENT", "DONE", "SKIPPED", "FAILED", "BY", "CREATED")
        print_table(columns, rows, right=("ACTION", "PERCENT", "DONE", "SKIPPED", "FAILED"))
    return SUCCEEDED


@commands.command("show")
def show_action(
    context: typer.Context,
    action_id: _ACTION,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for its end.")] = False,
    as_json: AS_JSON = False,
) -> int:
    """Show how far a bulk action is, and why runs were left out."""
    server = find_server(context)
    with naming(f"bulk action {action_id}"):
        action: dict[str, Any] = server.get(f"bulk-actions/{action_id}")
    if wait:
        action = wait_for_action(server, action)
    return tell_action(action, as_json=as_json)


@commands.command("stop")
def stop_action(context: typer.Context, action_id: _ACTION, as_json: AS_JSON = False) -> int:
    """Stop a bulk action where it stands; what it has done stays done."""
    server = find_server(context)
    with naming(f"bulk action {action_id}"):
        headers = {"Idempotency-Key": str(uuid4())}
        action = server.ask("POST", f"bulk-actions/{action_id}/stop", headers=headers)
    tell_action(action, as_json=as_json)
    return SUCCEEDED


def begin_action(
    server: Server, kind: str, filters: Mapping[str, Any], *, is_sure: bool, as_json: bool, **terms: Any
) -> dict[str, Any] | None:
    """Do something to all runs that match, once whoever sits at the terminal has said yes; ``terms`` go to the API.

    None if there is none to which it could be done; ``as_json`` prints the preview, which says so. Raises
    ``ClientError``, also where nobody can be asked.
    """
    body: dict[str, Any] = {"kind": kind, "filters": write_body(filters)}
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
        number = action["id"]
        print_line(f"\nBulk action {number} goes on; “toolflow bulk stop {number}” would end it.", is_error=True)
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
            number = action["id"]
            print_line(f"A worker goes on with it: “toolflow bulk show {number}” says how far it is.", is_error=True)
    if action["status"] in {"failed", "stopped"}:
        return ERRORED
    return FAILED if action["failed"] else SUCCEEDED
