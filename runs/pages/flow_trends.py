"""Periods of flow pages, marks where versions begin, and trends of one value over the days of a period.

Pure: sums go in, SVG attributes and texts come out. Horizontal positions are percentages, vertical ones pixels.
A slot without data (None) is a gap, which is not a zero: lines stop before it and begin after it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from runs.pages.small_charts import WIDTH, format_number
from runs.statistics.figures import DayRuns
from runs.statistics.sums import DAY, WEEK, Period, Slot

TOP, AREA = 14, 44
"""Pixels above the plot, for marks of versions, and of the plot itself."""
MAX_TAKEOVERS = 10
"""Marks of days on which an earlier version took over again: more of them would hide the charts."""
_END = 93.0
"""Per cent; labels of marks behind it stand on the left of their marks."""

_LENGTHS: Mapping[str, tuple[str, int, int]] = {
    "7d": ("7 days", 7, DAY),
    "14d": ("14 days", 14, DAY),
    "30d": ("30 days", 30, DAY),
    "90d": ("90 days", 90, DAY),
    "12m": ("12 months", 52 * 7, WEEK),
}
PERIODS: Mapping[str, str] = {name: words for name, (words, _, _) in _LENGTHS.items()}
"""Words of the periods to choose from, by their names in addresses."""
DEFAULT_PERIOD = "14d"


@dataclass(frozen=True)
class NamedPeriod(Period):
    """A period that can be chosen; ``words`` say how long it is."""

    words: str = ""


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


# ---------------------------------------------------------------------------------------------------------------
# Marks of versions


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something changed on the time axis; ``label`` is empty where it would touch a later one."""

    at: str
    label: str
    title: str
    is_at_end: bool = False
    """There is no room for the label on its right."""


@dataclass(frozen=True, slots=True)
class VersionMarks:
    """What changed of the versions in a period."""

    marks: tuple[Mark, ...]
    notes: Mapping[int, str]
    """In words, by the position of the slot."""
    sentence: str
    """What the marks leave out; empty if they leave out nothing."""


def mark_versions(
    period: Period, days: Sequence[DayRuns], numbers: Mapping[int, int], first_days: Mapping[int, date]
) -> VersionMarks:
    """Mark the days on which the first runs of versions ended, and those from which on another one has most runs.

    A version that never ran changed nothing. ``numbers`` and ``first_days`` are by the versions' keys.
    """
    changes: list[tuple[date, str, str]] = []
    notes: dict[int, list[str]] = {}
    for key, day in sorted(first_days.items(), key=lambda item: numbers[item[0]]):
        name = f"v{numbers[key]}"
        changes.append((day, name, f"{name} since {format_day(day)}"))
        if (position := period.find_slot(day)) is not None:
            notes.setdefault(position, []).append(name)
    takeovers = list(_find_takeovers(period, days, numbers, first_days))
    for position, key in takeovers:
        notes.setdefault(position, []).append(f"mostly v{numbers[key]}")
    for position, key in takeovers[-MAX_TAKEOVERS:]:
        day, name = period.slots[position].first, f"v{numbers[key]}"
        changes.append((day, name, f"most runs use {name} from {format_day(day)}"))
    sentence = ""
    if len(takeovers) > MAX_TAKEOVERS:
        sentence = f"Earlier versions took over {len(takeovers)} times. Charts mark the latest {MAX_TAKEOVERS}."
    return VersionMarks(
        _place_marks(period, changes), {position: ", ".join(names) for position, names in notes.items()}, sentence
    )


def _find_takeovers(
    period: Period, days: Sequence[DayRuns], numbers: Mapping[int, int], first_days: Mapping[int, date]
) -> Iterator[tuple[int, int]]:
    """Slots in which another version has most runs than in the last slot before it that has any, with its key.

    The first days of a version are no takeover: its mark is there already, or in the slot before.
    """
    counts: dict[int, Counter[int]] = {}
    for day in days:
        if (position := period.find_slot(day.day)) is not None:
            counts.setdefault(position, Counter())[day.version_id] += day.sums.runs
    before: tuple[int, int] | None = None
    for position, runs in sorted(counts.items()):
        # Of several with as many runs it is the one that led before, or the latest.
        rank = {key: (runs[key], before is not None and key == before[1], numbers[key]) for key in runs}
        leading = max(rank, key=rank.__getitem__)
        if before is not None and leading != before[1]:
            first_day = first_days.get(leading)
            if first_day is None or period.find_slot(first_day) not in (position, before[0]):
                yield position, leading
        before = position, leading


def _place_marks(period: Period, changes: Sequence[tuple[date, str, str]]) -> tuple[Mark, ...]:
    """Marks for changes (day, label, title) in their order; those of one slot share a mark, which names the last."""
    by_slot: dict[int, list[tuple[str, str]]] = {}
    for day, label, title in changes:
        if (position := period.find_slot(day)) is not None:
            by_slot.setdefault(position, []).append((label, title))
    marks: list[Mark] = []
    taken_from = math.inf
    # The latest changes keep their labels.
    for position, found in sorted(by_slot.items(), reverse=True):
        at = 100 * position / len(period.slots)
        label, title = found[-1][0], "; ".join(title for _, title in found)
        # Per cent that it takes on a phone.
        width = 2.0 + 3.0 * len(label)
        begin = at - width if at > _END else at
        is_shown = begin + width <= taken_from
        marks.append(Mark(f"{format_number(at)}%", label if is_shown else "", title, is_at_end=at > _END))
        if is_shown:
            taken_from = begin
    return tuple(reversed(marks))


# ---------------------------------------------------------------------------------------------------------------
# Trends


@dataclass(frozen=True, slots=True)
class Trend:
    """One value over a period as a line on an area, in a box of ``WIDTH`` by ``AREA``."""

    lines: tuple[str, ...]
    """Point lists, one for each stretch without a gap."""
    areas: tuple[str, ...]
    end_x: str
    end_y: str
    end_label: str
    """The latest value."""
    title: str


def plot_trend(values: Sequence[float | None], *, scale: float, format_value: Callable[[float], str]) -> Trend | None:
    """Draw values from zero to ``scale``; None if there are fewer than two of them."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    share = WIDTH / len(values)

    def place_value(place: int, value: float) -> tuple[str, str]:
        height = (1 - min(value / (scale or 1.0), 1.0)) * AREA
        return format_number(share * (place + 0.5)), format_number(height)

    lines, areas = [], []
    for stretch in _split_at_gaps(values):
        points = [place_value(place, value) for place, value in stretch]
        if len(points) == 1:  # A line of one point is none.
            points = [(format_number(float(points[0][0]) + offset), points[0][1]) for offset in (-4, 4)]
        line = " ".join(f"{x},{y}" for x, y in points)
        lines.append(line)
        areas.append(f"{points[0][0]},{AREA} {line} {points[-1][0]},{AREA}")
    place, last = known[-1]
    _, end_y = place_value(place, last)
    return Trend(
        lines=tuple(lines),
        areas=tuple(areas),
        end_x=f"{format_number(100 * (place + 0.5) / len(values))}%",
        end_y=format_number(TOP + float(end_y)),
        end_label=format_value(last),
        title=f"From {format_value(known[0][1])} to {format_value(last)}",
    )


def _split_at_gaps(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    stretch: list[tuple[int, float]] = []
    for position, value in enumerate((*values, None)):
        if value is not None:
            stretch.append((position, value))
        elif stretch:
            yield stretch
            stretch = []
