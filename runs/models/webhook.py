"""What is told to the outside about runs that have ended: one row for each run and address, and one for each try."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Self

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from runs.models.run import Run, in_future


class WebhookEvent(models.TextChoices):
    """What happened to a run. Values are the ``type`` that receivers read."""

    SUCCEEDED = "run.succeeded", "Run succeeded"
    FAILED = "run.failed", "Run failed"
    ERRORED = "run.errored", "Run errored"
    CANCELLED = "run.cancelled", "Run cancelled"


class DeliveryState(models.TextChoices):
    """How a delivery stands. ``failed`` is not tried again by itself."""

    WAITING = "waiting", "Waiting"
    DELIVERED = "delivered", "Delivered"
    FAILED = "failed", "Not delivered"


def make_message_id() -> str:
    """A new id, by which a receiver knows a message that comes twice."""
    return f"msg_{secrets.token_urlsafe(18)}"


def _not_being_sent() -> Q:
    return Q(sending_until=None) | Q(sending_until__lt=Now())


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    def due(self) -> Self:
        """Deliveries whose next try should be made now and that nobody is sending."""
        return self.filter(_not_being_sent(), state=DeliveryState.WAITING, next_try_at__lte=Now())

    def held(self, *, delivery_id: int, number: int) -> Self:
        """The delivery if its last try is the one of that number: the fence of whoever made it."""
        return self.filter(pk=delivery_id, try_count=number)


class WebhookDelivery(models.Model):
    """One event of a run for one address.

    ``try_count`` counts tries as they begin. ``sending_until`` is the lease of whoever makes one: when a sender dies it
    runs out, and the delivery is due again.
    """

    message_id = models.CharField(max_length=50, unique=True, default=make_message_id)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="webhook_deliveries")
    event = models.CharField(max_length=20, choices=WebhookEvent)
    url = models.TextField()
    host = models.CharField(max_length=255, help_text="Of the address: few are sent to one host at a time.")
    body = models.TextField(blank=True, default="", help_text="What is sent, as it was first; empty before that.")

    state = models.CharField(max_length=9, choices=DeliveryState, default=DeliveryState.WAITING)
    try_count = models.PositiveIntegerField(default=0)
    tries_before = models.PositiveIntegerField(default=0, help_text="Tries from before somebody asked for it anew.")
    last_status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="HTTP status of the last answer.")
    next_try_at = models.DateTimeField(null=True, blank=True, db_default=Now())
    sending_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = WebhookDeliveryQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["run", "url"], name="webhook_once"),
            models.CheckConstraint(condition=Q(event__in=WebhookEvent.values), name="webhook_event_known"),
            models.CheckConstraint(condition=Q(state__in=DeliveryState.values), name="webhook_state_known"),
        ]
        indexes = [
            models.Index(fields=["next_try_at"], condition=Q(state="waiting"), name="webhook_due"),
            models.Index(fields=["state", "-id"], name="webhook_by_state"),
        ]

    def __str__(self) -> str:
        return f"{self.event} of run {self.run_id} to {self.host}"

    @property
    def is_being_sent(self) -> bool:
        """Whether a try is under way."""
        return self.sending_until is not None and self.sending_until > timezone.now()

    @property
    def is_waiting(self) -> bool:
        """Whether it will be tried by itself."""
        return self.state == DeliveryState.WAITING

    @property
    def round(self) -> int:
        """The number of the last try, from 1, since it was made or asked for anew."""
        return self.try_count - self.tries_before

    def send_again(self) -> bool:
        """Let it be tried now, with all its retries before it. False while a try is under way."""
        values: dict[str, Any] = {
            "state": DeliveryState.WAITING,
            "next_try_at": Now(),
            "sending_until": None,
            "tries_before": F("try_count"),
            "ended_at": None,
        }
        return bool(WebhookDelivery.objects.filter(_not_being_sent(), pk=self.pk).update(**values))

    @classmethod
    def begin_tries(cls, deliveries: Collection[WebhookDelivery], *, lease: timedelta) -> None:
        """Count one more try of each, and let nobody else send them until ``lease`` from now.

        For whoever holds their rows locked; the rows of the tries are stored with it.
        """
        keys = [delivery.pk for delivery in deliveries]
        cls.objects.filter(pk__in=keys).update(try_count=F("try_count") + 1, sending_until=in_future(lease))
        for delivery in deliveries:
            delivery.try_count += 1
        WebhookTry.objects.bulk_create([WebhookTry(delivery=row, number=row.try_count) for row in deliveries])


class WebhookTry(models.Model):
    """One POST. Without ``ended_at`` it is under way, or whoever made it died before an answer was stored."""

    delivery = models.ForeignKey(WebhookDelivery, on_delete=models.CASCADE, related_name="tries")
    number = models.PositiveIntegerField()
    started_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    signature = models.TextField(blank=True, default="", help_text="The header of that name.")
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="HTTP status of the answer.")
    problem = models.TextField(blank=True, default="", help_text="Why it did not succeed, in one sentence.")
    response = models.TextField(blank=True, default="", help_text="How the body of the answer begins.")

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["delivery", "number"], name="webhook_try_once")]

    def __str__(self) -> str:
        return f"Try {self.number}"

    @property
    def seconds(self) -> float | None:
        """How long it took; None if that is not known."""
        return (self.ended_at - self.started_at).total_seconds() if self.ended_at is not None else None
