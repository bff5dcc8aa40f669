"""Locks by name, for what one process does at a time."""

from __future__ import annotations

from django.db import models


class Lock(models.Model):
    """A row that is locked for a transaction, or leased over several; see ``runs.locks``."""

    name = models.CharField(max_length=20, primary_key=True)
    token = models.PositiveBigIntegerField(default=0, help_text="Fencing token of the last lease.")
    held_until = models.DateTimeField(null=True, blank=True, help_text="When the lease expires; empty if it is free.")

    class Meta:
        # Nobody sees or changes it.
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name}, held until {self.held_until}" if self.held_until else f"{self.name}, free"
