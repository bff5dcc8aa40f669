"""Commands that cancel runs and run them again: single ones by number, or all that match filters."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

import typer

from runs.client.bulk import CANCEL, RUN_AGAIN, begin_action, tell_action, wait_for_action
from runs.client.errors import SUCCEEDED, ClientError, naming
from runs.client.inputs import read_input
from runs.client.many_runs import list_labelled, tell_outcomes, wait_for_label
from runs.client.options import AS_JSON, RUN_IDS, YES, find_server, with_filters
from runs.client.printing import print_json, print_line
from runs.client.runs import tell_end, tell_start
from runs.client.server import Server
from runs.client.waiting import wait_for_end

_EVERY = Annotated[bool, typer.Option("--all", help="All runs that there are, without any filter.")]


@with_filters
def cancel_runs(
    context: typer.Context,
    run_ids: RUN_IDS = None,
    *,
    every: _EVERY = False,
    yes: YES = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="With filters: wait until all are cancelled.")] = False,
    as_json: AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Cancel runs that are queued or running.

    Those of these numbers, or all that match the filters; with filters it is asked first.
    """
    _require_choice(run_ids, filters, every)
    server = find_server(context)
    if run_ids:
        return _cancel_some(server, run_ids, as_json=as_json)
    action = begin_action(server, CANCEL, filters, is_sure=yes)
    if action is None:
        return SUCCEEDED
    return tell_action(wait_for_action(server, action) if wait else action, as_json=as_json)


@with_filters
def run_again(
    context: typer.Context,
    run_ids: RUN_IDS = None,
    *,
    live: Annotated[bool, typer.Option("--live", help="On the live version, not on the one that each had.")] = False,
    input: Annotated[
        str | None, typer.Option("--input", "-i", metavar="@FILE", help="Another input; of a single run only.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="With filters: how many at most, the newest first.")
    ] = None,
    every: _EVERY = False,
    yes: YES = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end of the new runs.")] = False,
    as_json: AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Run ended runs again, with the same input.

    Those of these numbers, or all that match the filters; with filters it is asked first. Each becomes a new run.
    With --wait the exit status is the gravest of the new runs: 0 succeeded, 1 failed, 2 errored or cancelled.
    """
    _require_choice(run_ids, filters, every)
    if input is not None and len(run_ids or ()) != 1:
        raise ClientError("--input is for a single run: name its number.")
    if run_ids and most is not None:
        raise ClientError("--most is for filters; with numbers, exactly those runs are run again.")
    server = find_server(context)
    version = "live" if live else "same"
    if run_ids:
        body: dict[str, Any] = {"version": version}
        if input is not None:
            body["input"] = read_input(input)
        runs = [_begin_again(server, run_id, body) for run_id in run_ids]
        return _tell_runs(server, runs, wait=wait, as_json=as_json)
    terms: dict[str, Any] = {"version": version} | ({} if most is None else {"most": most})
    action = begin_action(server, RUN_AGAIN, filters, is_sure=yes, **terms)
    if action is None:
        return SUCCEEDED
    if not wait:
        return tell_action(action, as_json=as_json)
    action = wait_for_action(server, action)
    told = tell_action(action, as_json=as_json)
    wait_for_label(server, action["label"], action["done"])
    return max(told, tell_outcomes(run["status"] for run in list_labelled(server, action["label"])))


def _require_choice(run_ids: list[int] | None, filters: dict[str, Any], every: bool) -> None:
    if run_ids and (filters or every):
        raise ClientError("Either numbers of runs, or filters: both together can’t be meant.")
    if not (run_ids or filters or every):
        raise ClientError("Name runs by their numbers, choose them by filters such as --flow, or say --all.")
    if filters and every:
        raise ClientError("--all means all runs; leave it out with filters.")


def _cancel_some(server: Server, run_ids: list[int], *, as_json: bool) -> int:
    runs = []
    for run_id in run_ids:
        with naming(f"run {run_id}"):
            # Under a key it may be sent again: to cancel what is cancelled would be refused.
            headers = {"Idempotency-Key": str(uuid4())}
            runs.append(server.ask("POST", f"runs/{run_id}/cancel", headers=headers))
        if not as_json:
            is_over = runs[-1]["status"] == "cancelled"
            print_line(f"Run {run_id} is cancelled." if is_over else f"Run {run_id} is about to be cancelled.")
    if as_json:
        print_json(runs)
    return SUCCEEDED


def _begin_again(server: Server, run_id: int, body: dict[str, Any]) -> dict[str, Any]:
    # Under a key it may be sent again: one command never runs it twice.
    headers = {"Idempotency-Key": str(uuid4())}
    with naming(f"run {run_id}"):
        return server.ask("POST", f"runs/{run_id}/run-again", json=body, headers=headers)


def _tell_runs(server: Server, runs: list[dict[str, Any]], *, wait: bool, as_json: bool) -> int:
    if len(runs) == 1:
        return tell_end(server, runs[0], as_json=as_json) if wait else tell_start(runs[0], as_json=as_json)
    if wait:
        runs = [wait_for_end(server, run) for run in runs]
    if as_json:
        print_json(runs)
    else:
        for run in runs:
            tell_start(run, as_json=False)
    return tell_outcomes(run["status"] for run in runs) if wait else SUCCEEDED
