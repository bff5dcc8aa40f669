"""One thing that is done to many runs, which takes longer than a request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.models.run import in_future

MAX_NOTES = 100
"""Runs that were left out whose reasons are kept; the others are counted."""


class BulkKind(models.TextChoices):
    CANCEL = "cancel", "Cancel"
    RUN_AGAIN = "run_again", "Run again"


class WorkState(models.TextChoices):
    """The state of a bulk action. ``stopped`` is what a user wanted, ``failed`` is not."""

    WAITING = "waiting", "Waiting"
    WORKING = "working", "Working"
    DONE = "done", "Done"
    STOPPED = "stopped", "Stopped"
    FAILED = "failed", "Failed"


UNFINISHED = (WorkState.WAITING, WorkState.WORKING)


class BulkActionQuerySet(models.QuerySet["BulkAction"]):
    def unfinished(self) -> Self:
        """Actions that have something left to do."""
        return self.filter(state__in=UNFINISHED)

    def silent(self, length: timedelta) -> Self:
        """Unfinished actions that no process has worked on for that long."""
        return self.unfinished().filter(heartbeat_at__lt=in_future(-length))


class BulkAction(models.Model):
    """Its runs are fixed when it is requested. What a batch does and the position are stored in one transaction."""

    token = models.UUIDField(unique=True, help_text="Of the form that asked for it: sent twice, it is done once.")
    kind = models.CharField(max_length=9, choices=BulkKind)
    run_ids = models.JSONField(default=list, blank=True, help_text="Its runs, the newest first.")
    run_count = models.PositiveIntegerField(default=0, help_text="How many these are.")
    is_chosen = models.BooleanField(default=False, help_text="These were chosen one by one; else filters found them.")
    query = models.TextField(blank=True, default="", help_text="The filters of the list, as in its address.")
    uses_live_version = models.BooleanField(default=False, help_text="Run again under the live version of the flow.")
    most = models.PositiveIntegerField(null=True, blank=True, help_text="How many runs it may start.")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    state = models.CharField(max_length=7, choices=WorkState, default=WorkState.WAITING)
    problem = models.TextField(blank=True, default="", help_text="Why it failed, in one sentence.")
    position = models.PositiveIntegerField(default=0, help_text="How many of its runs are behind.")
    revision = models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows.")

    done = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0, help_text="Runs where there was nothing to do.")
    failed = models.PositiveIntegerField(default=0, help_text="Runs where it was not possible.")
    notes = models.JSONField(
        default=list, blank=True, help_text="The first runs that were skipped or failed: number, which of the two, why."
    )

    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(db_default=Now(), help_text="When it last came on.")
    ended_at = models.DateTimeField(null=True, blank=True)

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
    def is_unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def left_out(self) -> int:
        """Runs to which nothing was done."""
        return self.skipped + self.failed

    @property
    def percent(self) -> int:
        """The share of its runs that is behind."""
        if self.state == WorkState.DONE:
            return 100
        return self.position * 100 // max(self.run_count, 1)

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

    def end(self, state: WorkState, problem: str = "") -> None:
        """Store that nothing is left to do, or that nothing more will be done."""
        self.state, self.problem = state, problem
        self._update(state=state, problem=problem, ended_at=Now())

    def stop(self) -> bool:
        """End it as it is; False if it had ended already. What it has done stays done."""
        values: dict[str, Any] = {"state": WorkState.STOPPED, "ended_at": Now(), "revision": F("revision") + 1}
        is_stopped = BulkAction.objects.unfinished().filter(pk=self.pk).update(**values)
        self.refresh_from_db()
        return bool(is_stopped)

    def _update(self, **values: Any) -> None:
        BulkAction.objects.filter(pk=self.pk).update(**values, heartbeat_at=Now(), revision=F("revision") + 1)
