"""What else piles up and is of no use after a while: a little of it goes with every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import models, transaction
from django.db.models import Q
from django.utils.module_loading import import_string
from django_q.models import Failure, Success

from runs.models import (
    ApiToken,
    BulkAction,
    DeliveryState,
    IdempotentRequest,
    OriginalInput,
    WebhookDelivery,
)

BATCH = 100
"""Rows deleted in one transaction."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One kind of rows that go some time after they came to an end."""

    name: str
    """What they are, in the plural."""
    after: timedelta
    find: Callable[[datetime], models.QuerySet[Any]]
    """Those that came to an end before a moment."""

    def find_due(self, now: datetime) -> models.QuerySet[Any]:
        """Those that go now."""
        return self.find(now - self.after).order_by()

    def count(self, now: datetime) -> int:
        """How many go now."""
        return self.find_due(now).count()


def list_leftovers() -> list[Leftover]:
    """All kinds; see ``docs/retention.md``."""
    return [
        # Counting takes them away at once; this is for runs that can't be counted.
        Leftover("inputs of ended runs as they were before redaction", timedelta(hours=1), _find_inputs),
        Leftover("webhook deliveries", timedelta(days=30), _find_deliveries),
        Leftover(
            "answers kept for Idempotency-Keys", timedelta(days=1), partial(_before, IdempotentRequest, "created_at")
        ),
        Leftover("bulk actions", timedelta(days=90), partial(_before, BulkAction, "ended_at")),
        Leftover("expired and revoked API tokens", timedelta(days=90), _find_tokens),
        Leftover("expired sign-ins", timedelta(0), partial(_before, _find_session_model(), "expire_date")),
        # Lock-outs last for a day at most.
        Leftover("failures to sign in", timedelta(days=1), partial(_before, AccessAttempt, "attempt_time")),
        Leftover("finished tasks of the queue", timedelta(days=30), partial(_before, Success, "stopped")),
        Leftover("failed tasks of the queue", timedelta(days=30), partial(_before, Failure, "stopped")),
    ]


def clear(leftover: Leftover, *, now: datetime) -> Iterator[int]:
    """Delete what is due of one kind, a batch with each step; gives how many rows each batch had."""
    due = leftover.find_due(now)
    while keys := list(due.values_list("pk", flat=True)[:BATCH]):
        with transaction.atomic():
            # Locked first: a delivery may just now be sent again. What is not due any more is left.
            locked = due.filter(pk__in=keys).order_by("pk").select_for_update()
            held = list(locked.values_list("pk", flat=True))
            due.filter(pk__in=held).delete()
        yield len(held)


def _before(model: type[models.Model], column: str, limit: datetime) -> models.QuerySet[Any]:
    rows: models.QuerySet[Any] = model._default_manager.filter(**{f"{column}__lt": limit})
    return rows


def _find_inputs(limit: datetime) -> models.QuerySet[Any]:
    return OriginalInput.objects.filter(run__ended_at__lt=limit)


def _find_deliveries(limit: datetime) -> models.QuerySet[Any]:
    return WebhookDelivery.objects.exclude(state=DeliveryState.WAITING).filter(ended_at__lt=limit)


def _find_tokens(limit: datetime) -> models.QuerySet[Any]:
    tokens: models.QuerySet[Any] = ApiToken.objects.filter(Q(expiry__lt=limit) | Q(revoked_at__lt=limit))
    return tokens


def _find_session_model() -> type[models.Model]:
    store: type[SessionStore] = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    return store.get_model_class()
