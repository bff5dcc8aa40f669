"""Commands about runs: start one and wait for its end, list and show them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from runs.client import options, terminal
from runs.client.server import RUN_EXITS, SUCCEEDED, Server
from runs.client.terminal import NONE, format_cost, format_count, format_seconds, format_time, print_line

POLL_INTERVAL = 1.0
"""Seconds between two polls of what is waited for."""
MAX_COUNTED = 1_000
"""Runs that are counted for progress."""

RUN_COLUMNS: terminal.Columns = {
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
ATTEMPT_COLUMNS: terminal.Columns = {
    "ATTEMPT": lambda attempt: f"{attempt['step']}.{attempt['number']}",
    "STEP": lambda attempt: attempt["name"],
    "OUTCOME": lambda attempt: attempt["outcome"] or "running",
    "ISSUES": lambda attempt: _count_issues(attempt["issues"]),
    "MODEL": lambda attempt: attempt["model"] or NONE,
    "TOKENS": lambda attempt: format_count((attempt["usage"] or {}).get("total")),
    "COST": lambda attempt: format_cost((attempt["usage"] or {}).get("cost")),
    "DURATION": lambda attempt: format_seconds(attempt["duration"]),
}


@options.with_options("body", options.RUN_OPTIONS)
def start_run(
    context: typer.Context,
    flow: options.FLOW,
    *,
    input: Annotated[str, typer.Option("--input", "-i", metavar="@FILE", help="@file.json, - or JSON itself.")],
    metadata: Annotated[str | None, typer.Option(metavar="@FILE", help="JSON to store with the run.")] = None,
    webhook_url: Annotated[str | None, typer.Option(metavar="URL", help="A URL to notify when the run ends.")] = None,
    wait: options.WAIT = False,
    as_json: options.AS_JSON = False,
    body: dict[str, Any],
) -> int:
    """Start a run of a flow.

    With --wait the last output is printed; the exit status is 0 if the run succeeded, 1 if it failed, 2 if it errored
    or was cancelled.
    """
    server = options.connect(context)
    key = body.pop("idempotency_key", None)
    if metadata is not None:
        body["metadata"] = options.read_object(metadata, "The metadata")
    if webhook_url is not None:
        body["webhook_url"] = webhook_url
    run = server.post("runs", key=key, flow=flow, input=options.read_object(input, "The input"), **body)
    return finish_run(server, run, as_json=as_json) if wait else print_started(run, as_json=as_json)


def print_started(run: dict[str, Any], *, as_json: bool) -> int:
    """Print a new run, and its page beside the results. Gives the exit status."""
    if as_json:
        terminal.print_json(run)
    else:
        print_line(f"Run {run['id']} of “{run['flow']}”, version {run['version']}: ", run["status"])
        print_line(run["page_url"], is_error=True)
    return SUCCEEDED


def finish_run(server: Server, run: dict[str, Any], *, as_json: bool) -> int:
    """Wait for the end of a run and print its last output, or why there is none. Gives the exit status."""
    number = run["id"]
    with server.wait(f"Run {number} continues; “toolflow cancel {number}” cancels it.") as show:
        while run["status"] not in RUN_EXITS:
            reason = f", {run['waiting_for']}" if run["waiting_for"] else ""
            show(f"Run {number}: {_summarize(run)}{reason}", run["steps_passed"], run["step_count"])
            time.sleep(POLL_INTERVAL)
            run = server.get(f"runs/{number}", attempts="none")
    run = server.get(f"runs/{number}")
    if as_json:
        terminal.print_json(run)
        return RUN_EXITS[run["status"]]
    print_line(f"Run {number}: ", run["status"], f". {run['end_sentence'] or ''}", is_error=True)
    if run["status"] == "succeeded":
        terminal.print_json(find_output(run))
        return SUCCEEDED
    blocking = run["blocking"] or {}
    for attempt in _list_attempts(run):
        if (attempt["step"], attempt["number"]) == (blocking.get("step"), blocking.get("attempt")):
            _print_attempt(attempt, has_output=True, has_issues=True, is_error=True)
    print_line(run["page_url"], is_error=True)
    return RUN_EXITS[run["status"]]


def wait_for_label(server: Server, label: str, count: int) -> None:
    """Wait until none of the ``count`` runs with this label is queued or running."""
    with server.wait(f"The runs continue; “toolflow cancel --label {label}” cancels them.") as show:
        while left := sum(1 for _ in server.iterate("runs", MAX_COUNTED, label=label, status="queued,running")):
            # How many more than are counted is not known.
            more, total = (" or more", None) if left == MAX_COUNTED else ("", count)
            show(f"{left:,}{more} of {format_count(count, 'run')} are left", count - left, total)
            time.sleep(POLL_INTERVAL)


def report_outcomes(statuses: Iterable[str]) -> int:
    """Print beside the results how many runs ended how. Gives the highest of their exit statuses."""
    counts = Counter(statuses)
    for status, count in counts.items():
        print_line(format_count(count, "run"), " ", status, is_error=True)
    return max((RUN_EXITS[status] for status in counts), default=SUCCEEDED)


def _summarize(run: dict[str, Any]) -> str:
    figures = [
        f"{run['status']}, {run['steps_passed']} of {run['step_count']} steps passed",
        format_count(run["attempt_count"], "attempt"),
        format_count(run["usage"]["total"], "token"),
        format_cost(run["usage"]["cost"]),
    ]
    return ", ".join(figure for figure in figures if figure != NONE)


@options.with_options("filters", options.FILTERS)
def list_runs(
    context: typer.Context, *, limit: options.LIMIT = 20, as_json: options.AS_JSON = False, filters: dict[str, Any]
) -> None:
    """List runs, the newest first."""
    server = options.connect(context)
    runs = list(server.iterate("runs", limit, **options.apply_view(server, filters)))
    terminal.print_items(runs, RUN_COLUMNS, as_json=as_json)


def show_run(
    context: typer.Context,
    run_id: Annotated[int, typer.Argument(metavar="RUN", min=1, help="The number of the run.")],
    issues: Annotated[bool, typer.Option("--issues", help="With the issues of each attempt.")] = False,
    outputs: Annotated[bool, typer.Option("--outputs", help="With the output of each attempt.")] = False,
    final: Annotated[bool, typer.Option("--final", help="Only the deciding attempt of each step.")] = False,
    min_severity: Annotated[str | None, typer.Option(help="Issues of at least this severity.")] = None,
    as_json: options.AS_JSON = False,
) -> None:
    """Show a run and its attempts.

    Each output is beside its own issues, if they are asked for.
    """
    kind = "final" if final else None
    run = options.connect(context).get(f"runs/{run_id}", name=f"run {run_id}", attempts=kind, min_severity=min_severity)
    if as_json:
        terminal.print_json(run)
        return
    reason = f". {run['end_sentence'] or run['waiting_for'] or ''}".rstrip()
    simulated = " (simulated)" if run["is_simulated"] else ""
    title = f"Run {run_id} of “{run['flow']}”, version {run['version']}{simulated}: "
    print_line(title, run["status"], reason)
    print_line(f"{_summarize(run)}, took {format_seconds(run['duration'])}, created {format_time(run['created_at'])}")
    if run["labels"]:
        print_line("Labels: ", ", ".join(run["labels"]))
    print_line(run["page_url"])
    attempts = _list_attempts(run)
    terminal.print_items(attempts, ATTEMPT_COLUMNS)
    for attempt in attempts if issues or outputs else ():
        _print_attempt(attempt, has_output=outputs, has_issues=issues)


def find_output(run: dict[str, Any]) -> Any:
    """The output of a run that succeeded: of its last step’s accepted attempt, or else of the last one."""
    attempts = run["steps"][-1]["attempts"]
    return next((one for one in attempts if one.get("is_accepted")), attempts[-1])["output"]


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
