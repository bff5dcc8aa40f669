"""The command that reads the audit trail: who did what."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from runs.client.errors import SUCCEEDED
from runs.client.options import AS_JSON, LIMIT, find_server
from runs.client.printing import NONE, format_time, print_json, print_line, print_table
from runs.client.server import MOST_ITEMS, Server


def read_trail(
    context: typer.Context,
    actor: Annotated[str | None, typer.Option(metavar="USER", help="Who did it.")] = None,
    action: Annotated[
        str | None, typer.Option(help="One action, or several with commas: run_started,runs_started.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="To what it was done: run, flow, user, apitoken and others.")] = None,
    key: Annotated[str | None, typer.Option("--id", metavar="NUMBER", help="To which of that kind.")] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="DAY", help="On this day or later, UTC.")] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="DAY", help="On this day or before, UTC.")] = None,
    after: Annotated[
        int | None,
        typer.Option(min=1, metavar="ENTRY", help="What followed on the entry of this number, the next ones first."),
    ] = None,
    limit: LIMIT = 20,
    as_json: AS_JSON = False,
) -> int:
    """Read who did what, the newest first; it takes a token of an administrator.

    With --after the entries that came next, the oldest of them first: so a script reads on from the last one that it
    has.
    """
    server = find_server(context)
    query = {"actor": actor, "action": action, "kind": kind, "id": key, "from": since, "to": until}
    if after is None:
        entries = list(server.list("trail", limit, **query))
    else:
        entries = _read_on(server, after, limit, query)
    if as_json:
        print_json(entries)
    elif not entries:
        print_line("There are no such entries.", is_error=True)
    else:
        print_table(
            ("ENTRY", "AT", "BY", "ADDRESS", "ACTION", "ABOUT", "DETAILS"), map(_make_row, entries), right=("ENTRY",)
        )
    return SUCCEEDED


def _read_on(server: Server, after: int, limit: int, query: dict[str, Any]) -> list[dict[str, Any]]:
    """Up to ``limit`` entries that followed on one, in the order in which they came."""
    found: list[dict[str, Any]] = []
    page = server.get("trail", **query, after=after, limit=min(limit, MOST_ITEMS))
    while True:
        found += reversed(page["items"])
        if len(found) >= limit or not page["previous"]:
            return found[:limit]
        page = server.get(f"trail?{urlsplit(page['previous']).query}")


def _make_row(entry: dict[str, Any]) -> tuple[Any, ...]:
    by = entry["actor"] or NONE
    about = entry["object_label"] or entry["object_id"]
    return (
        entry["id"],
        format_time(entry["at"]),
        f"{by} ({entry['token']})" if entry["token"] else by,
        entry["ip_address"] or NONE,
        entry["action"],
        f"{entry['object_kind']} {about}" if entry["object_kind"] else NONE,
        ", ".join(f"{name}: {_write(value)}" for name, value in entry["details"].items()) or NONE,
    )


def _write(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
