"""What many commands take, and where they find the server."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from runs.client.errors import ClientError
from runs.client.server import Server

AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON as the API gives it.")]
LIMIT = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
RUN_ID = Annotated[int, typer.Argument(metavar="RUN", min=1, help="The number of the run.")]
RUN_IDS = Annotated[list[int] | None, typer.Argument(metavar="RUN", min=1, help="Numbers of runs.")]
YES = Annotated[bool, typer.Option("--yes", "-y", help="Don’t ask; needed where nobody can be asked.")]
MAX_VIEWS = 100_000
"""Saved views that are searched for a name."""


def _take(kind: Any, help: str, *names: str, metavar: str | None = None, least: int | None = None) -> Any:
    return Annotated[kind | None, typer.Option(*names, help=help, metavar=metavar, min=least)]


_VIEW = _take(str, "The filters of this saved view; those named beside it count instead of its own.", metavar="NAME")
_FILTERS: dict[str, tuple[str, Any]] = {
    "search": ("q", _take(str, "Words in inputs, outputs and issues.", "--search", "-q")),
    "flow": ("flow", _take(str, "The name of a flow.")),
    "version": ("version", _take(int, "A version of that flow.", least=1)),
    "status": ("status", _take(str, "One status, or several with commas: failed,errored.")),
    "severity": ("severity", _take(str, "With an issue of at least this severity.")),
    "audit": ("audit", _take(str, "With an issue that this audit found.")),
    "code": ("code", _take(str, "With an issue of this code.")),
    "model": ("model", _take(str, "That asked this model.")),
    "label": ("label", _take(str, "With this label.")),
    "since": ("from", _take(str, "Created on this day or later.", "--from", metavar="DAY")),
    "until": ("to", _take(str, "Created on this day or before.", "--to", metavar="DAY")),
    "cost": ("cost", _take(str, "That cost more.", metavar="USD")),
    "tokens": ("tokens", _take(int, "That used more tokens.")),
    "by": ("by", _take(str, "Started by this user.", metavar="USER")),
}
"""Filters of runs: by the name in Python, that of the API, and the option."""


def with_filters(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that choose runs; it gets those that were given as ``filters``, by the API's names."""

    @wraps(command)
    def choose(**values: Any) -> int:
        wanted = values.pop("view")
        given = {name: values.pop(own) for own, (name, _) in _FILTERS.items()}
        filters = {name: value for name, value in given.items() if value is not None}
        if wanted is not None:
            filters = _join_filters(_fetch_view(find_server(values["context"]), wanted), filters)
        return command(**values, filters=filters)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "filters"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in [*((name, kind) for name, (_, kind) in _FILTERS.items()), ("view", _VIEW)]
    ]
    found = signature.replace(parameters=[*own, *options])
    choose.__signature__ = found  # type: ignore[attr-defined]  # where inspect looks for it
    return choose


def _fetch_view(server: Server, wanted: str) -> dict[str, Any]:
    """The saved view of that name, or else of that number. Raises ``ClientError`` if there is none or several."""
    views = list(server.list("saved-views", MAX_VIEWS))
    found = [view for view in views if view["name"] == wanted] or [view for view in views if str(view["id"]) == wanted]
    if not found:
        raise ClientError(f"There is no saved view “{wanted[:100]}”.")
    if len(found) > 1:
        listed = ", ".join(f"{view['id']} of {view['created_by']}" for view in found)
        raise ClientError(f"{len(found):,} saved views are called “{wanted}”; name one by its number: {listed}.")
    return found[0]


def _join_filters(view: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of a view, with those that are ``given`` in their place, as the addresses of lists have them."""
    kept = dict(view["filters"])
    if "flow" in given:
        # Versions are counted by flow.
        kept.pop("version", None)
    return {name: ",".join(value) if isinstance(value, list) else value for name, value in {**kept, **given}.items()}


def check_flow_name(name: str) -> str:
    """The name of a flow, which becomes part of an address, or a file’s. Raises ``ClientError`` if it can be none."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", name):
        raise ClientError(f"“{name[:40]}” can’t be the name of a flow: letters, digits, - and _ can be in it.")
    return name


def find_server(context: typer.Context) -> Server:
    """The server that the command was told of. Raises ``ClientError`` without a token."""
    return Server.from_environment(context.obj)
