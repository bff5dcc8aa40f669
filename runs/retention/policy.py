"""For how long the runs of a flow are kept, and which of them are due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from django.conf import settings
from django.db.models import Q

from flows.models import Flow
from runs.models import Run
from runs.models.run import RunQuerySet

UNCOUNTED = timedelta(days=7)
"""How much longer a run is kept that statistics don't know yet: what it counts would be lost."""
MAX_UNCOUNTED = 1_000
"""If more runs than that wait to be counted, it is only a matter of time, as after an outage; else they can't be."""


class Part(Enum):
    """What goes of a run: all of it, or what it read and wrote."""

    RUNS = "runs"
    OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True)
class Policy:
    """Days from the end of a run; None keeps for ever."""

    keep_days: int | None
    keep_outputs_days: int | None

    def find_days(self, part: Part) -> int | None:
        return self.keep_days if part is Part.RUNS else self.keep_outputs_days

    def find_limit(self, part: Part, now: datetime) -> datetime | None:
        """The moment before which a run must have ended for ``part`` of it to go; None if it never does."""
        days = self.find_days(part)
        try:
            return None if days is None else now - timedelta(days=days)
        except OverflowError:
            # Before there were years to count.
            return None

    def __str__(self) -> str:
        runs, outputs = (_say_days(days) for days in (self.keep_days, self.keep_outputs_days))
        return f"runs {runs}, outputs {outputs}"


def read_policy(flow: Flow) -> Policy:
    """What holds for a flow: its own numbers, else those of the installation. Outputs go with their run at last."""
    keep = _choose(flow.keep_days, settings.TOOLFLOW_KEEP_DAYS)
    outputs = _choose(flow.keep_outputs_days, settings.TOOLFLOW_KEEP_OUTPUTS_DAYS)
    # Where both come at the same time, there is nothing to take away first.
    return Policy(keep, None if outputs is None or (keep is not None and outputs >= keep) else outputs)


def find_due(
    flow_id: int, part: Part, ended_before: datetime, *, gone_before: datetime | None = None
) -> list[RunQuerySet]:
    """Runs of a flow whose ``part`` goes, those that ended first at the beginning: a query for each index they are on.

    A run that statistics don't know yet stays some days longer, and as long as they are far behind. With
    ``gone_before`` those that lose their outputs once all that is due of the runs that ended before that is gone.
    """
    find_known = _filter_counted if _is_counting_behind() else may_go
    due = Run.objects.filter(find_known(ended_before), flow_id=flow_id, ended_at__lt=ended_before)
    due = due.order_by("ended_at", "pk")
    with_outputs = due.filter(outputs_removed_at__isnull=True)
    if part is Part.OUTPUTS:
        if gone_before is not None:
            with_outputs = with_outputs.exclude(find_known(gone_before), ended_at__lt=gone_before)
        return [with_outputs]
    return [due.filter(outputs_removed_at__isnull=False), with_outputs]


def may_go(ended_before: datetime) -> Q:
    """Of the runs that ended before that, those that statistics know, and those that they will hardly come to know."""
    return Q(is_counted=True) | Q(ended_at__lt=ended_before - UNCOUNTED)


def _filter_counted(_ended_before: datetime) -> Q:
    return Q(is_counted=True)


def _is_counting_behind() -> bool:
    return Run.objects.uncounted().order_by("pk")[MAX_UNCOUNTED : MAX_UNCOUNTED + 1].exists()


def _choose(own: int | None, installation: int | None) -> int | None:
    """The days that hold; a flow's 0 is for ever."""
    return installation if own is None else own or None


def _say_days(days: int | None) -> str:
    if days is None:
        return "for ever"
    return f"{days:,} day{'s' if days != 1 else ''}"
