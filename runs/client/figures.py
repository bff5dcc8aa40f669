"""Commands about figures: what goes on now, how the runs of a flow went, and what everything used."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from runs.client.errors import SUCCEEDED, naming
from runs.client.options import AS_JSON, check_flow_name, find_server
from runs.client.printing import (
    NONE,
    format_cost,
    format_count,
    format_plural,
    format_seconds,
    print_json,
    print_line,
    print_table,
)

_FROM = Annotated[str | None, typer.Option("--from", metavar="DAY", help="The first day, UTC; 30 days if left out.")]
_TO = Annotated[str | None, typer.Option("--to", metavar="DAY", help="The last day, UTC; today if left out.")]
_VERSION = Annotated[int | None, typer.Option(min=1, help="A version of the flow.")]
_MODEL = Annotated[str | None, typer.Option(help="What this model answered.")]
_SIMULATED = Annotated[bool, typer.Option("--simulated", help="Runs that the simulated model answered instead.")]


def show_overview(context: typer.Context, simulated: _SIMULATED = False, as_json: AS_JSON = False) -> int:
    """Show what goes on now, and today (UTC) beside what is usual by this time."""
    found = find_server(context).get("statistics/overview", simulated="true" if simulated else None)
    if as_json:
        print_json(found)
        return SUCCEEDED
    queue, workers, today, usual = (found[name] for name in ("queue", "workers", "today", "usual"))
    waiting = [f"{queue[name]:,} {name}" for name in ("ready", "later", "waiting")]
    print_line(f"{format_plural(found['running']['count'], 'run')} under way; queued: {', '.join(waiting)}")
    silent = f", {workers['silent']:,} silent" if workers["silent"] else ""
    alive = format_plural(workers["alive"], "worker")
    print_line(f"{alive} alive{silent}; {workers['in_flight']:,} of {workers['slots']:,} places taken")
    if queue["is_unattended"]:
        print_line("Runs are ready, and no worker is alive that could take them.", is_error=True)
    print_line("")
    runs = today["runs"]
    rows = [
        ("Runs", format_count(runs["total"]), format_count(usual["runs"])),
        ("Passed", _share(runs["pass_rate"]), _share(usual["pass_rate"])),
        ("At once", _share(runs["first_attempt_pass_rate"]), _share(usual["first_attempt_pass_rate"])),
        ("Half within", format_seconds(runs["duration_p50"]), format_seconds(usual["duration_p50"])),
        ("95 % within", format_seconds(runs["duration_p95"]), format_seconds(usual["duration_p95"])),
        ("Tokens", format_count(today["tokens"]), format_count(usual["tokens"])),
        ("Cost", format_cost(today["cost"]), format_cost(usual["cost"])),
    ]
    columns = (f"TODAY ({today['day']})", "USUAL BY NOW")
    print_table(("", *columns), rows, right=columns)
    return SUCCEEDED


def show_statistics(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow.")],
    since: _FROM = None,
    until: _TO = None,
    version: _VERSION = None,
    model: _MODEL = None,
    simulated: _SIMULATED = False,
    audits: Annotated[bool, typer.Option("--audits", help="How often each audit fired, and was mended.")] = False,
    as_json: AS_JSON = False,
) -> int:
    """Show how the runs of a flow went: in all, by version, by model and by step; or its audits."""
    server = find_server(context)
    query = {"from": since, "to": until, "version": version, "simulated": "true" if simulated else None}
    path = f"flows/{check_flow_name(flow)}/statistics"
    with naming(f"flow “{flow}”"):
        # With audits, the server says that a model can’t be chosen.
        found = server.get(f"{path}/audits" if audits else path, **query, model=model)
    if as_json:
        print_json(found)
        return SUCCEEDED
    print_line(f"“{found['flow']}”, runs that ended from {found['from']} to {found['to']}", is_error=True)
    if audits:
        _print_audits(found["items"])
    else:
        _print_statistics(found)
    return SUCCEEDED


def _print_statistics(found: dict[str, Any]) -> None:
    groups = [
        ("All", found),
        *((f"Version {one['version']}" + (", live" if one["is_live"] else ""), one) for one in found["versions"]),
        *((_name_asked(one), one) for one in found["runs_by_model"]),
        *((one["model"] or "No model", one) for one in found["models"]),
        *((f"Step {one['step']}, {one['name']}", one) for one in found["by_step"]),
    ]
    rows = [
        (
            name,
            format_count(runs.get("total")),
            _share(runs.get("pass_rate") if runs else one["steps"]["pass_rate"]),
            _share(runs.get("first_attempt_pass_rate") if runs else one["steps"]["first_attempt_pass_rate"]),
            format_count(one["steps"]["attempts"]),
            format_seconds(runs.get("duration_p50")),
            format_count(one["tokens"]["total"]),
            format_cost(one["cost"]["total"]),
            format_cost(one["cost"]["per_accepted_output"]),
        )
        for name, one in groups
        for runs in (one["runs"] or {},)
    ]
    columns = ("", "RUNS", "PASSED", "AT ONCE", "ATTEMPTS", "HALF WITHIN", "TOKENS", "COST", "PER ACCEPTED OUTPUT")
    print_table(columns, rows, right=columns[1:])


def _name_asked(one: dict[str, Any]) -> str:
    if one["has_several"]:
        return "Asking several models"
    return f"Asking {one['model'] or 'no model'}"


def _print_audits(items: list[dict[str, Any]]) -> None:
    if not items:
        print_line("No audit has fired.", is_error=True)
        return
    rows = [
        (
            one["step"],
            one["audit"] or one["code"],
            format_count(one["fired"]),
            format_count(one["retried"]),
            _share(one["fixed_rate"]),
            format_count(one["retry_tokens"]),
            format_cost(one["retry_cost"]),
        )
        for one in items
    ]
    columns = ("STEP", "AUDIT", "FIRED", "RETRIED", "FIXED", "RETRY TOKENS", "RETRY COST")
    print_table(columns, rows, right=tuple(name for name in columns if name != "AUDIT"))


def show_usage(
    context: typer.Context,
    group_by: Annotated[
        str, typer.Option("--by", metavar="WHAT", help="flow, version, model, day, or several with commas.")
    ] = "flow",
    since: _FROM = None,
    until: _TO = None,
    flow: Annotated[str | None, typer.Option(help="Only runs of this flow.")] = None,
    version: _VERSION = None,
    model: _MODEL = None,
    simulated: _SIMULATED = False,
    as_json: AS_JSON = False,
) -> int:
    """Show tokens and cost, told apart by flow, version, model or day."""
    query = {
        "group_by": group_by,
        "from": since,
        "to": until,
        "flow": flow,
        "version": version,
        "model": model,
        "simulated": "true" if simulated else None,
    }
    found = find_server(context).get("statistics/usage", **query)
    if as_json:
        print_json(found)
        return SUCCEEDED
    print_line(f"Runs that ended from {found['from']} to {found['to']}", is_error=True)
    if not found["items"]:
        print_line("There were none.", is_error=True)
        return SUCCEEDED
    names = found["group_by"]
    rows = [
        (
            *(NONE if item.get(name) is None else str(item[name]) for name in names),
            format_count(item["runs"]),
            format_count(item["attempts"]),
            *(format_count(item["usage"][name]) for name in ("prompt", "cached", "completion", "total")),
            format_cost(item["usage"]["cost"]),
        )
        for item in found["items"]
    ]
    figures = ("RUNS", "ATTEMPTS", "TOKENS IN", "CACHED", "TOKENS OUT", "TOKENS", "COST")
    print_table((*(name.upper() for name in names), *figures), rows, right=figures)
    return SUCCEEDED


def _share(rate: float | None) -> str:
    """A rate as people read it; nearly all are not all."""
    if rate is None:
        return NONE
    percent = round(rate * 100, 1)
    return "over 99.9 %" if percent == 100 and rate < 1 else f"{percent:g} %"
