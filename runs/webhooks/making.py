"""What is to be delivered of runs that have ended."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.db.models import Q
from yarl import URL

from runs.models import Run, WebhookDelivery, WebhookEvent
from runs.models.run import in_future
from runs.webhooks.messages import wake_sender

OLDEST_NEWS = timedelta(days=3)
"""No webhook is sent for a run that ended longer ago: counting may lag, and the flow may have an address since."""
_LONGEST_URL = 2_500
"""Bytes."""
_LONGEST_HOST: int = WebhookDelivery._meta.get_field("host").max_length or 0


def make_deliveries(run_ids: Collection[int]) -> int:
    """Store who is to be told of these runs, which have ended; gives how many deliveries that are.

    The caller marks the runs in the same transaction, so that nothing is lost and nothing is told twice. Runs without
    an address cost one query for all of them.
    """
    rows = Run.objects.filter(
        ~Q(webhook_url="") | ~Q(flow__webhook_url=""), pk__in=run_ids, ended_at__gte=in_future(-OLDEST_NEWS)
    )
    deliveries = [
        WebhookDelivery(run_id=run_id, event=WebhookEvent(f"run.{status}"), url=cut_address(url), host=_name_host(url))
        for run_id, status, own, of_flow in rows.order_by("pk").values_list(
            "pk", "status", "webhook_url", "flow__webhook_url"
        )
        for url in dict.fromkeys((own, of_flow))
        if url
    ]
    if deliveries:
        WebhookDelivery.objects.bulk_create(deliveries, ignore_conflicts=True)
        wake_sender()
    return len(deliveries)


def cut_address(url: str) -> str:
    """The address of a run or a flow as deliveries hold it."""
    # PostgreSQL puts no more than 2,700 bytes into an index. The first try says that the address is too long.
    return url.encode()[:_LONGEST_URL].decode(errors="ignore")


def _name_host(url: str) -> str:
    try:
        return (URL(url).host or "")[:_LONGEST_HOST]
    except ValueError:
        # The first try says what is wrong with it.
        return ""
