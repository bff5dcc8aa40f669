"""The periods that pages of flows offer, and how days read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from runs.statistics.sums import DAY, WEEK, Period, Slot


@dataclass(frozen=True)
class NamedPeriod(Period):
    """A period that can be chosen; ``words`` say how long it is."""

    words: str = ""


_LENGTHS: Mapping[str, tuple[str, int, int]] = {
    "7d": ("7 days", 7, DAY),
    "30d": ("30 days", 30, DAY),
    "90d": ("90 days", 90, DAY),
    "12m": ("12 months", 52 * 7, WEEK),
}
PERIODS: Mapping[str, str] = {name: words for name, (words, _, _) in _LENGTHS.items()}
"""Words of the periods to choose from, by their names in addresses."""
USUAL = "30d"


def build_period(name: str, today: date) -> NamedPeriod:
    """The period of that name that ends today; the one by weeks begins on a Monday. Raises ``KeyError``."""
    words, days, slot_days = _LENGTHS[name]
    first = today - timedelta(days=days - 1)
    if slot_days == WEEK:
        first = today - timedelta(days=today.weekday() + days - WEEK)
    return NamedPeriod(first, today, slot_days, words)


@lru_cache(maxsize=1_000)
def describe_slot(slot: Slot) -> str:
    """A day or a week in words: ``Mon 12 May 2026``, or ``12 May 2026 to 18 May 2026``."""
    if slot.first == slot.last:
        return f"{slot.first:%a} {format_day(slot.first)}"
    return f"{format_day(slot.first)} to {format_day(slot.last)}"


def format_day(day: date) -> str:
    """A day with its year: ``5 May 2026``."""
    return f"{day.day} {day:%b %Y}"
