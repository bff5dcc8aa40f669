"""Commands about flows: list them, and keep them as files beside other code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from runs.client.errors import SUCCEEDED, ClientError, UnreachableError, naming
from runs.client.printing import NONE, format_time, print_json, print_line, print_table
from runs.client.runs import AS_JSON, find_server
from runs.client.server import Server

YAML = "application/yaml"
ALL = 100_000
"""More flows than any installation has."""

commands = typer.Typer(help="List flows, and keep them as files beside other code.", no_args_is_help=True)


@commands.command("list")
def list_flows(
    context: typer.Context,
    archived: Annotated[bool, typer.Option("--archived", help="The archived ones instead.")] = False,
    as_json: AS_JSON = False,
) -> int:
    """List flows by name."""
    flows = list(find_server(context).list("flows", ALL, archived="true" if archived else None))
    if as_json:
        print_json(flows)
    elif not flows:
        print_line("There are no such flows.", is_error=True)
    else:
        rows = [
            (
                flow["name"],
                flow["title"],
                flow["live_version"] or NONE,
                flow["latest_version"] or NONE,
                format_time(flow["updated_at"]),
            )
            for flow in flows
        ]
        print_table(("FLOW", "TITLE", "LIVE", "LATEST", "CHANGED"), rows, right=("LIVE", "LATEST"))
    return SUCCEEDED


@commands.command("pull")
def pull_flows(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[FLOW…]", help="Names; all flows if left out.")] = None,
    folder: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the files are written.")] = Path(),
    live: Annotated[bool, typer.Option("--live", help="The live versions, not the latest ones.")] = False,
) -> int:
    """Write flows into files, NAME.yaml each."""
    server = find_server(context)
    wanted = "live_version" if live else "latest_version"
    if names:
        flows = [_find(server, _check_name(name)) for name in names]
    else:
        flows = list(server.list("flows", ALL))
    for flow in flows:
        number, path = flow[wanted], folder / f"{_check_name(flow['name'])}.yaml"
        if number is None:
            print_line(f"“{flow['name']}” has no such version; it is left out.", is_error=True)
            continue
        answer = server.ask("GET", f"flows/{flow['name']}/versions/{number}", headers={"Accept": YAML})
        is_new = _write(path, answer.content)
        print_line(f"{path}: version {number}" + ("" if is_new else ", as it was"))
    return SUCCEEDED


def _find(server: Server, name: str) -> dict[str, Any]:
    with naming(f"flow “{name}”"):
        found: dict[str, Any] = server.get(f"flows/{name}")
    return found


@commands.command("push")
def push_flows(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Flow files, in YAML or JSON.")],
    live: Annotated[bool, typer.Option("--live", help="Let new runs use them at once.")] = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="What the new versions bring.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether they are right; store nothing.")] = False,
) -> int:
    """Make flows what files say. A file that says what is there already changes nothing."""
    server = find_server(context)
    sources = [(path, _read(path)) for path in files]
    # A mistake in one file keeps all others from being stored, too.
    findings, problems = _check_all(server, sources)
    if check:
        for path, said in findings.items():
            print_line(f"{path}: {said}")
    if problems:
        raise ClientError("There are mistakes." if check else "There are mistakes; nothing is stored.", problems)
    for path, content in () if check else sources:
        try:
            said = _store(server, path, content, note, is_live=live)
        except ClientError as error:
            raise ClientError(f"{path}: {error.sentence}", error.details) from None
        print_line(f"{path}: {said}")
    return SUCCEEDED


def _check_all(server: Server, sources: list[tuple[Path, bytes]]) -> tuple[dict[Path, str], list[str]]:
    """What would become of each file, and what is wrong with the others."""
    findings, problems = {}, []
    for path, content in sources:
        try:
            findings[path] = _check(server, content)
        except UnreachableError:
            raise
        except ClientError as error:
            problems += [f"{path}: {line}" for line in error.details or (error.sentence,)]
    return findings, problems


def _check(server: Server, content: bytes) -> str:
    found = server.ask("POST", "flows/validate", content=content, headers={"Content-Type": YAML}).json()
    number = found["would_make_version"]
    warnings = "".join(f"\n  {warning['pointer']}: {warning['detail']}" for warning in found["warnings"])
    return ("nothing would change" if number is None else f"would become version {number}") + warnings


def _store(server: Server, path: Path, content: bytes, note: str | None, *, is_live: bool) -> str:
    name = _find_name(path, content)
    query = {"make_live": "true" if is_live else None, "note": note}
    headers = {"Content-Type": YAML}
    flow: dict[str, Any] = server.ask("PUT", f"flows/{name}", query=query, content=content, headers=headers).json()
    made = flow["made_version"]
    said = f"stored as version {made}" if made else f"nothing new, version {flow['latest_version']} says the same"
    return said + (", live" if flow["live_version"] == flow["latest_version"] else f"; {flow['live_version']} is live")


def _find_name(path: Path, content: bytes) -> str:
    """The name of the flow in a file. What is wrong besides is for the server to tell."""
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError):
        document = None
    name = document.get("name") if isinstance(document, dict) else None
    return _check_name(name if isinstance(name, str) else path.stem)


def _check_name(name: str) -> str:
    # It becomes part of an address, and the name of a file.
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", name):
        raise ClientError(f"“{name[:40]}” can’t be the name of a flow: letters, digits, - and _ can be in it.")
    return name


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ClientError(f"{path} can’t be read: {error.strerror}.") from None


def _write(path: Path, content: bytes) -> bool:
    """Write a file; False if it says the same already."""
    try:
        if path.exists() and path.read_bytes() == content:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise ClientError(f"{path} can’t be written: {error.strerror}.") from None
    return True
