"""Spans of days that statistics are summed up over, in slots: days or weeks.

Days are those of UTC, as statistics count them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from runs.figures.sums import RunSums, StepSums

DAY, WEEK = 1, 7


@dataclass(frozen=True, slots=True)
class Slot:
    """One place on a time axis: a day or a week."""

    first: date
    last: date


@dataclass(frozen=True)
class Period:
    """Days from ``first`` to ``last``, both counted in, in slots of ``slot_days`` days."""

    first: date
    last: date
    slot_days: int = DAY

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots from the oldest on; the last one may end after the period."""
        length = timedelta(days=self.slot_days)
        count = (self.last - self.first).days // self.slot_days + 1
        begins = (self.first + length * position for position in range(count))
        return tuple(Slot(begin, begin + length - timedelta(days=1)) for begin in begins)

    @property
    def unit(self) -> str:
        """What a slot is: ``day`` or ``week``."""
        return "day" if self.slot_days == DAY else "week"

    def find_slot(self, day: date) -> int | None:
        """The position of the slot that ``day`` lies in; None outside of the period."""
        return (day - self.first).days // self.slot_days if self.first <= day <= self.last else None


def last_days(count: int, today: date) -> Period:
    """The last ``count`` days, today among them."""
    return Period(today - timedelta(days=count - 1), today)


def sum_by_slot(
    period: Period, days: Iterable[tuple[date, RunSums]], *, with_durations: bool = False
) -> list[RunSums | None]:
    """Runs of each slot of the period; None where none ended."""
    found: dict[int, list[RunSums]] = {}
    for day, sums in days:
        position = period.find_slot(day)
        if position is not None:
            found.setdefault(position, []).append(sums)
    return [
        RunSums.join(found[position], with_durations=with_durations) if position in found else None
        for position in range(len(period.slots))
    ]


def sum_steps_by_slot(period: Period, days: Iterable[tuple[date, StepSums]]) -> list[StepSums | None]:
    """Steps of each slot of the period; None where none was tried."""
    found: dict[int, list[StepSums]] = {}
    for day, sums in days:
        position = period.find_slot(day)
        if position is not None:
            found.setdefault(position, []).append(sums)
    return [StepSums.join(found[position]) if position in found else None for position in range(len(period.slots))]
