"""Sums over all days that there are statistics of. Runs that were simulated are none of them.

Sums of days that are long over are remembered, for as long as the statistics say that they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from operator import add
from typing import Any

from django.db.models import Min, QuerySet, Sum, Value
from django.utils import timezone

from flows.models import Flow
from runs.models import DailyRuns, DailySteps
from runs.statistics.turns import TOLD, read_edition

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

REMEMBERED = TOLD + timedelta(days=1)
"""How long before today a day lies at least that is remembered: the clock of a worker may be behind by hours."""

Sums = dict[str, int | Decimal]
_Groups = dict[tuple[int, str], tuple[int, ...]]
"""By flow and model: the key of the first row, and the sums."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was ever counted: by the name of a flow, and by that and the model that answered."""

    by_flow: Mapping[str, Sums]
    by_model: Mapping[tuple[str, str], Sums]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Sums of all days before one."""

    edition: str
    """Of the statistics that were added up."""
    before: date
    runs: _Groups
    steps: _Groups


class CountedDays:
    """Adds up the last days anew, and remembers the sums of those before them."""

    def __init__(self) -> None:
        self._remembered: _Remembered | None = None

    def read(self) -> Counted:
        """What was counted until now of runs that were not simulated: the same whichever process is asked.

        Takes four queries; two more on a new day, and after earlier days changed.
        """
        flows = dict(Flow.objects.order_by().values_list("pk", "name"))
        past = self._remember(read_edition())
        return Counted(
            by_flow={
                flow: sums
                for (flow, _), sums in _name(
                    _merge(past.runs, _add_up_runs(day__gte=past.before)), RUN_COUNTS, flows
                ).items()
            },
            by_model=_name(_merge(past.steps, _add_up_steps(day__gte=past.before)), STEP_COUNTS, flows),
        )

    def _remember(self, edition: str) -> _Remembered:
        # Read before the days are: what changes in between is another edition, and added up again the next time.
        before = timezone.now().astimezone(UTC).date() - REMEMBERED
        known = self._remembered
        if known is None or known.edition != edition or known.before > before:
            found = _Remembered(edition, before, _add_up_runs(day__lt=before), _add_up_steps(day__lt=before))
        elif known.before < before:
            days = {"day__gte": known.before, "day__lt": before}
            runs, steps = _merge(known.runs, _add_up_runs(**days)), _merge(known.steps, _add_up_steps(**days))
            found = _Remembered(edition, before, runs, steps)
        else:
            return known
        self._remembered = found
        return found


def _add_up_runs(**days: date) -> _Groups:
    return _add_up(DailyRuns.objects.annotate(model=Value("")).filter(**days), RUN_COUNTS)


def _add_up_steps(**days: date) -> _Groups:
    return _add_up(DailySteps.objects.filter(**days), STEP_COUNTS)


def _add_up(rows: QuerySet[Any], counts: tuple[str, ...]) -> _Groups:
    # The index of each table begins with flow and day.
    rows = rows.filter(is_simulated=False, flow__in=Flow.objects.order_by().values("pk"))
    groups = rows.order_by().values_list("flow", "model").annotate(Min("pk"), *map(Sum, counts))
    return {(flow, model): tuple(values) for flow, model, *values in groups}


def _merge(past: _Groups, recent: _Groups) -> _Groups:
    merged = dict(past)
    for key, (first, *sums) in recent.items():
        if known := past.get(key):
            merged[key] = (min(first, known[0]), *map(add, known[1:], sums))
        else:
            merged[key] = (first, *sums)
    return merged


def _name(groups: _Groups, counts: tuple[str, ...], flows: Mapping[int, str]) -> dict[tuple[str, str], Sums]:
    """The sums by the names of flow and model; what came last is one together if there is too much of it."""
    named: dict[tuple[str, str], Sums] = {}
    in_order = sorted(groups.items(), key=lambda group: group[1][0])
    for place, ((flow, model), (_, *values)) in enumerate(in_order):
        names = (flows.get(flow, OTHER), model or NO_MODEL) if place < MOST_SERIES else (OTHER, OTHER)
        total = named.setdefault(names, dict.fromkeys(counts, 0))
        for name, value in zip(counts, values, strict=True):
            total[name] += value
    return named
