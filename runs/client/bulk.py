"""Cancelling and re-running: a single run, or many as a bulk action of the server."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

import typer

from runs.client import options, terminal
from runs.client.runs import POLL_INTERVAL, finish_run, print_started, report_outcomes, wait_for_label
from runs.client.server import ERRORED, FAILED, RUN_EXITS, SUCCEEDED, ClientError, Server

MAX_COUNTED = 1_000
"""Runs that are counted for a question."""
CANCEL, RERUN = "cancel", "run_again"
"""Kinds of bulk actions."""
STATUSES = {CANCEL: ("queued", "running"), RERUN: tuple(RUN_EXITS)}
"""Statuses of runs that they can be done to."""
UNFINISHED = ("waiting", "working")
"""Statuses of a bulk action that has not ended."""


@options.with_options("filters", options.FILTERS)
def cancel_runs(
    context: typer.Context,
    run_ids: options.RUN_IDS = None,
    *,
    every: options.ALL = False,
    yes: options.YES = False,
    wait: options.WAIT = False,
    as_json: options.AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Cancel runs.

    Those of these numbers, or, after a question, all queued and running ones that match filters.
    """
    _validate_choice(run_ids, filters, every)
    server = options.connect(context)
    if not run_ids or len(run_ids) > 1:
        action = _begin_action(server, CANCEL, run_ids, filters, is_sure=yes, as_json=as_json)
        return _report_action(server, action, wait=wait, as_json=as_json)
    run = server.post(f"runs/{run_ids[0]}/cancel", name=f"run {run_ids[0]}")
    if wait:
        status = finish_run(server, run, as_json=as_json)
        return SUCCEEDED if status == RUN_EXITS["cancelled"] else status
    state = "cancelled" if run["status"] == "cancelled" else "about to be cancelled"
    terminal.print_result([run], f"Run {run['id']} is {state}.", as_json=as_json)
    return SUCCEEDED


@options.with_options("filters", options.FILTERS)
def rerun_runs(
    context: typer.Context,
    run_ids: options.RUN_IDS = None,
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Use the live version instead of the version that each run used.")
    ] = False,
    input: Annotated[
        str | None, typer.Option("--input", "-i", metavar="@FILE", help="Another input, for a single run.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="With filters: the maximum number, newest first.")
    ] = None,
    every: options.ALL = False,
    yes: options.YES = False,
    wait: options.WAIT = False,
    as_json: options.AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Run ended runs again.

    Those of these numbers, or, after a question, all that match filters.
    With --wait the exit status is the highest of the new runs: 0 succeeded, 1 failed, 2 errored or cancelled.
    """
    _validate_choice(run_ids, filters, every)
    if input is not None and len(run_ids or ()) != 1:
        raise ClientError("--input is for a single run: name its number.")
    if run_ids and most is not None:
        raise ClientError("--most works with filters only; with numbers, exactly those runs are re-run.")
    server = options.connect(context)
    terms: dict[str, Any] = {"version": "live" if live else "same"}
    if run_ids and len(run_ids) == 1:
        if input is not None:
            terms["input"] = options.read_object(input, "The input")
        run = server.post(f"runs/{run_ids[0]}/run-again", name=f"run {run_ids[0]}", **terms)
        return finish_run(server, run, as_json=as_json) if wait else print_started(run, as_json=as_json)
    if most is not None:
        terms["most"] = most
    action = _begin_action(server, RERUN, run_ids, filters, is_sure=yes, as_json=as_json, **terms)
    status = _report_action(server, action, wait=wait, as_json=as_json)
    if not wait:
        return status
    wait_for_label(server, action["label"], action["done"])
    return max(status, report_outcomes(run["status"] for run in server.iterate("runs", label=action["label"])))


def _validate_choice(run_ids: list[int] | None, filters: dict[str, Any], every: bool) -> None:
    if (bool(run_ids), bool(filters), every).count(True) != 1:
        raise ClientError("Name runs by number, select them with filters such as --flow, or use --all.")


def _begin_action(
    server: Server,
    kind: str,
    run_ids: list[int] | None,
    filters: dict[str, Any],
    *,
    is_sure: bool,
    as_json: bool,
    **terms: Any,
) -> dict[str, Any]:
    """Start a bulk action on these runs, or after a question on those that match.

    Raises ``ClientError`` if the answer is not yes, and ``typer.Exit`` if no run matches: then nothing is to be done.
    """
    if run_ids:
        return dict(server.post("bulk-actions", kind=kind, runs=run_ids, **terms))
    filters = options.apply_view(server, filters)
    wanted = [one.strip() for one in filters["status"].split(",")] if "status" in filters else STATUSES[kind]
    # Unknown ones are left to the server, which refuses them.
    statuses = [one for one in wanted if one not in STATUSES[RERUN if kind == CANCEL else CANCEL]]
    query = {**filters, "status": ",".join(statuses)}
    runs = list(server.iterate("runs", MAX_COUNTED, **query)) if statuses else []
    if not runs:
        terminal.print_line("No matching runs.", is_error=True)
        if as_json:
            terminal.print_json({"kind": kind, "count": 0, "done": 0})
        raise typer.Exit(SUCCEEDED)
    if not is_sure:
        _confirm(kind, runs[: terms.get("most")])
    if "status" in filters:
        filters["status"] = filters["status"].split(",")
    # Runs that began since they were listed are not meant.
    terms["newest"] = max(run["id"] for run in runs)
    return dict(server.post("bulk-actions", kind=kind, filters=filters, **terms))


def _confirm(kind: str, runs: Sequence[dict[str, Any]]) -> None:
    """Ask for a yes. Raises ``ClientError`` for anything else, and where there is no terminal to ask."""
    cost = sum(Decimal(run["usage"]["cost"] or 0) for run in runs)
    price = f", which cost {terminal.format_cost(cost)} so far" if kind == RERUN and cost else ""
    more = " or more" if len(runs) == MAX_COUNTED else ""
    newest = ", ".join(str(run["id"]) for run in runs[:5])
    verb = "Cancel" if kind == CANCEL else "Run again"
    question = f"{verb} {terminal.format_count(len(runs), 'run')}{more}{price} (the newest: {newest})?"
    if not sys.stdin.isatty():
        raise ClientError(f"{question} Confirmation needs a terminal; use --yes to skip it.")
    terminal.write(f"{question} [y/N] ", is_error=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise ClientError("Nothing is done.")


def _report_action(server: Server, action: dict[str, Any], *, wait: bool, as_json: bool) -> int:
    """Print how far a bulk action is, with ``wait`` once it has ended. Gives the exit status."""
    title = f"Bulk action {action['id']}"
    if wait:
        with server.wait(f"{title} continues; stop it at {action['page_url']}") as show:
            while action["status"] in UNFINISHED:
                show(f"{title}: {action['done']:,} of {action['run_count']:,}", action["percent"], 100)
                time.sleep(POLL_INTERVAL)
                action |= server.get(f"bulk-actions/{action['id']}")
    if as_json:
        terminal.print_json(action)
    else:
        verb = "cancelled" if action["kind"] == CANCEL else "started again"
        counts = {verb: action["done"], "skipped": action["skipped"], "failed": action["failed"]}
        listed = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count or word == verb)
        terminal.print_line(f"{title}: ", action["status"], f", {listed}")
    if action["label"]:
        terminal.print_line(f"Label of the new runs: {action['label']}", is_error=True)
    for note in action["notes"]:
        terminal.print_line(f"Run {note['run']}: {note['sentence']}", is_error=True)
    terminal.print_line(action["problem"] or action["page_url"], is_error=True)
    if action["status"] in {"failed", "stopped"}:
        return ERRORED
    # What filters find may end before its turn; what was named is expected to be done.
    is_missed = action["failed"] or (action["skipped"] and action["filters"] is None)
    return FAILED if is_missed else SUCCEEDED
