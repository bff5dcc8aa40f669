"""By which message retention goes on: one at a time, however many the queue's schedule sends."""

from __future__ import annotations

from django.db import models


class PurgeTurn(models.Model):
    """The one row: retention passes itself on from message to message, and only the last one holds."""

    number = models.PositiveBigIntegerField(default=0, help_text="Of the last message that was begun.")
    held_until = models.DateTimeField(
        null=True, blank=True, help_text="When that counts as lost; empty if nothing is left to do."
    )

    class Meta:
        # Nobody sees or changes it.
        default_permissions = ()

    def __str__(self) -> str:
        return f"message {self.number}, held until {self.held_until}" if self.held_until else "free"
