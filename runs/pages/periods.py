"""Spans of days that pages sum up statistics over, and the slots of their charts: days, or weeks for long ones.

Days are those of UTC, as statistics count them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

DAY, WEEK = 1, 7


@dataclass(frozen=True, slots=True)
class Slot:
    """One place on a time axis: a day or a week."""

    first: date
    last: date

    @property
    def words(self) -> str:
        """``Mon 12 May 2026``, or ``12 May 2026 to 18 May 2026``."""
        if self.first == self.last:
            return f"{self.first:%a} {format_day(self.first)}"
        return f"{format_day(self.first)} to {format_day(self.last)}"


@dataclass(frozen=True)
class Period:
    """Days from ``first`` to ``last``, both counted in, in slots of ``slot_days`` days."""

    name: str
    words: str
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


_LENGTHS: Mapping[str, tuple[str, int, int]] = {
    "7d": ("7 days", 7, DAY),
    "30d": ("30 days", 30, DAY),
    "90d": ("90 days", 90, DAY),
    "12m": ("12 months", 52 * 7, WEEK),
}
PERIODS: Mapping[str, str] = {name: words for name, (words, _, _) in _LENGTHS.items()}
"""Words of the periods to choose from, by their names in addresses."""
USUAL = "30d"


def build_period(name: str, today: date) -> Period:
    """The period of that name that ends today; the one by weeks begins on a Monday. Raises ``KeyError``."""
    words, days, slot_days = _LENGTHS[name]
    first = today - timedelta(days=days - 1)
    if slot_days == WEEK:
        first = today - timedelta(days=today.weekday() + days - WEEK)
    return Period(name, words, first, today, slot_days)


def last_days(count: int, today: date) -> Period:
    """The last ``count`` days, today among them."""
    return Period(f"{count}d", f"{count} days", today - timedelta(days=count - 1), today)


def format_day(day: date) -> str:
    """A day with its year: ``5 May 2026``."""
    return f"{day.day} {day:%b %Y}"
