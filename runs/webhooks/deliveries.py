"""What is to be sent: of runs that have ended, of a test, and again on request."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now
from yarl import URL

from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import DeliveryState, Run, WebhookDelivery, WebhookEndpoint, WebhookEvent
from runs.models.run import in_future
from runs.webhooks.tasks import wake_sender

MAX_AGE = timedelta(days=3)
"""No webhook is sent for a run that ended longer ago: counting may lag, and there may be an endpoint since."""
_MAX_HOST_LENGTH: int = WebhookDelivery._meta.get_field("host").max_length or 0


def create_deliveries(run_ids: Collection[int]) -> int:
    """Store the deliveries of these runs, which have ended; gives their number.

    The caller marks the runs in the same transaction, so that each is sent once. One query where none is to be sent.
    An endpoint of the flow goes before one of the installation, and both before the run, where they share a URL.
    """
    enabled = WebhookEndpoint.objects.filter(is_enabled=True)
    has_endpoint = Exists(enabled.filter(Q(flow=None) | Q(flow=OuterRef("flow"))))
    ended = Run.objects.filter(pk__in=run_ids, ended_at__gte=in_future(-MAX_AGE))
    runs = list(
        ended.filter(~Q(webhook_url="") | has_endpoint)
        .order_by("pk")
        .values_list("pk", "status", "webhook_url", "flow_id")
    )
    if not runs:
        return 0
    of_flows = Q(flow__in={flow_id for *_, flow_id in runs})
    endpoints = sorted(enabled.filter(Q(flow=None) | of_flows), key=lambda one: one.flow_id is not None)
    deliveries = []
    for run_id, status, own_url, flow_id in runs:
        event = WebhookEvent(f"run.{status}")
        targets: dict[str, WebhookEndpoint | None] = {own_url: None} if own_url else {}
        targets |= {one.url: one for one in endpoints if one.flow_id in (None, flow_id) and one.wants(event)}
        deliveries += [
            WebhookDelivery(
                run_id=run_id, flow_id=flow_id, endpoint=endpoint, event=event, url=url, host=find_host(url)
            )
            for url, endpoint in targets.items()
        ]
    if deliveries:
        WebhookDelivery.objects.bulk_create(deliveries, ignore_conflicts=True)
        wake_sender()
    return len(deliveries)


def create_test(endpoint: WebhookEndpoint) -> WebhookDelivery:
    """Queue a message of the type ``webhook.test`` to an endpoint, also to one that is disabled."""
    url = endpoint.url
    with transaction.atomic():
        delivery = WebhookDelivery.objects.create(
            endpoint=endpoint, flow_id=endpoint.flow_id, event=WebhookEvent.TEST, url=url, host=find_host(url)
        )
        log_audit_event(action=AuditAction.WEBHOOK_TESTED, about=endpoint)
        wake_sender()
    # The database sets when it was created.
    delivery.refresh_from_db()
    return delivery


def send_again(delivery: WebhookDelivery) -> bool:
    """Queue a delivery again, with all its retries. False while a try is under way."""
    with transaction.atomic():
        is_free = WebhookDelivery.objects.not_being_sent().filter(pk=delivery.pk)
        if not is_free.update(
            state=DeliveryState.WAITING,
            next_try_at=Now(),
            sending_until=None,
            tries_before=F("try_count"),
            ended_at=None,
        ):
            return False
        log_audit_event(action=AuditAction.WEBHOOK_SENT_AGAIN, about=delivery)
        wake_sender()
    return True


def find_host(url: str) -> str:
    """The host of an address that was checked, as deliveries hold it."""
    return (URL(url).host or "")[:_MAX_HOST_LENGTH]
