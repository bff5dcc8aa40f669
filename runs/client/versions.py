"""Commands about the versions of a flow: list, read and compare them, and make one live."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from runs.client.errors import SUCCEEDED, ClientError, naming
from runs.client.flows import YAML, find_flow
from runs.client.options import AS_JSON, LIMIT, check_flow_name, find_server
from runs.client.printing import NONE, clean, format_time, print_json, print_line, print_table, write_text
from runs.client.server import Server
from runs.client.version_changes import print_changes

commands = typer.Typer(help="List, read and compare the versions of a flow, and make one live.", no_args_is_help=True)

_FLOW = Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow.")]
_NUMBER = Annotated[int, typer.Argument(metavar="VERSION", min=1, help="The number of the version.")]
_LATEST = Annotated[int | None, typer.Argument(metavar="VERSION", min=1, help="Its number; the latest if left out.")]


@commands.command("list")
def list_versions(context: typer.Context, flow: _FLOW, limit: LIMIT = 20, as_json: AS_JSON = False) -> int:
    """List the versions of a flow, the newest first."""
    with naming(f"flow “{flow}”"):
        versions = list(find_server(context).list(f"flows/{check_flow_name(flow)}/versions", limit))
    if as_json:
        print_json(versions)
    elif not versions:
        print_line(f"“{flow}” has no versions.", is_error=True)
    else:
        rows = [
            (
                version["number"],
                "live" if version["is_live"] else "",
                format_time(version["created_at"]),
                version["created_by"] or NONE,
                version["note"] or NONE,
            )
            for version in versions
        ]
        print_table(("VERSION", "", "CREATED", "BY", "NOTE"), rows, right=("VERSION",))
    return SUCCEEDED


@commands.command("show")
def show_version(context: typer.Context, flow: _FLOW, number: _LATEST = None, as_json: AS_JSON = False) -> int:
    """Print a version as a flow file; --json adds who made it, and when."""
    server = find_server(context)
    number = number or _find_latest(server, flow)
    path = f"flows/{check_flow_name(flow)}/versions/{number}"
    with naming(_call(flow, number)):
        if as_json:
            print_json(server.get(path))
            return SUCCEEDED
        text = server.send("GET", path, headers={"Accept": YAML}).text
    write_text(clean(text) if sys.stdout.isatty() else text)
    return SUCCEEDED


@commands.command("diff")
def compare_versions(
    context: typer.Context,
    flow: _FLOW,
    number: _LATEST = None,
    against: Annotated[
        str | None, typer.Option(metavar="VERSION", help="A number, or live; the version before if left out.")
    ] = None,
    as_json: AS_JSON = False,
) -> int:
    """Show what changed on the way to a version."""
    server = find_server(context)
    number = number or _find_latest(server, flow)
    with naming(_call(flow, number)):
        found = server.get(f"flows/{check_flow_name(flow)}/versions/{number}/diff", against=against)
    if as_json:
        print_json(found)
    else:
        print_line(f"“{found['flow']}”, version {found['from']} → {found['to']}: {found['summary']}")
        print_changes(found["changes"])
    return SUCCEEDED


@commands.command("make-live")
def make_live(context: typer.Context, flow: _FLOW, number: _NUMBER, as_json: AS_JSON = False) -> int:
    """Let new runs use a version. Runs under way keep theirs."""
    with naming(_call(flow, number)):
        found = find_server(context).ask("POST", f"flows/{check_flow_name(flow)}/versions/{number}/make-live")
    if as_json:
        print_json(found)
    else:
        print_line(f"“{found['name']}”: version {found['live_version']} is live.")
    return SUCCEEDED


def _find_latest(server: Server, flow: str) -> int:
    number: int | None = find_flow(server, flow)["latest_version"]
    if number is None:
        raise ClientError(f"“{flow}” has no version yet.")
    return number


def _call(flow: str, number: int) -> str:
    return f"version {number} of a flow “{flow}”"
