"""Sums over all days that there are statistics of, so made that they cost the same however many those are.

Days that are over for long don't change any more: their sums are remembered for a while. What counts now is read anew.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from django.db.models import Min, Q, Sum

from flows.models import Flow
from runs.models import DailyRuns, DailySteps

RECENT = timedelta(days=2)
"""Days that are read each time: runs may be tallied after the day of their end."""
MEMORY = 3600.0
"""Seconds for which sums of earlier days are remembered; only rebuilding the statistics changes them."""

MOST_SERIES = 1_000
"""Pairs of flow and model, and flows, that have series of their own: those that ran first. Others are one together."""
OTHER, NO_MODEL = "(other)", "(none)"
"""Stand for those, and for attempts that no model answered."""

RUN_COUNTS = (
    "succeeded", "failed", "errored", "cancelled", "retries", "cached_tokens", "reasoning_tokens", "unpriced",
)  # fmt: skip
"""What is counted by flow."""
STEP_COUNTS = ("prompt_tokens", "completion_tokens", "cost", "attempts")
"""What is counted by flow and model."""

Sums = dict[str, int | Decimal]


@dataclass(frozen=True, slots=True)
class Counted:
    """What was ever counted: by the name of a flow, and by that and the model that answered."""

    by_flow: Mapping[str, Sums]
    by_model: Mapping[tuple[str, str], Sums]


_Key = tuple[int, str]


class _Days:
    """Sums of some days by flow and model, with the row that was first of each."""

    def __init__(self) -> None:
        self.runs: dict[_Key, Sums] = {}
        self.steps: dict[_Key, Sums] = {}
        self.first: dict[_Key, int] = {}

    @classmethod
    def read(cls, condition: Q) -> _Days:
        """Takes two queries."""
        found = cls()
        runs = DailyRuns.objects.filter(condition).order_by().values_list("flow")
        for flow, first, *values in runs.annotate(Min("pk"), *(Sum(name) for name in RUN_COUNTS)):
            found.runs[flow, ""] = dict(zip(RUN_COUNTS, values, strict=True))
            found.first[flow, ""] = first
        steps = DailySteps.objects.filter(condition).order_by().values_list("flow", "model")
        for flow, model, first, *values in steps.annotate(Min("pk"), *(Sum(name) for name in STEP_COUNTS)):
            found.steps[flow, model] = dict(zip(STEP_COUNTS, values, strict=True))
            found.first.setdefault((flow, model), first)
        return found


class CountedDays:
    """The sums, for one process. Any thread may read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._earlier: _Days | None = None
        self._border: date | None = None
        self._read_at = 0.0

    def read(self) -> Counted:
        """What was counted until now. Takes three queries, and two more where earlier days are not remembered."""
        flows = dict(Flow.objects.order_by().values_list("pk", "name"))
        border = datetime.now(UTC).date() - RECENT
        earlier = self._read_earlier(border)
        # By flow, so that the index leads to the days.
        recent = _Days.read(Q(flow__in=list(flows), day__gte=border))
        return Counted(
            by_flow={names[0]: sums for names, sums in _add(flows, earlier, recent, "runs").items()},
            by_model=_add(flows, earlier, recent, "steps"),
        )

    def _read_earlier(self, border: date) -> _Days:
        with self._lock:
            now = time.monotonic()
            if self._earlier is None or self._border != border or now - self._read_at > MEMORY:
                self._earlier = _Days.read(Q(day__lt=border))
                self._border, self._read_at = border, now
            return self._earlier


def _add(flows: Mapping[int, str], earlier: _Days, recent: _Days, part: str) -> dict[tuple[str, str], Sums]:
    """Both added up, by the names of flow and model; what came last is one together if there is too much of it."""
    sums: dict[_Key, Sums] = defaultdict(dict)
    for days in (earlier, recent):
        for key, values in getattr(days, part).items():
            _add_to(sums[key], values.items())
    order = sorted(sums, key=lambda key: min(days.first[key] for days in (earlier, recent) if key in days.first))
    named: dict[tuple[str, str], Sums] = defaultdict(dict)
    for place, (flow, model) in enumerate(order):
        names = (flows.get(flow, OTHER), model or NO_MODEL) if place < MOST_SERIES else (OTHER, OTHER)
        _add_to(named[names], sums[flow, model].items())
    return named


def _add_to(total: Sums, values: Iterable[tuple[str, int | Decimal]]) -> None:
    for name, value in values:
        total[name] = total.get(name, 0) + value
