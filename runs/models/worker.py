"""The drains that are at work now, for people who watch them and for limits that all hosts share; and their locks."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models.functions import Now

from runs.models.run import in_future

SILENCE = timedelta(seconds=30)
"""A worker that was not heard of for so long is not counted on any more."""


class WorkerQuerySet(models.QuerySet["Worker"]):
    def alive(self) -> Self:
        """Workers with a recent heartbeat."""
        return self.filter(heartbeat_at__gte=in_future(-SILENCE))

    def silent(self, duration: timedelta = SILENCE) -> Self:
        """Workers that were not heard of for so long; their host or process is gone, or can't reach the database."""
        return self.filter(heartbeat_at__lt=in_future(-duration))


class Worker(models.Model):
    """One drain: an event loop in a worker process, with many runs under way. Its row lives as long as it does."""

    owner = models.CharField(max_length=200, unique=True, help_text="As in the runs that it holds.")
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=50, help_text="The version of ToolFlow that it runs.")
    slots = models.PositiveIntegerField(help_text="How many runs it may have under way.")
    in_flight = models.PositiveIntegerField(default=0)
    unable_versions = models.JSONField(default=list, help_text="Versions of flows that it lacks plug-ins for.")
    is_stopping = models.BooleanField(default=False, help_text="It claims no more runs.")
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())

    objects = WorkerQuerySet.as_manager()

    class Meta:
        ordering = ["host", "started_at"]

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}"


class Lock(models.Model):
    """A row that is locked for a transaction, or leased over several; see ``runs.locks``."""

    name = models.CharField(max_length=20, primary_key=True)
    token = models.PositiveBigIntegerField(default=0, help_text="Fencing token of the last lease.")
    held_until = models.DateTimeField(null=True, blank=True, help_text="When the lease expires; empty if it is free.")

    class Meta:
        # No page shows or changes it.
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name}, held until {self.held_until}" if self.held_until else f"{self.name}, free"
