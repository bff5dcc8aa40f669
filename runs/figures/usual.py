"""Today until now against the usual: the same part of the days before, off the hourly rows of all flows.

A day is that of whoever looks, in their time zone. Hours are those of UTC: where a zone is half an hour off, its days
begin with the first whole hour of UTC in them. Costs two queries.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from functools import cache, lru_cache
from statistics import median
from typing import Any

from django.db.models import Aggregate, QuerySet, Sum, TextField
from django.db.models.sql.compiler import SQLCompiler

from runs.figures.periods import Period, last_days
from runs.figures.sums import RUN_COLUMNS, RunSums
from runs.models import DailyRuns, HourlyRuns
from runs.prepared_select import PreparedSelect
from runs.statistics.durations import merge_counts

DAYS_BEFORE = 14
"""Days before today that charts show."""
USUAL_DAYS = 7
"""Days before today that make the usual."""
_COUNTS = tuple(name for name in RUN_COLUMNS if name != "durations")
_HOUR_COUNTS = ("runs", "succeeded", "failed", "errored", "cancelled", "first_time", "total_tokens", "cost", "unpriced")
_HOUR = timedelta(hours=1)
_REMEMBERED_HOURS = 2 * 24 * (USUAL_DAYS + 1)
"""Of real runs and of simulated ones."""


@dataclass(frozen=True, slots=True)
class Today:
    """Runs that ended today so far, and those of the same part of ``days`` days before on which any ended."""

    day: date
    since: datetime | None
    """The hour with which today begins; None where not all was counted by hour: then today is that of UTC, alone."""
    so_far: RunSums
    before: RunSums = field(default_factory=RunSums)
    """Runs of that part of all those days, with the whole of the hour that is under way today."""
    days: int = 0
    lacking: int = 0
    """Further days before, which were not all counted by hour."""
    usual_runs: int | None = None
    """Runs of the day in the middle; what ended in the hour under way counts for as much of it as is over."""
    usual_tokens: int | None = None
    usual_cost: Decimal | None = None
    """USD; None where no price is known."""


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
    return last_days(DAYS_BEFORE + 1, today)


def read_flow_days(period: Period) -> Mapping[bool, Sequence[FlowDay]]:
    """What each flow did on each day of a period: of simulated runs under True, of real ones under False, if any."""
    by_kind: dict[bool, list[FlowDay]] = {}
    for is_simulated, flow, name, title, day, *columns in _FLOW_DAYS.fetch((period.first, period.last)):
        by_kind.setdefault(is_simulated, []).append(FlowDay(flow, name, title, day, RunSums(*columns)))
    return by_kind


def compare_today(now: datetime, rows: Collection[FlowDay], *, is_simulated: bool, zone: tzinfo) -> Today:
    """Today in ``zone`` beside the days before; ``rows`` are all that was read of these runs by day."""
    local = now.astimezone(zone)
    today, *others = [_find_part(local, days) for days in range(USUAL_DAYS + 1)]
    last = now.astimezone(UTC).date()
    hours = _read_hours(others[-1].begin.date(), last, is_simulated=is_simulated)
    unknown = _find_unknown_days(rows, hours)
    if today.touches(unknown):
        return Today(last, None, RunSums.join((row.sums for row in rows if row.day == last), with_durations=False))
    known = [part for part in others if not part.touches(unknown)]
    # A day counts on which anything ran, also if not by that time.
    days = [_DayPart(part, hours) for part in known if any(part.begin <= hour.begin < part.day_end for hour in hours)]
    before = _join_hours(hour for day in days for hour in day.hours)
    return Today(
        day=local.date(),
        since=today.begin,
        # Without an end: the clock of the database may be ahead.
        so_far=_join_hours(hour for hour in hours if hour.begin >= today.begin),
        before=before,
        days=len(days),
        lacking=len(others) - len(known),
        usual_runs=round(median(day.weigh("runs") for day in days)) if days else None,
        usual_tokens=round(median(day.weigh("total_tokens") for day in days)) if days else None,
        usual_cost=median(day.weigh("cost") for day in days) if days and before.known_cost is not None else None,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """As much of a day as is over at the time of now, in UTC; begins and ends of days are whole hours."""

    begin: datetime
    end: datetime
    day_end: datetime

    def touches(self, days: Collection[date]) -> bool:
        """Whether any of it or of the rest of its day is on one of these days of UTC."""
        return self.begin.date() in days or (self.day_end - _HOUR).date() in days


def _find_part(local: datetime, days: int) -> _Part:
    """The part of the day so many days before ``local``."""
    day, zone = local.date() - timedelta(days=days), local.tzinfo
    begin = datetime.combine(day, time(), tzinfo=zone)
    day_end = datetime.combine(day + timedelta(days=1), time(), tzinfo=zone)
    return _Part(_round_up(begin), datetime.combine(day, local.time(), tzinfo=zone).astimezone(UTC), _round_up(day_end))


def _round_up(moment: datetime) -> datetime:
    """The first whole hour of UTC that is not before a moment."""
    moment = moment.astimezone(UTC)
    whole = moment.replace(minute=0, second=0, microsecond=0)
    return whole if whole == moment else whole + _HOUR


@dataclass(frozen=True, slots=True)
class _Hour:
    """Runs of all flows that ended in an hour."""

    day: date
    begin: datetime
    sums: RunSums
    """Without durations."""
    durations: str
    """Of each flow, as JSON with commas between: to read and to add them up takes long, and not all are wanted."""


def _join_hours(hours: Iterable[_Hour]) -> RunSums:
    hours = list(hours)
    joined = RunSums.join((hour.sums for hour in hours), with_durations=False)
    joined.durations = merge_counts(_merge_hour(hour.durations) for hour in hours)
    return joined


@lru_cache(maxsize=_REMEMBERED_HOURS)
def _merge_hour(durations: str) -> Mapping[str, int]:
    """Those of all flows. Asked by what is stored, since most hours are over and remain as they are."""
    return merge_counts(json.loads(f"[{durations}]"))


def _read_hours(first: date, last: date, *, is_simulated: bool) -> list[_Hour]:
    """What was counted in each hour of days of UTC."""
    return [
        _Hour(
            day,
            datetime(day.year, day.month, day.day, hour, tzinfo=UTC),
            RunSums(**dict(zip(_HOUR_COUNTS, values, strict=True))),
            durations,
        )
        for day, hour, durations, *values in _prepare_hours(is_simulated).fetch((first, last))
    ]


class _DayPart:
    """The hours of a day that have begun by the time of now."""

    def __init__(self, part: _Part, hours: Iterable[_Hour]) -> None:
        self.hours = [hour for hour in hours if part.begin <= hour.begin < part.end]
        self._shares = [min(Decimal(1), Decimal((part.end - hour.begin) / _HOUR)) for hour in self.hours]

    def weigh(self, name: str) -> Decimal:
        """The sum of what hours count under ``name``, the one under way in proportion."""
        amounts = (getattr(hour.sums, name) for hour in self.hours)
        return sum((amount * share for amount, share in zip(amounts, self._shares, strict=True)), Decimal(0))


def _find_unknown_days(rows: Iterable[FlowDay], hours: Iterable[_Hour]) -> set[date]:
    """Days of UTC on which more runs were counted than in their hours: by a release that knew no hours."""
    missing: Counter[date] = Counter()
    for row in rows:
        missing[row.day] += row.sums.runs
    for hour in hours:
        missing[hour.day] -= hour.sums.runs
    return {day for day, count in missing.items() if count > 0}


def _select_flow_days(span: Sequence[Any]) -> QuerySet[Any, Any]:
    rows = DailyRuns.objects.filter(day__range=span).order_by()
    groups = rows.values_list("is_simulated", "flow", "flow__name", "flow__title", "day")
    return groups.annotate(*(Sum(column) for column in _COUNTS))


_FLOW_DAYS = PreparedSelect(_select_flow_days, kinds=(date, date))


class _JoinTexts(Aggregate):
    """The texts of all rows with commas between: a row for each flow and hour would take longer to read than to sum."""

    name = "Texts"
    function = "GROUP_CONCAT"
    output_field = TextField()

    def as_postgresql(self, compiler: SQLCompiler, connection: Any, **extra: Any) -> tuple[str, Sequence[Any]]:
        template = "STRING_AGG((%(expressions)s)::text, ',')"
        return super().as_sql(compiler, connection, template=template, **extra)


@cache
def _prepare_hours(is_simulated: bool) -> PreparedSelect:
    """What all flows together counted in each hour of a span."""

    def find(span: Sequence[Any]) -> QuerySet[Any, Any]:
        rows = HourlyRuns.objects.filter(day__range=span, is_simulated=is_simulated).order_by()
        groups = rows.values_list("day", "hour")
        return groups.annotate(_JoinTexts("durations"), *(Sum(name) for name in _HOUR_COUNTS))

    return PreparedSelect(find, kinds=(date, date))
