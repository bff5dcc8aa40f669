"""Options that several commands take, the connection they ask for, and JSON from options and files."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from runs.client.server import ClientError, Server

FLOW = Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow.")]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON as the API gives it.")]
LIMIT = Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number.")]
RUN_IDS = Annotated[list[int] | None, typer.Argument(metavar="RUN", min=1, help="Numbers of runs.")]
WAIT = Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end, which gives the exit status.")]
ALL = Annotated[bool, typer.Option("--all", help="All runs, without any filter.")]
YES = Annotated[bool, typer.Option("--yes", "-y", help="Don’t ask for confirmation; required without a terminal.")]


def _option(kind: Any, help: str, *names: str, **more: Any) -> Any:
    return Annotated[kind | None, typer.Option(*names, help=help, **more)]


RUN_OPTIONS = {
    "version": _option(int, "The number of a version; the live one if left out.", min=1),
    "labels": _option(list[str], "A label; may be repeated.", "--label", metavar="TEXT"),
    "priority": _option(str, "high, normal or low."),
    "token_budget": _option(int, "Maximum tokens of a run."),
    "cost_budget": _option(str, "Maximum cost of a run.", metavar="USD"),
    "time_limit": _option(int, "Time limit of a run.", metavar="SECONDS"),
    "idempotency_key": _option(
        str, "Repeating a request with the same key within 24 hours starts no further runs.", metavar="TEXT"
    ),
}
FILTERS = {
    "q": _option(str, "Words in inputs, outputs and issues.", "--search", "-q"),
    "flow": _option(str, "The name of a flow."),
    "version": _option(int, "A version of that flow.", min=1),
    "status": _option(str, "One status, or several with commas: failed,errored."),
    "reason": _option(str, "Ended for this reason, such as step_failed."),
    "severity": _option(str, "With an issue of at least this severity."),
    "audit": _option(str, "With an issue that this audit found."),
    "code": _option(str, "With an issue of this code."),
    "model": _option(str, "That asked this model."),
    "label": _option(list[str], "With this label; may be repeated."),
    "from_": _option(str, "Created at this day or time or later.", "--from", metavar="TIME"),
    "to": _option(str, "Created at this day or time or before.", "--to", metavar="TIME"),
    "cost": _option(str, "That cost more.", metavar="USD"),
    "tokens": _option(int, "That used more tokens."),
    "accepted": _option(int, "In which at least this many steps accepted an output that did not pass.", min=1),
    "by": _option(str, "Started by this user.", metavar="USER"),
    "view": _option(str, "The filters of a saved view; filters beside it replace its own.", metavar="NAME"),
}
"""Options by the API's name, with “_” behind it where that is a keyword of Python."""


Command = Callable[..., int | None]
"""Gives an exit status, or none for success."""


def with_options(name: str, options: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Give a command these options; its parameter ``name`` gets those that are used, by the API's names.

    Typer reads a command's options off its signature, so they are written there.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(**values: Any) -> int | None:
            given = {option.rstrip("_"): values.pop(option) for option in options}
            return command(**values, **{name: {key: value for key, value in given.items() if value not in (None, [])}})

        signature = inspect.signature(command, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        kind = inspect.Parameter.KEYWORD_ONLY
        added = [inspect.Parameter(key, kind, default=None, annotation=option) for key, option in options.items()]
        call.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]  # inspect's
        return call

    return decorate


def apply_view(server: Server, filters: dict[str, Any]) -> dict[str, Any]:
    """The filters on top of those of the saved view that they name. Raises ``ClientError`` for none or several."""
    filters = dict(filters)
    if (wanted := filters.pop("view", None)) is None:
        return filters
    found = [view for view in server.iterate("saved-views") if wanted in {view["name"], str(view["id"])}]
    if not found:
        raise ClientError(f"No saved view is called “{wanted}”.")
    if len(found) > 1:
        listed = ", ".join(f"{view['id']} of {view['created_by']}" for view in found)
        raise ClientError(f"{len(found)} saved views are called “{wanted}”; name one by its number: {listed}.")
    own = dict(found[0]["filters"])
    if "status" in own:
        own["status"] = ",".join(own["status"])
    if "flow" in filters:
        # Each flow counts its own versions.
        own.pop("version", None)
    return own | filters


def connect(context: typer.Context) -> Server:
    """The server of ``--url`` with the token of the environment. Raises ``ClientError`` without one."""
    token = os.environ.get("TOOLFLOW_TOKEN", "").strip()
    if not token:
        raise ClientError("TOOLFLOW_TOKEN is not set. Create a token on the page “API tokens” and export it.")
    return Server(context.obj, token)


def read_text(source: str) -> tuple[str, str]:
    """The text of a file, or of standard input for “-”, and what to call it. Raises ``ClientError``."""
    try:
        if source == "-":
            return sys.stdin.read(), "Standard input"
        return Path(source).read_text(encoding="utf-8-sig"), source
    except OSError as error:
        raise ClientError(f"{source} can’t be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ClientError(f"{source} is not UTF-8: byte {error.start} can’t be read.") from None


def read_object(source: str, name: str) -> dict[str, Any]:
    """The object that an option gives as “@file.json”, “-” or JSON itself, then called ``name``."""
    if source == "-" or source.startswith("@"):
        source, name = read_text(source.removeprefix("@"))
    return parse_object(source, name)


def parse_object(text: str, name: str) -> dict[str, Any]:
    """The JSON object in a text of this name. Raises ``ClientError``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"{name}: {error}.") from None
    if not isinstance(value, dict):
        raise ClientError(f"{name}: A JSON object is expected.")
    return value
