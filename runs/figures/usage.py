"""Tokens and cost of all flows, grouped by flow, version, model and day. Costs one query, of the daily rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db.models import QuerySet, Sum

from flows.models import Flow
from runs.figures.sums import Spent
from runs.models import DailyRuns, DailySteps

FLOW, VERSION, MODEL, DAY = "flow", "version", "model", "day"
GROUPS: Mapping[str, tuple[str, ...]] = {
    FLOW: ("flow__name",),
    # Versions are numbered within their flow: without it a number says nothing.
    VERSION: ("flow__name", "version__number"),
    MODEL: ("model",),
    DAY: ("day",),
}
"""What usage can be grouped by, with the columns of each."""
_KEYS = ("flow__name", "version__number", "model", "day")
_STEP_COLUMNS = ("total_tokens", "cost", "unpriced", "attempts", "prompt_tokens", "completion_tokens")
_RUN_COLUMNS = (*_STEP_COLUMNS, "runs", "cached_tokens", "reasoning_tokens")


@dataclass(slots=True)
class UsageSums(Spent):
    """Attempts and what they used. Runs, cached and reasoning tokens are None where models are told apart."""

    attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    runs: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """What one group used; a key that usage is not grouped by is None. The model is empty where none answered."""

    flow: str | None
    version: int | None
    model: str | None
    day: date | None
    sums: UsageSums


@dataclass(frozen=True, slots=True)
class UsageScope:
    """Whose usage is meant: from ``first`` to ``last``, of one flow, version or model if they are given."""

    first: date
    last: date
    is_simulated: bool
    flow: Flow | None = None
    version_id: int | None = None
    model: str | None = None

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those of ``rows`` that are meant."""
        # The indexes begin with the flow.
        flows = Flow.objects.values("pk") if self.flow is None else [self.flow.pk]
        rows = rows.filter(flow__in=flows, day__range=(self.first, self.last), is_simulated=self.is_simulated)
        if self.version_id is not None:
            rows = rows.filter(version=self.version_id)
        return rows if self.model is None else rows.filter(model=self.model)


def read_usage(scope: UsageScope, by: Collection[str], *, limit: int) -> list[UsageGroup]:
    """Up to ``limit`` groups ``by`` some of ``GROUPS``, in the order of flow, version, model and day."""
    has_models = MODEL in by or scope.model is not None
    rows = scope.narrow((DailySteps if has_models else DailyRuns).objects.order_by())
    wanted = {column for name in by for column in GROUPS[name]}
    keys = [key for key in _KEYS if key in wanted]
    columns = _STEP_COLUMNS if has_models else _RUN_COLUMNS
    groups = rows.values_list(*keys).annotate(*(Sum(column) for column in columns)).order_by(*keys)
    found = []
    for values in groups[:limit]:
        own = dict(zip(keys, values, strict=False))
        sums = UsageSums(*values[len(keys) :])
        found.append(
            UsageGroup(own.get("flow__name"), own.get("version__number"), own.get("model"), own.get("day"), sums)
        )
    return found
