"""Commands about saved views: filters of runs that are kept under a name."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

import typer

from runs.client.chosen_view import ALL, find_view, join_filters, write_body
from runs.client.errors import SUCCEEDED, ClientError, NothingThereError
from runs.client.options import AS_JSON, find_server, with_filters
from runs.client.printing import format_time, print_json, print_line, print_table

commands = typer.Typer(help="Keep filters of runs under a name; --view NAME uses them.", no_args_is_help=True)


@commands.command("list")
def list_views(context: typer.Context, as_json: AS_JSON = False) -> int:
    """List your saved views and those that others share, the newest first."""
    views = list(find_server(context).list("saved-views", ALL))
    if as_json:
        print_json(views)
    elif not views:
        print_line("There are no saved views.", is_error=True)
    else:
        rows = [
            (
                view["id"],
                view["name"],
                view["created_by"],
                "yes" if view["is_shared"] else "no",
                format_time(view["created_at"]),
                _describe_filters(view),
            )
            for view in views
        ]
        print_table(("VIEW", "NAME", "BY", "SHARED", "CREATED", "FILTERS"), rows, right=("VIEW",))
    return SUCCEEDED


@commands.command("save")
@with_filters
def save_view(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called; each of your names once.")],
    *,
    shared: Annotated[bool, typer.Option("--shared", help="Everybody who may see runs sees it.")] = False,
    as_json: AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Keep filters of runs under a name, here and beside the list of runs on the pages."""
    if not filters:
        raise ClientError("A view has filters, such as --status failed: without any it is the list itself.")
    body = {"name": name, "filters": write_body(filters), "is_shared": shared}
    # Under a key it may be sent again.
    view = find_server(context).ask("POST", "saved-views", json=body, headers={"Idempotency-Key": str(uuid4())})
    if as_json:
        print_json(view)
    else:
        print_line(f"Saved view {view['id']} “{view['name']}”: {_describe_filters(view)}")
        print_line(view["page_url"], is_error=True)
    return SUCCEEDED


@commands.command("delete")
def delete_view(
    context: typer.Context,
    wanted: Annotated[str, typer.Argument(metavar="VIEW", help="The name or the number of a view of yours.")],
    as_json: AS_JSON = False,
) -> int:
    """Delete a saved view of yours; nobody deletes those of others. --json prints what it was."""
    server = find_server(context)
    view = find_view(server, wanted)
    called = f"view {view['id']} “{view['name']}”"
    try:
        server.send("DELETE", f"saved-views/{view['id']}")
    except NothingThereError:
        # What is gone is deleted: the answer to a first request may have been lost.
        if any(other["id"] == view["id"] for other in server.list("saved-views", ALL)):
            raise ClientError(f"The {called} is of {view['created_by']}; nobody else can delete it.") from None
    if as_json:
        print_json(view)
    else:
        print_line(f"Deleted {called}.")
    return SUCCEEDED


def _describe_filters(view: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in join_filters(view, {}).items())
