"""Commands about runs: start one and wait for its end, list and show them."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Annotated, Any

import typer

from runs.client.options import AS_JSON, FILTERS, FLOW, LIMIT, RUN_OPTIONS, WAIT, connect, read_object, with_options
from runs.client.server import RUN_EXITS, SUCCEEDED, Server
from runs.client.terminal import (
    NONE,
    Columns,
    format_cost,
    format_count,
    format_seconds,
    format_time,
    print_items,
    print_json,
    print_line,
    print_on_interrupt,
    show_progress,
)

POLL_INTERVAL = 0.25
MAX_POLL_INTERVAL = 2.0
"""Seconds between two looks at a run: the longer it takes, the more."""

RUN_COLUMNS: Columns = {
    "RUN": lambda run: run["id"],
    "FLOW": lambda run: run["flow"],
    "VERSION": lambda run: run["version"],
    "STATUS": lambda run: run["status"],
    "STEPS": lambda run: f"{run['steps_passed']}/{run['step_count']}",
    "ATTEMPTS": lambda run: format_count(run["attempt_count"]),
    "TOKENS": lambda run: format_count(run["usage"]["total"]),
    "COST": lambda run: format_cost(run["usage"]["cost"]),
    "DURATION": lambda run: format_seconds(run["duration"]),
    "CREATED": lambda run: format_time(run["created_at"]),
}
ATTEMPT_COLUMNS: Columns = {
    "ATTEMPT": lambda attempt: f"{attempt['step']}.{attempt['number']}",
    "STEP": lambda attempt: attempt["name"],
    "OUTCOME": lambda attempt: attempt["outcome"] or "running",
    "ISSUES": lambda attempt: _count_issues(attempt["issues"]),
    "MODEL": lambda attempt: attempt["model"] or NONE,
    "TOKENS": lambda attempt: format_count((attempt["usage"] or {}).get("total")),
    "COST": lambda attempt: format_cost((attempt["usage"] or {}).get("cost")),
    "DURATION": lambda attempt: format_seconds(attempt["duration"]),
}


@with_options("options", RUN_OPTIONS)
def start_run(
    context: typer.Context,
    flow: FLOW,
    *,
    input: Annotated[str, typer.Option("--input", "-i", metavar="@FILE", help="@file.json, - or JSON itself.")],
    metadata: Annotated[str | None, typer.Option(metavar="@FILE", help="JSON that is kept with the run.")] = None,
    webhook_url: Annotated[str | None, typer.Option(metavar="URL", help="Is notified when the run has ended.")] = None,
    wait: WAIT = False,
    as_json: AS_JSON = False,
    options: dict[str, Any],
) -> int:
    """Start a run of a flow.

    With --wait the last output is printed; the exit status is 0 if the run succeeded, 1 if it failed, 2 if it errored
    or was cancelled.
    """
    server = connect(context)
    key = options.pop("idempotency_key", None)
    if metadata is not None:
        options["metadata"] = read_object(metadata, "The metadata")
    if webhook_url is not None:
        options["webhook_url"] = webhook_url
    run = server.post("runs", key=key, flow=flow, input=read_object(input, "The input"), **options)
    if wait:
        return finish_run(server, run, as_json=as_json)
    if as_json:
        print_json(run)
    else:
        print_started(run)
    return SUCCEEDED


def print_started(run: dict[str, Any]) -> None:
    """Print a new run, and its page beside the results."""
    print_line(f"Run {run['id']} of “{run['flow']}”, version {run['version']}: ", run["status"])
    print_line(run["page_url"], is_error=True)


def finish_run(server: Server, run: dict[str, Any], *, as_json: bool) -> int:
    """Wait for the end of a run and print its last output, or why there is none. Gives the exit status."""
    number = run["id"]
    with print_on_interrupt(f"Run {number} goes on; “toolflow cancel {number}” would end it."):
        wait_for_run(server, run)
    run = server.get(f"runs/{number}")
    if as_json:
        print_json(run)
        return RUN_EXITS[run["status"]]
    print_line(f"Run {number}: ", run["status"], f". {run['end_sentence'] or ''}", is_error=True)
    if run["status"] == "succeeded":
        print_json(run["steps"][-1]["attempts"][-1]["output"])
        return SUCCEEDED
    blocking = run["blocking"] or {}
    for attempt in _list_attempts(run):
        if (attempt["step"], attempt["number"]) == (blocking.get("step"), blocking.get("attempt")):
            _print_attempt(attempt, has_output=True, has_issues=True, is_error=True)
    print_line(run["page_url"], is_error=True)
    return RUN_EXITS[run["status"]]


def wait_for_run(server: Server, run: dict[str, Any]) -> dict[str, Any]:
    """The run once it has ended, without its attempts."""
    interval = POLL_INTERVAL
    with show_progress() as show:
        while run["status"] not in RUN_EXITS:
            reason = f", {run['waiting_for']}" if run["waiting_for"] else ""
            show(f"Run {run['id']}: {_summarize(run)}{reason}", run["steps_passed"], run["step_count"])
            time.sleep(interval)
            interval = min(MAX_POLL_INTERVAL, interval * 1.3)
            run = server.get(f"runs/{run['id']}", is_waiting=True, attempts="none")
    return run


def _summarize(run: dict[str, Any]) -> str:
    figures = [
        f"{run['status']}, {run['steps_passed']} of {run['step_count']} steps passed",
        format_count(run["attempt_count"], "attempt"),
        format_count(run["usage"]["total"], "token"),
        format_cost(run["usage"]["cost"]),
    ]
    return ", ".join(figure for figure in figures if figure != NONE)


@with_options("filters", FILTERS)
def list_runs(context: typer.Context, *, limit: LIMIT = 20, as_json: AS_JSON = False, filters: dict[str, Any]) -> int:
    """List runs, the newest first."""
    print_items(list(connect(context).iterate("runs", limit, **filters)), RUN_COLUMNS, as_json=as_json)
    return SUCCEEDED


def show_run(
    context: typer.Context,
    run_id: Annotated[int, typer.Argument(metavar="RUN", min=1, help="The number of the run.")],
    issues: Annotated[bool, typer.Option("--issues", help="With the issues of each attempt.")] = False,
    outputs: Annotated[bool, typer.Option("--outputs", help="With the output of each attempt.")] = False,
    final: Annotated[bool, typer.Option("--final", help="Only the attempt of each step that decided.")] = False,
    min_severity: Annotated[str | None, typer.Option(help="Issues of at least this severity.")] = None,
    as_json: AS_JSON = False,
) -> int:
    """Show a run and its attempts.

    Each output stands beside its own issues, if they are asked for.
    """
    kind = "final" if final else None
    run = connect(context).get(f"runs/{run_id}", name=f"run {run_id}", attempts=kind, min_severity=min_severity)
    if as_json:
        print_json(run)
        return SUCCEEDED
    simulated = " (simulated)" if run["is_simulated"] else ""
    reason = f". {run['end_sentence'] or run['waiting_for'] or ''}".rstrip()
    title = f"Run {run_id} of “{run['flow']}”, version {run['version']}{simulated}: "
    print_line(title, run["status"], reason)
    print_line(f"{_summarize(run)}, took {format_seconds(run['duration'])}, created {format_time(run['created_at'])}")
    if run["labels"]:
        print_line("Labels: ", ", ".join(run["labels"]))
    print_line(run["page_url"])
    if attempts := _list_attempts(run):
        print_line()
        print_items(attempts, ATTEMPT_COLUMNS)
    for attempt in attempts if issues or outputs else ():
        _print_attempt(attempt, has_output=outputs, has_issues=issues)
    return SUCCEEDED


def _list_attempts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The attempts of all steps, each with the ``name`` of its step."""
    return [{"name": step["name"], **attempt} for step in run["steps"][1:] for attempt in step["attempts"]]


def _count_issues(issues: list[dict[str, Any]]) -> str:
    counts = Counter(issue["severity"] for issue in issues)
    severities = ("critical", "high", "medium", "low")
    return ", ".join(f"{counts[severity]} {severity}" for severity in severities if counts[severity]) or "none"


def _print_attempt(attempt: dict[str, Any], *, has_output: bool, has_issues: bool, is_error: bool = False) -> None:
    outcome = attempt["outcome"] or "running"
    print_line(f"\n{attempt['name']}, attempt {attempt['number']}: ", outcome, is_error=is_error)
    for reason in ((attempt["error"] or {}).get("message"), attempt["failure_reason"]):
        if reason:
            print_line(f"  {reason}", is_error=is_error)
    if has_output and attempt["output"] is not None:
        text = json.dumps(attempt["output"], indent=2, ensure_ascii=False)
        print_line("  ", text.replace("\n", "\n  "), is_error=is_error)
    for issue in attempt["issues"] if has_issues else ():
        place = f" ({issue['path']})" if issue["path"] else ""
        description = f" {issue['code']}: {issue['description']}{place}"
        print_line("  ", issue["severity"], description, is_error=is_error)
        for suggestion in issue["suggestions"]:
            print_line(f"    → {suggestion}", is_error=is_error)
