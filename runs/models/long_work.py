"""What is done to many runs, batch by batch, and takes longer than a request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import F
from django.db.models.functions import Now

from runs.models.run import in_future


class WorkState(models.TextChoices):
    """``stopped`` is what a user wanted, ``failed`` is not."""

    WAITING = "waiting", "Waiting"
    WORKING = "working", "Working"
    DONE = "done", "Done"
    STOPPED = "stopped", "Stopped"
    FAILED = "failed", "Failed"


UNFINISHED = (WorkState.WAITING, WorkState.WORKING)

_Work_co = TypeVar("_Work_co", bound="LongWork", covariant=True)


class LongWorkQuerySet(models.QuerySet[_Work_co]):
    def unfinished(self) -> Self:
        """What has something left to do."""
        return self.filter(state__in=UNFINISHED)

    def silent(self, length: timedelta) -> Self:
        """What is unfinished and no process has worked on for that long."""
        return self.unfinished().filter(heartbeat_at__lt=in_future(-length))


class LongWork(models.Model):
    """Its runs are fixed when it is requested. What a batch does and the position are stored in one transaction."""

    run_ids = models.JSONField(default=list, blank=True, help_text="Its runs, the newest first.")
    run_count = models.PositiveIntegerField(default=0, help_text="How many these are.")
    query = models.TextField(blank=True, default="", help_text="The filters of the list, as in its address.")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.CharField(max_length=7, choices=WorkState, default=WorkState.WAITING)
    problem = models.TextField(blank=True, default="", help_text="Why it failed, in one sentence.")
    position = models.PositiveIntegerField(default=0, help_text="How many of its runs are behind.")
    revision = models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows.")
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(db_default=Now(), help_text="When it last came on.")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def is_unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def percent(self) -> int:
        """The share of its runs that is behind."""
        if self.state == WorkState.DONE:
            return 100
        return self.position * 100 // max(self.run_count, 1)

    def end(self, state: WorkState, problem: str = "") -> None:
        """Store that nothing is left to do, or that nothing more will be done."""
        self.state, self.problem = state, problem
        self._update(state=state, problem=problem, ended_at=Now())

    def stop(self) -> bool:
        """End it as it is; False if it had ended already. What it has done stays done."""
        values: dict[str, Any] = {"state": WorkState.STOPPED, "ended_at": Now(), "revision": F("revision") + 1}
        unfinished = type(self)._default_manager.filter(pk=self.pk, state__in=UNFINISHED)
        is_stopped = unfinished.update(**values)
        self.refresh_from_db()
        return bool(is_stopped)

    def _update(self, **values: Any) -> None:
        rows = type(self)._default_manager.filter(pk=self.pk)
        rows.update(**values, heartbeat_at=Now(), revision=F("revision") + 1)
