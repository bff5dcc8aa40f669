"""What is done to many runs at once, which takes longer than a request.

A bulk action goes through runs from the newest to the oldest and keeps how far it came: after a crash it goes on from
there.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.models.run import in_future

MOST_NOTES = 100
"""How many runs that were left out a bulk action remembers by name; the others are counted."""


class BulkKind(models.TextChoices):
    CANCEL = "cancel", "Cancel"
    RUN_AGAIN = "run_again", "Run again"


class WorkState(models.TextChoices):
    """How a bulk action stands. ``stopped`` is what somebody wanted, ``failed`` is not."""

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
        """Unfinished actions that nobody has worked on for so long."""
        return self.unfinished().filter(touched_at__lt=in_future(-length))


class BulkAction(models.Model):
    """One thing that is done to many runs: those that were chosen, or all that match filters.

    It goes through chosen runs by falling number, through all that match in the order of lists. ``position`` is the
    last run that it worked on. What a batch did and the position behind it are stored in one transaction.
    """

    token = models.UUIDField(unique=True, help_text="Of the form that asked for it: sent twice, it is done once.")
    kind = models.CharField(max_length=9, choices=BulkKind)
    run_ids = models.JSONField(null=True, blank=True, help_text="The chosen runs; null for all that match.")
    query = models.TextField(blank=True, default="", help_text="The filters of the list, as in its address.")
    time_zone = models.CharField(max_length=100, default="UTC", help_text="In which days of filters begin and end.")
    uses_live_version = models.BooleanField(default=False, help_text="Run again under the live version of the flow.")
    most = models.PositiveIntegerField(null=True, blank=True, help_text="How many runs it may start.")
    expected = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many runs it was confirmed for; null if that was not known."
    )
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    state = models.CharField(max_length=7, choices=WorkState, default=WorkState.WAITING)
    problem = models.TextField(blank=True, default="", help_text="Why it failed, in one sentence.")
    newest = models.BigIntegerField(help_text="No run with a higher number is meant.")
    oldest = models.BigIntegerField(help_text="The number of the last run that is meant; 0 if it is not known.")
    newest_at = models.DateTimeField(null=True, blank=True, help_text="When the first run that matches was created.")
    oldest_at = models.DateTimeField(null=True, blank=True, help_text="When the last run that matches was created.")
    position = models.BigIntegerField(help_text="The number of the last run that was looked at.")
    position_at = models.CharField(
        max_length=40, blank=True, default="", help_text="When that was created, as the database writes it."
    )
    turn = models.PositiveIntegerField(default=0, help_text="Counts the messages that pass it on; only the last holds.")
    revision = models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows.")

    done = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0, help_text="Runs where there was nothing to do.")
    failed = models.PositiveIntegerField(default=0, help_text="Runs where it was not possible.")
    notes = models.JSONField(
        default=list, blank=True, help_text="The first runs that were skipped or failed: number, which of the two, why."
    )

    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    touched_at = models.DateTimeField(db_default=Now(), help_text="When it last came on.")
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = BulkActionQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=BulkKind.values), name="bulk_kind_known"),
            models.CheckConstraint(condition=Q(state__in=WorkState.values), name="bulk_state_known"),
        ]
        indexes = [models.Index(fields=["state", "touched_at"], name="bulk_by_state")]

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
    def fallen_away(self) -> int:
        """How many runs fewer matched when they were looked at than it was confirmed for; 0 until it is done."""
        if self.state != WorkState.DONE or self.expected is None:
            return 0
        return max(0, self.expected - self.done - self.left_out)

    @property
    def is_full(self) -> bool:
        """Whether it has started as many runs as it may."""
        return self.most is not None and self.done >= self.most

    @property
    def percent(self) -> int:
        """How much is behind: of the chosen runs, of those that it may start, or of the time between the runs."""
        if self.state == WorkState.DONE:
            return 100
        if self.run_ids is not None:
            behind = sum(1 for run_id in self.run_ids if run_id >= self.position)
            return behind * 100 // max(len(self.run_ids), 1)
        started = self.done * 100 // self.most if self.most else 0
        return max(started, self._measure())

    def note(self, *, run_id: int, is_failure: bool, sentence: str) -> None:
        """Count a run that was left out, and remember why; the caller saves."""
        if is_failure:
            self.failed += 1
        else:
            self.skipped += 1
        if len(self.notes) < MOST_NOTES:
            self.notes.append({"run": run_id, "failed": is_failure, "sentence": sentence})

    def come_to(self, position: int, position_at: str = "") -> None:
        """Store what a batch did, and that the run ``position`` was the last one that was looked at."""
        self.position, self.position_at = position, position_at
        values: dict[str, Any] = {name: getattr(self, name) for name in ("done", "skipped", "failed", "notes")}
        if self.state == WorkState.WAITING:
            self.state = values["state"] = WorkState.WORKING
            values["started_at"] = Now()
        self._update(position=position, position_at=position_at, **values)

    def end(self, state: WorkState, problem: str = "") -> None:
        """Store that nothing is left to do, or that nothing more will be done."""
        self.state, self.problem = state, problem
        self._update(state=state, problem=problem, ended_at=Now())

    def pass_on(self) -> int:
        """Make earlier messages about it void; gives the turn that a new one has to name."""
        self.turn += 1
        BulkAction.objects.filter(pk=self.pk).update(turn=self.turn, touched_at=Now())
        return self.turn

    def stop(self) -> bool:
        """End it where it stands; False if it had ended already. What it has done stays done."""
        values: dict[str, Any] = {"state": WorkState.STOPPED, "ended_at": Now(), "revision": F("revision") + 1}
        is_stopped = BulkAction.objects.unfinished().filter(pk=self.pk).update(**values)
        self.refresh_from_db()
        return bool(is_stopped)

    def _update(self, **values: Any) -> None:
        BulkAction.objects.filter(pk=self.pk).update(**values, touched_at=Now(), revision=F("revision") + 1)

    def _measure(self) -> int:
        """How much of the time in which runs that match were created is behind, in percent."""
        if not self.position_at or self.newest_at is None or self.oldest_at is None:
            return 0
        at = datetime.fromisoformat(self.position_at)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        length = self.newest_at - self.oldest_at
        return max(0, min(100, int((self.newest_at - at) / length * 100))) if length else 100
