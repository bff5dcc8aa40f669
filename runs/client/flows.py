"""Commands about flows: list them, keep them as files beside other code, their settings and their versions."""

from __future__ import annotations

import re
import sys
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any

import typer

from runs.client import options, terminal
from runs.client.server import ClientError, Server, UnavailableError
from runs.client.terminal import NONE, format_time, print_json, print_line

YAML = "application/yaml"
FLOW_COLUMNS: terminal.Columns = {
    "FLOW": lambda flow: flow["name"],
    "TITLE": lambda flow: flow["title"],
    "LIVE": lambda flow: flow["live_version"] or NONE,
    "LATEST": lambda flow: flow["latest_version"] or NONE,
    "CHANGED": lambda flow: format_time(flow["updated_at"]),
}
VERSION_COLUMNS: terminal.Columns = {
    "VERSION": lambda version: version["number"],
    "": lambda version: "live" if version["is_live"] else "",
    "CREATED": lambda version: format_time(version["created_at"]),
    "BY": lambda version: version["created_by"] or NONE,
    "NOTE": lambda version: version["note"] or NONE,
}
NO_SETTINGS = ("flow", "retention", "updated_at")
"""What an answer holds besides the settings."""
TEXT_SETTINGS = ("total_cost_budget", "budget_period")

commands = typer.Typer(help="List flows, and keep them as files beside other code.", no_args_is_help=True)
version_commands = typer.Typer(
    help="List, read and compare versions of a flow, and make one live.", no_args_is_help=True
)

_NUMBER = Annotated[int, typer.Argument(metavar="VERSION", min=1, help="The number of the version.")]
_LATEST = Annotated[int | None, typer.Argument(metavar="VERSION", min=1, help="Its number; the latest if left out.")]


@commands.command("list")
def list_flows(
    context: typer.Context,
    archived: Annotated[bool, typer.Option("--archived", help="List archived flows instead.")] = False,
    as_json: options.AS_JSON = False,
) -> None:
    """List flows by name."""
    flows = list(options.connect(context).iterate("flows", archived="true" if archived else None))
    terminal.print_items(flows, FLOW_COLUMNS, as_json=as_json)


@commands.command("pull")
def pull_flows(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="FLOW", help="Names; all but archived ones.")] = None,
    folder: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the files are written.")] = Path(),
    live: Annotated[bool, typer.Option("--live", help="The live versions, not the latest ones.")] = False,
    as_json: options.AS_JSON = False,
) -> None:
    """Write flows into files, NAME.yaml each."""
    server = options.connect(context)
    flows = [_fetch_flow(server, name) for name in names] if names else server.iterate("flows")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for flow in flows:
        name, number = _validate_name(flow["name"]), flow["live_version" if live else "latest_version"]
        if number is None:
            print_line(f"“{name}” has no such version; it is skipped.", is_error=True)
            continue
        path = folder / f"{name}.yaml"
        content = _fetch_version(server, name, number, accept=YAML).content
        has_changed = not path.exists() or path.read_bytes() != content
        if has_changed:
            path.write_bytes(content)
        written.append({"file": str(path), "flow": name, "version": number, "has_changed": has_changed})
        if not as_json:
            print_line(f"{path}: version {number}" + ("" if has_changed else ", as it was"))
    if as_json:
        print_json(written)


@commands.command("push")
def push_flows(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Flow files, in YAML or JSON.")],
    live: Annotated[bool, typer.Option("--live", help="Let new runs use them at once.")] = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="A note on the new versions.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the files; store nothing.")] = False,
    as_json: options.AS_JSON = False,
) -> None:
    """Store flow files as new versions. A file that says the same as the latest version changes nothing.

    With --json there is what the API says of each file; mistakes go to standard error.
    """
    server = options.connect(context)
    contents = {path: path.read_bytes() for path in files}
    checked, problems = {}, []
    for path, content in contents.items():
        try:
            checked[path] = _send_file(server, "POST", "flows/validate", content)
        except UnavailableError:
            raise
        except ClientError as error:
            problems += [f"{path}: {line}" for line in error.details or (error.message,)]
    if check and not as_json:
        for path, found in checked.items():
            number = found["would_make_version"]
            print_line(f"{path}: {f'would become version {number}' if number else 'nothing would change'}")
            for warning in found["warnings"]:
                print_line(f"  {warning['pointer']}: {warning['detail']}")
    if problems:
        # A mistake in one file keeps all others from being stored, too.
        raise ClientError("There are mistakes." if check else "The files have problems; nothing was stored.", problems)
    results = checked
    if not check:
        params = {"make_live": "true" if live else None, "note": note}
        for path, content in contents.items():
            flow = _send_file(server, "PUT", f"flows/{checked[path]['name']}", content, params=params)
            results[path] = flow
            if not as_json:
                print_line(f"{path}: {_describe_stored(flow)}")
    if as_json:
        print_json([{"file": str(path), **found} for path, found in results.items()])


def _send_file(server: Server, method: str, path: str, content: bytes, **request: Any) -> Any:
    return server.send(method, path, content=content, headers={"Content-Type": YAML}, **request).json()


def _describe_stored(flow: dict[str, Any]) -> str:
    latest, made = flow["latest_version"], flow["made_version"]
    state = "live" if flow["live_version"] == latest else f"version {flow['live_version']} is live"
    return f"stored as version {made}, {state}" if made else f"unchanged, as version {latest}, {state}"


@commands.command("settings")
def change_settings(
    context: typer.Context,
    flow: options.FLOW,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="What is set; NAME=none unsets it. All others stay."),
    ] = None,
    as_json: options.AS_JSON = False,
) -> None:
    """Show or change the settings of a flow that no flow file holds: runs in flight, budgets, retention.

    A change that another user makes at the same time is not overwritten.
    """
    values = dict(_parse_change(change) for change in changes or ())
    server = options.connect(context)
    path = f"flows/{_validate_name(flow)}/settings"
    answer = server.send("GET", path, name=f"flow “{flow}”")
    before = after = answer.json()
    if values:
        after = server.send("PATCH", path, json=values, headers={"If-Match": answer.headers.get("ETag", "*")}).json()
    if as_json:
        print_json(after)
        return
    for name in (name for name in after if name not in NO_SETTINGS):
        old, new = (NONE if settings[name] is None else settings[name] for settings in (before, after))
        if old != new:
            print_line(f"{name}: {old} → {new}")
        elif not values:
            print_line(f"{name}: {new}")


def _parse_change(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not re.fullmatch(r"[a-z_]+", name):
        raise ClientError(f"“{text}” is not a change; it must be like keep_days=30, or keep_days=none.")
    if value == "none":
        return name, None
    is_number = re.fullmatch(r"-?[0-9]{1,18}", value) and name not in TEXT_SETTINGS
    return name, int(value) if is_number else value


@version_commands.command("list")
def list_versions(
    context: typer.Context, flow: options.FLOW, limit: options.LIMIT = 20, as_json: options.AS_JSON = False
) -> None:
    """List the versions of a flow, the newest first."""
    path = f"flows/{_validate_name(flow)}/versions"
    versions = list(options.connect(context).iterate(path, limit, name=f"flow “{flow}”"))
    terminal.print_items(versions, VERSION_COLUMNS, as_json=as_json)


@version_commands.command("show")
def show_version(
    context: typer.Context, flow: options.FLOW, number: _LATEST = None, as_json: options.AS_JSON = False
) -> None:
    """Print a version as a flow file; --json adds who made it, and when."""
    server = options.connect(context)
    number = number or _fetch_latest_number(server, flow)
    if as_json:
        print_json(_fetch_version(server, flow, number).json())
    else:
        text = _fetch_version(server, flow, number, accept=YAML).text
        terminal.write(terminal.clean(text) if sys.stdout.isatty() else text)


@version_commands.command("diff")
def compare_versions(
    context: typer.Context,
    flow: options.FLOW,
    number: _LATEST = None,
    against: Annotated[
        str | None, typer.Option(metavar="VERSION", help="A number, or live; the version before if left out.")
    ] = None,
    as_json: options.AS_JSON = False,
) -> None:
    """Show what a version changed, as a diff of flow files."""
    server = options.connect(context)
    number = number or _fetch_latest_number(server, flow)
    found = _fetch_version(server, flow, number, "/diff", params={"against": against}).json()
    if as_json:
        print_json(found)
        return
    old, new = (_fetch_version(server, flow, found[end], accept=YAML).text.splitlines() for end in ("from", "to"))
    print_line(f"“{flow}”, version {found['from']} → {found['to']}: {found['summary']}")
    for line in unified_diff(old, new, f"version {found['from']}", f"version {found['to']}", lineterm=""):
        print_line(line, style={"+": "green", "-": "red", "@": "cyan"}.get(line[0], ""))


@version_commands.command("make-live")
def make_live(context: typer.Context, flow: options.FLOW, number: _NUMBER, as_json: options.AS_JSON = False) -> None:
    """Let new runs use a version. Runs under way keep theirs."""
    found = _fetch_version(options.connect(context), flow, number, "/make-live", method="POST").json()
    terminal.print_result(found, f"“{found['name']}”: version {found['live_version']} is live.", as_json=as_json)


def _validate_name(name: str) -> str:
    """The name of a flow, which is part of addresses and of names of files. Raises ``ClientError`` for any other."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", name):
        raise ClientError(f"“{name[:40]}” is not a flow name. It can have letters, digits, - and _.")
    return name


def _fetch_flow(server: Server, name: str) -> Any:
    return server.get(f"flows/{_validate_name(name)}", name=f"flow “{name}”")


def _fetch_latest_number(server: Server, flow: str) -> int:
    number: int | None = _fetch_flow(server, flow)["latest_version"]
    if number is None:
        raise ClientError(f"“{flow}” has no version yet.")
    return number


def _fetch_version(server: Server, flow: str, number: int, part: str = "", method: str = "GET", **request: Any) -> Any:
    path = f"flows/{_validate_name(flow)}/versions/{number}{part}"
    return server.send(method, path, name=f"version {number} of a flow “{flow}”", **request)
