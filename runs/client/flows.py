"""Commands about flows: list them, and keep them as files beside other code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from runs.client.errors import SUCCEEDED, ClientError, UnreachableError, naming
from runs.client.flow_settings import change_settings
from runs.client.options import AS_JSON, check_flow_name, find_server
from runs.client.printing import NONE, format_time, print_json, print_line, print_table
from runs.client.server import Server

YAML = "application/yaml"
ALL = 100_000
"""More flows than any installation has."""

Source = tuple[Path, bytes]
"""A file and what it says."""
Answer = tuple[Path, dict[str, Any]]
"""A file and what the server says of it."""

commands = typer.Typer(help="List flows, and keep them as files beside other code.", no_args_is_help=True)
commands.command("settings")(change_settings)


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
    names: Annotated[list[str] | None, typer.Argument(metavar="FLOW", help="Names; all flows if left out.")] = None,
    folder: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the files are written.")] = Path(),
    live: Annotated[bool, typer.Option("--live", help="The live versions, not the latest ones.")] = False,
    as_json: AS_JSON = False,
) -> int:
    """Write flows into files, NAME.yaml each."""
    server = find_server(context)
    wanted = "live_version" if live else "latest_version"
    if names:
        flows = [find_flow(server, name) for name in names]
    else:
        flows = list(server.list("flows", ALL))
    written = []
    for flow in flows:
        number, path = flow[wanted], folder / f"{check_flow_name(flow['name'])}.yaml"
        if number is None:
            print_line(f"“{flow['name']}” has no such version; it is left out.", is_error=True)
            continue
        answer = server.send("GET", f"flows/{flow['name']}/versions/{number}", headers={"Accept": YAML})
        has_changed = _write(path, answer.content)
        written.append({"file": str(path), "flow": flow["name"], "version": number, "has_changed": has_changed})
        if not as_json:
            print_line(f"{path}: version {number}" + ("" if has_changed else ", as it was"))
    if as_json:
        print_json(written)
    return SUCCEEDED


def find_flow(server: Server, name: str) -> dict[str, Any]:
    """The document of the flow of that name. Raises ``ClientError`` if there is none."""
    path = f"flows/{check_flow_name(name)}"
    with naming(f"flow “{name}”"):
        return server.get(path)


@commands.command("push")
def push_flows(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Flow files, in YAML or JSON.")],
    live: Annotated[bool, typer.Option("--live", help="Let new runs use them at once.")] = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="What the new versions bring.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether they are right; store nothing.")] = False,
    as_json: AS_JSON = False,
) -> int:
    """Make flows what files say. A file that says what is there already changes nothing.

    With --json there is what the API says of each file, beside its name; mistakes stand on standard error.
    """
    server = find_server(context)
    sources = [(path, _read(path)) for path in files]
    # A mistake in one file keeps all others from being stored, too.
    findings, problems = _check_all(server, sources)
    if check:
        for path, found in () if as_json else findings:
            print_line(f"{path}: {_describe_check(found)}")
        if as_json:
            _print_answers(findings)
    if problems:
        raise ClientError("There are mistakes." if check else "There are mistakes; nothing is stored.", problems)
    if not check:
        _store_all(server, sources, note, is_live=live, as_json=as_json)
    return SUCCEEDED


def _print_answers(answers: list[Answer]) -> None:
    print_json([{"file": str(path), **answer} for path, answer in answers])


def _check_all(server: Server, sources: list[Source]) -> tuple[list[Answer], list[str]]:
    """What would become of each file, and what is wrong with the others."""
    findings: list[Answer] = []
    problems: list[str] = []
    for path, content in sources:
        try:
            found = server.ask("POST", "flows/validate", content=content, headers={"Content-Type": YAML})
            findings.append((path, found))
        except UnreachableError:
            raise
        except ClientError as error:
            problems += [f"{path}: {line}" for line in error.details or (error.sentence,)]
    return findings, problems


def _describe_check(found: dict[str, Any]) -> str:
    number = found["would_make_version"]
    warnings = "".join(f"\n  {warning['pointer']}: {warning['detail']}" for warning in found["warnings"])
    return ("nothing would change" if number is None else f"would become version {number}") + warnings


def _store_all(server: Server, sources: list[Source], note: str | None, *, is_live: bool, as_json: bool) -> None:
    """Store one file after the other; what is stored is told, also if another one can’t be."""
    query = {"make_live": "true" if is_live else None, "note": note}
    stored: list[Answer] = []
    try:
        for path, content in sources:
            try:
                place = f"flows/{_find_name(path, content)}"
                flow = server.ask("PUT", place, query=query, content=content, headers={"Content-Type": YAML})
            except ClientError as error:
                raise ClientError(f"{path}: {error.sentence}", error.details) from None
            stored.append((path, flow))
            if not as_json:
                print_line(f"{path}: {_describe_stored(flow)}")
    finally:
        if as_json:
            _print_answers(stored)


def _describe_stored(flow: dict[str, Any]) -> str:
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
    return check_flow_name(name if isinstance(name, str) else path.stem)


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
