"""What was answered to requests that carry an idempotency key: a repeated one gets the same answer."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class IdempotentRequest(models.Model):
    """One request that makes something, by the key that its user gave it. Kept for a day."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(
        max_length=64, help_text="HMAC-SHA-256 of method, address and body, with the secret key."
    )
    status = models.PositiveSmallIntegerField(null=True, help_text="HTTP status of the answer; none while it is made.")
    headers = models.JSONField(default=dict)
    body = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_once")]
        indexes = [models.Index(fields=["created_at"], name="idempotent_by_creation")]

    def __str__(self) -> str:
        return self.key
