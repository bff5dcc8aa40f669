"""Runs that have ended, and what is to be told of them."""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from flows.models import Flow
from runs.models import Run, WebhookDelivery
from runs.rollup import count_ended_runs
from tests.runs.builders import make_run


def make_ended_run(version: Any = None, **fields: Any) -> Run:
    """A run that ended just now; nobody was told of it yet."""
    return make_run(version, **{"status": "failed", "ended_at": timezone.now(), **fields})


def make_delivery(url: str, version: Any = None, **fields: Any) -> WebhookDelivery:
    """What is to be told of a run that ended just now, as the worker makes it."""
    run = make_ended_run(version, webhook_url=url, **fields)
    count_ended_runs()
    return WebhookDelivery.objects.get(run=run)


def set_flow_address(run_or_version: Any, url: str) -> None:
    """Let the flow of a run or of a version have that address."""
    Flow.objects.filter(pk=run_or_version.flow_id).update(webhook_url=url)


def come_due(delivery: WebhookDelivery) -> None:
    """Let the time of its next try be now, and its lease, if somebody has one, be over."""
    WebhookDelivery.objects.filter(pk=delivery.pk).update(next_try_at=Now(), sending_until=None)
