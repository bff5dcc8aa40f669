"""Sums over all days that there are statistics of. Runs that were simulated are none of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import F, Min, QuerySet, Sum, Value

from flows.models import Flow
from runs.models import DailyRuns, DailySteps

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
_Groups = dict[tuple[int, str], tuple[int, ...]]
"""By flow and model: the key of the first row, and the sums."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was ever counted: by the name of a flow, and by that and the model that answered."""

    by_flow: Mapping[str, Sums]
    by_model: Mapping[tuple[str, str], Sums]


def read_counted() -> Counted:
    """What was counted until now of runs that were not simulated, in three queries."""
    flows = dict(Flow.objects.order_by().values_list("pk", "name"))
    runs = _add_up(DailyRuns.objects.all(), Value(""), RUN_COUNTS)
    return Counted(
        by_flow={flow: sums for (flow, _), sums in _name(runs, RUN_COUNTS, flows).items()},
        by_model=_name(_add_up(DailySteps.objects.all(), F("model"), STEP_COUNTS), STEP_COUNTS, flows),
    )


def _add_up(rows: QuerySet[Any], model: F | Value, counts: tuple[str, ...]) -> _Groups:
    groups = rows.filter(is_simulated=False).order_by().values_list("flow", model)
    return {(flow, name): tuple(values) for flow, name, *values in groups.annotate(Min("pk"), *map(Sum, counts))}


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
