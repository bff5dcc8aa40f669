"""Cancelling many runs, and running many again."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.long_work import LongWork, LongWorkQuerySet, WorkState

MAX_NOTES = 100
"""Runs that were left out whose reasons are kept; the others are counted."""


class BulkKind(models.TextChoices):
    CANCEL = "cancel", "Cancel"
    RUN_AGAIN = "run_again", "Run again"


class BulkActionQuerySet(LongWorkQuerySet["BulkAction"]):
    """Bulk actions."""


class BulkAction(LongWork):
    """One thing that is done to many runs."""

    token = models.UUIDField(unique=True, help_text="Of the form that asked for it: sent twice, it is done once.")
    kind = models.CharField(max_length=9, choices=BulkKind)
    is_chosen = models.BooleanField(default=False, help_text="These were chosen one by one; else filters found them.")
    uses_live_version = models.BooleanField(default=False, help_text="Run again under the live version of the flow.")
    most = models.PositiveIntegerField(null=True, blank=True, help_text="How many runs it may start.")

    done = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0, help_text="Runs where there was nothing to do.")
    failed = models.PositiveIntegerField(default=0, help_text="Runs where it was not possible.")
    notes = models.JSONField(
        default=list, blank=True, help_text="The first runs that were skipped or failed: number, which of the two, why."
    )

    objects = BulkActionQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=BulkKind.values), name="bulk_kind_known"),
            models.CheckConstraint(condition=Q(state__in=WorkState.values), name="bulk_state_known"),
        ]
        indexes = [models.Index(fields=["state", "heartbeat_at"], name="bulk_by_state")]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """What the runs that it starts are found by."""
        return f"bulk-{self.pk}"

    @property
    def left_out(self) -> int:
        """Runs to which nothing was done."""
        return self.skipped + self.failed

    def note(self, *, run_id: int, is_failure: bool, sentence: str) -> None:
        """Count a run that was left out and keep the reason; the caller saves."""
        if is_failure:
            self.failed += 1
        else:
            self.skipped += 1
        if len(self.notes) < MAX_NOTES:
            self.notes.append({"run": run_id, "failed": is_failure, "sentence": sentence})

    def advance(self, count: int) -> None:
        """Store what a batch of ``count`` runs did, and that these are behind."""
        values: dict[str, Any] = {name: getattr(self, name) for name in ("done", "skipped", "failed", "notes")}
        if self.state == WorkState.WAITING:
            self.state = values["state"] = WorkState.WORKING
            values["started_at"] = Now()
        self.position += count
        self._update(position=self.position, **values)
