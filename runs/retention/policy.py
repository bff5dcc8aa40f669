"""For how long the runs of a flow are kept, and which of them are due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from django.conf import settings
from django.db.models import Count, Q, Sum

from flows.models import Flow
from runs.models import Run
from runs.models.run import RunQuerySet

UNCOUNTED_EXTRA = timedelta(days=7)
"""How much longer a run is kept that statistics don't know yet: what it adds to them would be lost."""


class Part(Enum):
    """What is deleted of a run: all of it, or only what it read and wrote."""

    RUNS = "runs"
    OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True)
class Policy:
    """Days from the end of a run; None keeps for ever."""

    keep_days: int | None
    keep_outputs_days: int | None

    def limit(self, part: Part, now: datetime) -> datetime | None:
        """The time before which a run must have ended for ``part`` of it to be deleted; None if it never is."""
        days = self.keep_days if part is Part.RUNS else self.keep_outputs_days
        return None if days is None else now - timedelta(days=days)

    def __str__(self) -> str:
        return f"runs {_format_days(self.keep_days)}, outputs {_format_days(self.keep_outputs_days)}"


@dataclass(frozen=True, slots=True)
class PurgeTask:
    """Runs of one flow that end before a time lose ``part``."""

    flow: Flow
    part: Part
    ended_before: datetime
    runs_deleted_before: datetime | None = None
    """Runs that ended before this are left to the task that deletes them whole."""

    def due(self) -> list[RunQuerySet]:
        """The runs that are due, those that ended first at the beginning: a query for each index they are on."""
        ended = Run.objects.filter(flow=self.flow, ended_at__lt=self.ended_before).order_by("ended_at", "pk")
        due = ended.filter(_is_counted_or_old(self.ended_before))
        with_outputs = due.filter(outputs_removed_at=None)
        if self.part is Part.RUNS:
            return [due.filter(outputs_removed_at__isnull=False), with_outputs]
        if self.runs_deleted_before is None:
            return [with_outputs]
        deleted = _is_counted_or_old(self.runs_deleted_before)
        return [with_outputs.exclude(deleted, ended_at__lt=self.runs_deleted_before)]

    def count(self) -> tuple[int, int]:
        """The numbers of runs that are due and of their attempts."""
        found = [due.order_by().aggregate(runs=Count("pk"), attempts=Sum("attempt_count")) for due in self.due()]
        return sum(one["runs"] for one in found), sum(one["attempts"] or 0 for one in found)


def effective_policy(flow: Flow) -> Policy:
    """What holds for a flow: its own numbers, where 0 is for ever, else those of the installation."""
    keep = _choose(flow.keep_days, settings.TOOLFLOW_KEEP_DAYS)
    outputs = _choose(flow.keep_outputs_days, settings.TOOLFLOW_KEEP_OUTPUTS_DAYS)
    # Where both are due at the same time, outputs are deleted with their run.
    return Policy(keep, None if outputs is None or (keep is not None and outputs >= keep) else outputs)


def build_tasks(flow: Flow, policy: Policy, now: datetime) -> list[PurgeTask]:
    """What a policy asks for. Whole runs come first: their outputs are deleted with them."""
    runs, outputs = policy.limit(Part.RUNS, now), policy.limit(Part.OUTPUTS, now)
    tasks = [PurgeTask(flow, Part.RUNS, runs)] if runs else []
    return [*tasks, PurgeTask(flow, Part.OUTPUTS, outputs, runs)] if outputs else tasks


def _is_counted_or_old(limit: datetime) -> Q:
    return Q(is_counted=True) | Q(ended_at__lt=limit - UNCOUNTED_EXTRA)


def _choose(own: int | None, installation: int | None) -> int | None:
    return installation if own is None else own or None


def _format_days(days: int | None) -> str:
    return "for ever" if days is None else f"{days:,} day{'s' if days != 1 else ''}"
