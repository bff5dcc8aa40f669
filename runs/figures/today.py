"""Today so far beside the median of the days before, and what each flow did day by day. Days are those of UTC."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from statistics import median

from django.db.models import Sum

from runs.figures.periods import Period, last_days
from runs.figures.sums import RUN_COLUMNS, RunSums
from runs.models import DailyRuns
from runs.statistics.durations import merge_counts

CHART_DAYS = 15
"""Days that charts show, today among them."""
MEDIAN_DAYS = 7
"""Days before today that the median is taken of."""
_COUNTS = tuple(name for name in RUN_COLUMNS if name != "durations")


@dataclass(frozen=True, slots=True)
class MedianDay:
    """The medians of what each day came to; a value is None where no day has one."""

    days: int
    """How many days had any run."""
    runs: int
    pass_rate: float | None
    first_rate: float | None
    duration_p50: float | None
    """Seconds, as ``duration_p95``."""
    duration_p95: float | None
    total_tokens: int
    cost: Decimal | None
    """USD."""
    unpriced: int
    """Attempts at an unknown price on all days together: costs are without them."""


@dataclass(frozen=True, slots=True)
class Today:
    """Runs that ended today so far, and the median of those of the ``MEDIAN_DAYS`` before on which any ended."""

    day: date
    so_far: RunSums
    median: MedianDay | None
    """None where no run ended on these days."""


@dataclass(frozen=True, slots=True)
class FlowDay:
    """Runs of one flow that ended on one day, without their durations."""

    flow_id: int
    name: str
    title: str
    day: date
    sums: RunSums


def choose_period(today: date) -> Period:
    """Today and the days before it that charts show."""
    return last_days(CHART_DAYS, today)


def load_flow_days(period: Period) -> Mapping[bool, Sequence[FlowDay]]:
    """What each flow did on each day of a period: simulated runs under True, real ones under False."""
    rows = DailyRuns.objects.filter(day__range=(period.first, period.last)).order_by()
    groups = rows.values_list("is_simulated", "flow", "flow__name", "flow__title", "day")
    by_kind: dict[bool, list[FlowDay]] = {}
    for is_simulated, flow, name, title, day, *columns in groups.annotate(*(Sum(column) for column in _COUNTS)):
        by_kind.setdefault(is_simulated, []).append(FlowDay(flow, name, title, day, RunSums(*columns)))
    return by_kind


def compare_today(today: date, rows: Collection[FlowDay], *, is_simulated: bool) -> Today:
    """Today beside the days before; ``rows`` are those that ``load_flow_days`` gave for these runs."""
    durations: dict[date, list[Mapping[str, int]]] = {}
    first = today - timedelta(days=MEDIAN_DAYS)
    stored = DailyRuns.objects.filter(day__range=(first, today), is_simulated=is_simulated).order_by()
    for day, counts in stored.values_list("day", "durations"):
        durations.setdefault(day, []).append(counts)

    def join(day: date) -> RunSums:
        sums = RunSums.join((row.sums for row in rows if row.day == day), with_durations=False)
        sums.durations = merge_counts(durations.get(day, ()))
        return sums

    before = [join(today - timedelta(days=number)) for number in range(1, MEDIAN_DAYS + 1)]
    return Today(today, join(today), _find_median([sums for sums in before if sums.runs]))


def _find_median(days: Sequence[RunSums]) -> MedianDay | None:
    if not days:
        return None
    costs = [sums.known_cost for sums in days if sums.known_cost is not None]
    return MedianDay(
        days=len(days),
        runs=round(median(sums.runs for sums in days)),
        pass_rate=_median_of(sums.pass_rate for sums in days),
        first_rate=_median_of(sums.first_rate for sums in days),
        duration_p50=_median_of(sums.median for sums in days),
        duration_p95=_median_of(sums.p95 for sums in days),
        total_tokens=round(median(sums.total_tokens for sums in days)),
        cost=median(costs) if costs else None,
        unpriced=sum(sums.unpriced for sums in days),
    )


def _median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
