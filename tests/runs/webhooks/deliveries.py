"""Runs that have ended, endpoints, and what is to be sent to them."""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from runs.models import Run, WebhookDelivery, WebhookEndpoint
from runs.rollup import count_ended_runs
from tests.runs.builders import make_run


def make_ended_run(version: Any = None, **fields: Any) -> Run:
    """A run that ended just now and is not counted yet."""
    return make_run(version, **{"status": "failed", "ended_at": timezone.now(), **fields})


def make_delivery(url: str, version: Any = None, **fields: Any) -> WebhookDelivery:
    """What is to be sent to the own address of a run that ended just now, as the worker makes it."""
    run = make_ended_run(version, webhook_url=url, **fields)
    count_ended_runs()
    return WebhookDelivery.objects.get(run=run)


def make_endpoint(url: str, run_or_version: Any = None, **fields: Any) -> WebhookEndpoint:
    """An endpoint of the flow of a run or a version, or of the installation."""
    return WebhookEndpoint.objects.create(url=url, flow_id=run_or_version and run_or_version.flow_id, **fields)


def come_due(delivery: WebhookDelivery) -> None:
    """Let the time of its next try be now, and its lease, if it has one, be over."""
    WebhookDelivery.objects.filter(pk=delivery.pk).update(next_try_at=Now(), sending_until=None)
