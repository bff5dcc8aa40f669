"""Commands about runs: start one, list and show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

import typer

from runs.client.errors import RUN_EXITS, SUCCEEDED, naming
from runs.client.inputs import read_input
from runs.client.options import AS_JSON, LIMIT, RUN_ID, find_server, with_filters
from runs.client.printing import (
    format_cost,
    format_count,
    format_seconds,
    format_time,
    paint,
    print_json,
    print_line,
    print_table,
)
from runs.client.run_report import print_attempt, print_blocking_attempt, print_run
from runs.client.server import Server
from runs.client.waiting import wait_for_end


def start_run(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow, as in its address.")],
    input: Annotated[
        str, typer.Option("--input", "-i", metavar="@FILE", help="@file.json, - for standard input, or JSON itself.")
    ],
    version: Annotated[int | None, typer.Option(min=1, help="A version’s number; the live one if left out.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="A label; may be repeated.")] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Tokens that the run may use.")] = None,
    cost_budget: Annotated[str | None, typer.Option(metavar="USD", help="What the run may cost.")] = None,
    time_limit: Annotated[int | None, typer.Option(metavar="SECONDS", help="How long the run may take.")] = None,
    metadata: Annotated[str | None, typer.Option(metavar="@FILE", help="JSON of yours, kept with the run.")] = None,
    webhook_url: Annotated[str | None, typer.Option(metavar="URL", help="Who is told when it has ended.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Under one key a run is started once, within 24 hours.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end, and print the last output.")] = False,
    as_json: AS_JSON = False,
) -> int:
    """Start a run of a flow.

    With --wait the exit status is 0 if it succeeded, 1 if it failed, 2 if it errored or was cancelled; without it, 0
    once the run is queued.
    """
    server = find_server(context)
    terms: dict[str, Any] = {
        "version": version,
        "labels": label,
        "priority": priority,
        "token_budget": token_budget,
        "cost_budget": cost_budget,
        "time_limit": time_limit,
        "metadata": None if metadata is None else read_input(metadata, "The metadata"),
        "webhook_url": webhook_url,
    }
    body: dict[str, Any] = {"flow": flow, "input": read_input(input)}
    body |= {name: value for name, value in terms.items() if value is not None}
    # Under one key it may be sent again: two runs are never started by one command.
    key = idempotency_key or str(uuid4())
    run = server.ask("POST", "runs", json=body, headers={"Idempotency-Key": key})
    return tell_end(server, run, as_json=as_json) if wait else tell_start(run, as_json=as_json)


def tell_start(run: dict[str, Any], *, as_json: bool) -> int:
    """Say that a run is queued. Gives the exit status."""
    if as_json:
        print_json(run)
    else:
        print_line(f"Run {run['id']} of “{run['flow']}”, version {run['version']}: ", paint(run["status"]))
        print_line(run["page_url"], is_error=True)
    return SUCCEEDED


def tell_end(server: Server, run: dict[str, Any], *, as_json: bool) -> int:
    """Wait for the end of a run, and say how it ended. Gives the exit status."""
    try:
        run = wait_for_end(server, run)
    except KeyboardInterrupt:
        tell_going_on([run])
        raise
    run = server.get(f"runs/{run['id']}")
    if as_json:
        print_json(run)
    else:
        _print_end(run)
    return RUN_EXITS[run["status"]]


def tell_going_on(runs: Sequence[dict[str, Any]]) -> None:
    """Say that these runs go on, though nobody waits for them any more."""
    numbers = [str(run["id"]) for run in runs]
    if len(numbers) == 1:
        said = f"Run {numbers[0]} goes on; “toolflow cancel {numbers[0]}” would end it."
    else:
        said = f"Runs {', '.join(numbers)} go on; “toolflow cancel {' '.join(numbers)}” would end them."
    print_line(f"\n{said}", is_error=True)


def _print_end(run: dict[str, Any]) -> None:
    """The last output alone goes where another program may read it; everything else stands beside it."""
    print_line(f"Run {run['id']}: ", paint(run["status"]), f". {run['end_sentence'] or ''}", is_error=True)
    if run["status"] == "succeeded":
        print_json(run["steps"][-1]["attempts"][-1]["output"])
    else:
        print_blocking_attempt(run, is_error=True)
        print_line(run["page_url"], is_error=True)


@with_filters
def list_runs(context: typer.Context, *, limit: LIMIT = 20, as_json: AS_JSON = False, filters: dict[str, Any]) -> int:
    """List runs, the newest first."""
    runs = list(find_server(context).list("runs", limit, **filters))
    if as_json:
        print_json(runs)
    elif not runs:
        print_line("There are no such runs.", is_error=True)
    else:
        columns = ("RUN", "FLOW", "VERSION", "STATUS", "STEPS", "ATTEMPTS", "TOKENS", "COST", "DURATION", "CREATED")
        print_table(columns, map(_make_row, runs), right=("RUN", "VERSION", "ATTEMPTS", "TOKENS", "COST", "DURATION"))
    return SUCCEEDED


def _make_row(run: dict[str, Any]) -> tuple[Any, ...]:
    return (
        run["id"],
        run["flow"],
        run["version"],
        run["status"],
        f"{run['steps_passed']}/{run['step_count']}",
        format_count(run["attempt_count"]),
        format_count(run["usage"]["total"]),
        format_cost(run["usage"]["cost"]),
        format_seconds(run["duration"]),
        format_time(run["created_at"]),
    )


def show_run(
    context: typer.Context,
    run_id: RUN_ID,
    issues: Annotated[bool, typer.Option("--issues", help="With the issues of each attempt.")] = False,
    outputs: Annotated[bool, typer.Option("--outputs", help="With the output of each attempt.")] = False,
    final: Annotated[bool, typer.Option("--final", help="Only the attempt of each step that decided.")] = False,
    min_severity: Annotated[str | None, typer.Option(help="Issues of at least this severity.")] = None,
    as_json: AS_JSON = False,
) -> int:
    """Show a run and its attempts, each with its own output and its own issues if asked for."""
    server = find_server(context)
    with naming(f"run {run_id}"):
        run = server.get(f"runs/{run_id}", attempts="final" if final else None, min_severity=min_severity)
    if as_json:
        print_json(run)
        return SUCCEEDED
    print_run(run)
    if issues or outputs:
        for step in run["steps"][1:]:
            for attempt in step["attempts"]:
                print_attempt(step["name"], attempt, has_output=outputs, has_issues=issues)
    return SUCCEEDED
