"""The command about how an installation runs a flow: what no flow file holds."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from runs.client.errors import SUCCEEDED, ClientError, naming
from runs.client.options import AS_JSON, check_flow_name, find_server
from runs.client.printing import NONE, paint, print_json, print_line, print_table

TAKEN_AWAY = "none"
_TOLD = ("flow", "retention", "updated_at")
"""What an answer holds besides the settings."""
_TEXTS = ("total_cost_budget", "webhook_url", "budget_period")


def change_settings(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="What is set; NAME=none takes it away. All others stay."),
    ] = None,
    as_json: AS_JSON = False,
) -> int:
    """Show the settings of a flow, or change them: its webhook, runs in flight, budgets of all runs, retention.

    None of that is in the flow file. Somebody else’s change in the same moment is not overwritten.
    """
    server = find_server(context)
    values = dict(_read_change(change) for change in changes or ())
    path = f"flows/{check_flow_name(flow)}/settings"
    with naming(f"flow “{flow}”"):
        answer = server.send("GET", path)
        before = server.read(answer.content)
        if not values:
            _print_settings(before, as_json=as_json)
            return SUCCEEDED
        # What is told to have changed is what has changed.
        headers = {"If-Match": answer.headers.get("ETag", "*")}
        after = server.ask("PATCH", path, json=values, headers=headers)
    if as_json:
        print_json(after)
        return SUCCEEDED
    names = [name for name in after if name not in _TOLD and after[name] != before[name]]
    for name in names:
        print_line(f"{name}: {_write(before[name])} → {_write(after[name])}")
    if not names:
        print_line("Nothing has changed: that is how it was.", is_error=True)
    return SUCCEEDED


def _read_change(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not re.fullmatch(r"[a-z_]+", name):
        raise ClientError(f"“{text}” is no change; it should be like keep_days=30, or keep_days={TAKEN_AWAY}.")
    if value == TAKEN_AWAY:
        return name, None
    is_number = re.fullmatch(r"-?[0-9]{1,18}", value) and name not in _TEXTS
    return name, int(value) if is_number else value


def _print_settings(settings: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(settings)
        return
    rows = [(name, paint(_write(value), " ")) for name, value in settings.items() if name not in _TOLD]
    print_table(("SETTING", "VALUE"), rows)
    kept = settings["retention"]
    days = {name: "for ever" if kept[name] is None else f"{kept[name]:,} days" for name in kept}
    outputs = "as long" if kept["keep_outputs_days"] is None else days["keep_outputs_days"]
    print_line(f"In the end runs are kept {days['keep_days']}, and their outputs {outputs}.", is_error=True)


def _write(value: Any) -> str:
    return NONE if value is None else str(value)
