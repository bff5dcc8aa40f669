"""Commands that cancel runs and run them again: single ones by number, or all that match filters."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

import typer

from runs.client.bulk import CANCEL, RUN_AGAIN, begin_action, tell_action, wait_for_action
from runs.client.errors import SUCCEEDED, ClientError
from runs.client.inputs import read_input
from runs.client.many_runs import list_labelled, tell_outcomes, wait_for_label
from runs.client.one_by_one import Answers, ask_each
from runs.client.options import AS_JSON, RUN_IDS, YES, find_server, with_filters
from runs.client.printing import print_json, print_line
from runs.client.runs import tell_end, tell_going_on, tell_start
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

    Those of these numbers, or all that match the filters; with filters it is asked first. One of several that can’t be
    cancelled is told, and the others are cancelled.
    """
    _require_choice(run_ids, filters, every)
    server = find_server(context)
    if run_ids:
        return _cancel_some(server, run_ids, as_json=as_json)
    action = begin_action(server, CANCEL, filters, is_sure=yes, as_json=as_json)
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

    Those of these numbers, or all that match the filters; with filters it is asked first. Each becomes a new run;
    one of several that can’t be run again is told.
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
        return _repeat_some(server, run_ids, body, wait=wait, as_json=as_json)
    terms: dict[str, Any] = {"version": version} | ({} if most is None else {"most": most})
    action = begin_action(server, RUN_AGAIN, filters, is_sure=yes, as_json=as_json, **terms)
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
    def cancel(run_id: int) -> dict[str, Any]:
        # Under a key it may be sent again: the answer to the first is given once more.
        headers = {"Idempotency-Key": str(uuid4())}
        return server.ask("POST", f"runs/{run_id}/cancel", headers=headers)

    def tell(run_id: int, run: dict[str, Any]) -> None:
        is_over = run["status"] == "cancelled"
        print_line(f"Run {run_id} is {'cancelled' if is_over else 'about to be cancelled'}.", is_error=as_json)

    runs, status = ask_each("run", run_ids, cancel, tell)
    if as_json:
        print_json(runs)
    return status


def _repeat_some(server: Server, run_ids: list[int], body: dict[str, Any], *, wait: bool, as_json: bool) -> int:
    def begin(run_id: int) -> dict[str, Any]:
        # Under a key it may be sent again: one command never runs it twice.
        headers = {"Idempotency-Key": str(uuid4())}
        return server.ask("POST", f"runs/{run_id}/run-again", json=body, headers=headers)

    def tell(run_id: int, run: dict[str, Any]) -> None:
        if len(run_ids) == 1:
            return
        if wait or as_json:
            # What has begun is known also if the command never gets to its results.
            print_line(f"Run {run_id} is run again as run {run['id']}.", is_error=True)
        else:
            tell_start(run, as_json=False)

    runs, status = ask_each("run", run_ids, begin, tell)
    if len(run_ids) == 1:
        return tell_end(server, runs[0], as_json=as_json) if wait else tell_start(runs[0], as_json=as_json)
    if wait:
        runs = _wait_for_all(server, runs)
    if as_json:
        print_json(runs)
    elif wait:
        for run in runs:
            tell_start(run, as_json=False)
    return max(status, tell_outcomes(run["status"] for run in runs)) if wait else status


def _wait_for_all(server: Server, runs: Answers) -> Answers:
    ended: Answers = []
    try:
        for run in runs:
            ended.append(wait_for_end(server, run))
    except KeyboardInterrupt:
        tell_going_on(runs[len(ended) :])
        raise
    return ended
