"""Webhooks: the endpoints that are notified when runs end, their deliveries, and the tries of each."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Self
from urllib.parse import urlsplit

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from flows.models import Flow
from runs.models.run import Run


class WebhookEvent(models.TextChoices):
    """What happened. Values are the ``type`` that receivers read."""

    SUCCEEDED = "run.succeeded", "Run succeeded"
    FAILED = "run.failed", "Run failed"
    ERRORED = "run.errored", "Run errored"
    CANCELLED = "run.cancelled", "Run cancelled"
    TEST = "webhook.test", "Test"


RUN_EVENTS = [event for event in WebhookEvent if event != WebhookEvent.TEST]
"""Those that endpoints may choose from."""


class DeliveryState(models.TextChoices):
    """The status of a delivery. ``failed`` is not tried again by itself."""

    WAITING = "waiting", "Waiting"
    DELIVERED = "delivered", "Delivered"
    FAILED = "failed", "Not delivered"


def hide_path(address: str) -> str:
    """An address without what only its owner may know: all after the host is “…”."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…" if address else ""


def make_message_id() -> str:
    """A new id, by which a receiver knows a message that comes twice."""
    return f"msg_{secrets.token_urlsafe(18)}"


def make_secret_seed() -> str:
    """A new seed, from which a secret is derived."""
    return secrets.token_urlsafe(24)


class SigningSecret(models.Model):
    """What messages are signed with: a seed of the secret, never the secret itself; see ``runs.webhooks.messages``."""

    secret_seed = models.CharField(max_length=60, default=make_secret_seed, editable=False)
    previous_seed = models.CharField(max_length=60, blank=True, default="", editable=False)
    secret_changed_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        abstract = True


class InstallationSecret(SigningSecret):
    """The one row that signs messages to addresses given with runs."""

    class Meta:
        # No page shows or changes it.
        default_permissions = ()

    def __str__(self) -> str:
        return "Secret of the installation"


class WebhookEndpointQuerySet(models.QuerySet["WebhookEndpoint"]):
    def with_last_delivery(self) -> Self:
        """Annotate ``last_delivery_id``, ``last_delivery_state`` and ``last_delivery_at``; None where there is none."""
        latest = WebhookDelivery.objects.filter(endpoint=models.OuterRef("pk")).order_by("-pk")
        return self.annotate(
            last_delivery_id=models.Subquery(latest.values("pk")[:1]),
            last_delivery_state=models.Subquery(latest.values("state")[:1]),
            last_delivery_at=models.Subquery(latest.values("created_at")[:1]),
        )


class WebhookEndpoint(SigningSecret):
    """An address that is notified when runs end: those of one flow, or all runs of the installation."""

    url = models.CharField("URL", max_length=2_000)
    flow = models.ForeignKey(
        Flow,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="webhook_endpoints",
        help_text="Empty: runs of all flows.",
    )
    event_types = models.JSONField(default=list, blank=True, help_text="Which ends of runs are sent. None: all.")
    is_enabled = models.BooleanField("enabled", default=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = WebhookEndpointQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["flow", "url"], name="webhook_endpoint_once"),
            models.UniqueConstraint(fields=["url"], condition=Q(flow=None), name="webhook_endpoint_once_of_all"),
        ]

    def __str__(self) -> str:
        # What follows the host may hold a key.
        return f"Endpoint {self.pk}"

    def wants(self, event: WebhookEvent) -> bool:
        """Whether it is notified of ``event``."""
        return not self.event_types or event in self.event_types


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    def not_being_sent(self) -> Self:
        """Deliveries of which no try is under way."""
        return self.filter(Q(sending_until=None) | Q(sending_until__lt=Now()))

    def due(self) -> Self:
        """Deliveries whose next try should be made now."""
        return self.not_being_sent().filter(state=DeliveryState.WAITING, next_try_at__lte=Now())


class WebhookDelivery(models.Model):
    """One event of a run, or a test, for one address. Without an endpoint it is the run's own, or one that was deleted.

    ``try_count`` counts tries as they begin. ``sending_until`` is the lease of a try: when its sender dies it
    runs out, and the delivery is due again.
    """

    message_id = models.CharField(max_length=50, unique=True, default=make_message_id)
    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, null=True, related_name="webhook_deliveries", help_text="Null for a test."
    )
    flow = models.ForeignKey(
        Flow,
        on_delete=models.CASCADE,
        null=True,
        related_name="+",
        db_index=False,
        help_text="Of the run or the endpoint; null for a test of one of all flows.",
    )
    endpoint = models.ForeignKey(
        WebhookEndpoint, on_delete=models.SET_NULL, null=True, related_name="deliveries", db_index=False
    )
    event = models.CharField(max_length=20, choices=WebhookEvent)
    url = models.TextField()
    host = models.CharField(max_length=255, help_text="Of the address: few are sent to one host at a time.")
    body = models.TextField(blank=True, default="", help_text="What is sent, as it was first; empty before that.")

    state = models.CharField(max_length=9, choices=DeliveryState, default=DeliveryState.WAITING)
    try_count = models.PositiveIntegerField(default=0)
    tries_before = models.PositiveIntegerField(default=0, help_text="Tries from before it was sent again.")
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
            models.Index(fields=["endpoint", "-id"], name="webhook_by_endpoint"),
            models.Index(fields=["flow", "-id"], name="webhook_by_flow"),
        ]

    def __str__(self) -> str:
        return f"{self.event} of run {self.run_id} to {self.host}" if self.run_id else f"Test to {self.host}"

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
        """The number of the last try, from 1, since it was created or sent again."""
        return self.try_count - self.tries_before


class WebhookTry(models.Model):
    """One POST. Without ``ended_at`` it is under way, or its sender died before an answer was stored."""

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
    def duration(self) -> timedelta | None:
        """How long it took; None if that is not known."""
        return self.ended_at - self.started_at if self.ended_at is not None else None
