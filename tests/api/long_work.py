"""Rows of what is sent to receivers, of what is done to many runs, and of what users keep."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from django.contrib.auth.models import User

from runs.models import BulkAction, BulkKind, Run, SavedView, WebhookDelivery

ADDRESS = "https://hooks.example.com/T0/secret"


def make_delivery(run: Run, *, url: str = ADDRESS, **fields: Any) -> WebhookDelivery:
    """A delivery to ``url`` that waits for its first try."""
    values = {"event": f"run.{run.status}", "host": urlsplit(url).hostname or "", **fields}
    return WebhookDelivery.objects.create(run=run, flow_id=run.flow_id, url=url, **values)


def make_bulk_action(**fields: Any) -> BulkAction:
    """An action for runs that matched filters, which is not begun yet."""
    values = {"kind": BulkKind.CANCEL, "run_ids": [7, 6], "run_count": 2, **fields}
    return BulkAction.objects.create(token=uuid4(), **values)


def make_view(owner: User, name: str = "Failed", **fields: Any) -> SavedView:
    """A view of the runs that failed."""
    return SavedView.objects.create(owner=owner, name=name, **{"query": "status=failed", **fields})
