"""Today against the usual: sums of the daily rows of all flows.

The usual is what the days before today with runs came to on average. Costs two queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

from django.db.models import QuerySet, Sum

from runs.figures.means import divide_cost, divide_count
from runs.figures.periods import Period, last_days
from runs.figures.sums import RUN_COLUMNS, RunSums
from runs.models import DailyRuns
from runs.prepared_select import PreparedSelect

DAYS_BEFORE = 14
_COUNTS = tuple(name for name in RUN_COLUMNS if name != "durations")


@dataclass(frozen=True, slots=True)
class Today:
    """Runs that ended today so far (UTC), and those of ``days`` days before on which any ended."""

    so_far: RunSums
    before: RunSums
    days: int

    @property
    def usual_runs(self) -> int | None:
        """Runs of an average day."""
        return divide_count(self.before.runs, self.days)

    @property
    def usual_tokens(self) -> int | None:
        """Tokens of an average day."""
        return divide_count(self.before.total_tokens, self.days)

    @property
    def usual_cost(self) -> Decimal | None:
        """Cost of an average day in USD."""
        return None if self.before.known_cost is None else divide_cost(self.before.cost, self.days)


@dataclass(frozen=True, slots=True)
class FlowDay:
    """Runs of one flow that ended on one day, without their durations."""

    flow_id: int
    name: str
    title: str
    day: date
    sums: RunSums


def choose_period(today: date) -> Period:
    """Today and the days before that make the usual."""
    return last_days(DAYS_BEFORE + 1, today)


def read_flow_days(period: Period) -> Mapping[bool, Sequence[FlowDay]]:
    """What each flow did on each day of a period: of simulated runs under True, of real ones under False, if any."""
    by_kind: dict[bool, list[FlowDay]] = {}
    for is_simulated, flow, name, title, day, *columns in _FLOW_DAYS.fetch((period.first, period.last)):
        by_kind.setdefault(is_simulated, []).append(FlowDay(flow, name, title, day, RunSums(*columns)))
    return by_kind


def compare_today(period: Period, rows: Sequence[FlowDay], *, is_simulated: bool) -> Today:
    """The last day of ``period`` beside those before it; ``rows`` are all that was read of these runs."""
    today = period.last
    found = _prepare_durations(is_simulated).fetch((period.first, today))
    timed = [(day, RunSums(durations=counts)) for day, counts in found]
    days = [*((row.day, row.sums) for row in rows), *timed]
    return Today(
        so_far=RunSums.join(sums for day, sums in days if day == today),
        before=RunSums.join(sums for day, sums in days if day < today),
        days=len({row.day for row in rows if row.day < today and row.sums.runs}),
    )


def _select_flow_days(span: Sequence[Any]) -> QuerySet[Any, Any]:
    rows = DailyRuns.objects.filter(day__range=span).order_by()
    groups = rows.values_list("is_simulated", "flow", "flow__name", "flow__title", "day")
    return groups.annotate(*(Sum(column) for column in _COUNTS))


_FLOW_DAYS = PreparedSelect(_select_flow_days, kinds=(date, date))


@cache
def _prepare_durations(is_simulated: bool) -> PreparedSelect:
    def build(span: Sequence[Any]) -> QuerySet[Any, Any]:
        rows = DailyRuns.objects.filter(day__range=span, is_simulated=is_simulated).order_by()
        return rows.values_list("day", "durations")

    return PreparedSelect(build, kinds=(date, date))
