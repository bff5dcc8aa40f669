"""Commands about webhooks: what receivers were told, and telling them again."""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import uuid4

import typer

from runs.client.errors import SUCCEEDED, ClientError, naming
from runs.client.one_by_one import ask_each
from runs.client.options import AS_JSON, LIMIT, check_flow_name, find_server
from runs.client.printing import (
    NONE,
    format_seconds,
    format_time,
    paint,
    print_json,
    print_line,
    print_table,
)

commands = typer.Typer(help="See what receivers of webhooks were told, and tell them again.", no_args_is_help=True)

_DELIVERY = Annotated[int, typer.Argument(metavar="DELIVERY", min=1, help="The number of the delivery.")]


@commands.command("list")
def list_deliveries(
    context: typer.Context,
    status: Annotated[
        str | None, typer.Option(help="One status, or several with commas: waiting, delivered, failed.")
    ] = None,
    run: Annotated[int | None, typer.Option(min=1, help="Of the run of this number.")] = None,
    flow: Annotated[str | None, typer.Option(help="Of the runs of this flow.")] = None,
    limit: LIMIT = 20,
    as_json: AS_JSON = False,
) -> int:
    """List deliveries, the newest first."""
    deliveries = list(find_server(context).list("webhook-deliveries", limit, status=status, run=run, flow=flow))
    if as_json:
        print_json(deliveries)
    elif not deliveries:
        print_line("There are no such deliveries.", is_error=True)
    else:
        rows = [
            (
                one["id"],
                one["run"],
                one["flow"],
                one["event"],
                one["status"],
                one["try_count"],
                one["last_http_status"] or NONE,
                format_time(one["created_at"]),
                one["webhook_url"],
            )
            for one in deliveries
        ]
        columns = ("DELIVERY", "RUN", "FLOW", "EVENT", "STATUS", "TRIES", "ANSWER", "CREATED", "TO")
        print_table(columns, rows, right=("DELIVERY", "RUN", "TRIES", "ANSWER"))
    return SUCCEEDED


@commands.command("show")
def show_delivery(
    context: typer.Context,
    delivery_id: _DELIVERY,
    payload: Annotated[bool, typer.Option("--payload", help="With what is sent.")] = False,
    as_json: AS_JSON = False,
) -> int:
    """Show a delivery and its tries, each with what came back."""
    with naming(f"delivery {delivery_id}"):
        delivery = find_server(context).get(f"webhook-deliveries/{delivery_id}")
    if as_json:
        print_json(delivery)
        return SUCCEEDED
    _print_delivery(delivery)
    if delivery["tries"]:
        print_line("")
        rows = [
            (
                one["number"],
                format_time(one["started_at"]),
                format_seconds(one["duration"]),
                one["http_status"] or NONE,
                one["problem"] or NONE,
            )
            for one in delivery["tries"]
        ]
        print_table(("TRY", "BEGUN", "DURATION", "ANSWER", "PROBLEM"), rows, right=("TRY", "DURATION", "ANSWER"))
    if payload:
        print_line("")
        print_line(json.dumps(delivery["payload"], indent=2, ensure_ascii=False))
    return SUCCEEDED


def _print_delivery(delivery: dict[str, Any]) -> None:
    print_line(f"Delivery {delivery['id']} to {delivery['webhook_url']}: ", paint(delivery["status"]))
    told = f"{delivery['event']} of run {delivery['run']} (“{delivery['flow']}”), message {delivery['message_id']}"
    print_line(told)
    if delivery["next_try_at"]:
        print_line(f"Next try: {format_time(delivery['next_try_at'])}")
    print_line(delivery["page_url"])


@commands.command("secret")
def show_secret(
    context: typer.Context,
    flow: Annotated[str | None, typer.Option(help="That of this flow’s own webhook, not yours.")] = None,
    change: Annotated[
        bool, typer.Option("--change", help="Take another one first; that of before counts for seven days more.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="With --change: also where one of before still counts, which ends at once.")
    ] = False,
    as_json: AS_JSON = False,
) -> int:
    """Print the secret by which a receiver checks messages; keep it like a password."""
    if again and not change:
        raise ClientError("--again is for another change; it takes --change.")
    server = find_server(context)
    path = "webhook-secret" if flow is None else f"flows/{check_flow_name(flow)}/webhook-secret"
    with naming(f"flow “{flow}”"):
        if change:
            headers = {"Idempotency-Key": str(uuid4())}
            found = server.ask("POST", f"{path}/change", json={"again": again}, headers=headers)
        else:
            found = server.get(path)
    if as_json:
        print_json(found)
        return SUCCEEDED
    print_line(found["secret"])
    if until := found["earlier_until"]:
        print_line(f"Messages are signed with the one of before, too, until {format_time(until)}.", is_error=True)
    return SUCCEEDED


@commands.command("resend")
def resend(
    context: typer.Context,
    delivery_ids: Annotated[list[int], typer.Argument(metavar="DELIVERY", min=1, help="Numbers of deliveries.")],
    as_json: AS_JSON = False,
) -> int:
    """Send again at once, under the same message id and with all retries before it.

    What can't be done to one of several is told, and the others are sent.
    """
    server = find_server(context)

    def send(delivery_id: int) -> dict[str, Any]:
        # Under a key it may be asked again: the receiver is not told twice by one command.
        headers = {"Idempotency-Key": str(uuid4())}
        return server.ask("POST", f"webhook-deliveries/{delivery_id}/send-again", headers=headers)

    def tell(delivery_id: int, delivery: dict[str, Any]) -> None:
        print_line(f"Delivery {delivery_id} is about to be sent to {delivery['webhook_url']}.", is_error=as_json)

    sent, status = ask_each("delivery", delivery_ids, send, tell)
    if as_json:
        print_json(sent)
    return status
