"""Geometry of charts over days. Pure: what goes in are numbers, what comes out are SVG attributes.

As in the charts of a run, horizontal positions are percentages and vertical ones pixels, and all are text already.
Slots without data (None) are gaps, which are not zeros: nothing is drawn there, and lines stop before and begin after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import count

from runs.pages.small_charts import WIDTH, Fill, format_number, stack_columns
from runs.statistics.sums import WEEK, Period

TOP = 22
"""Room above the plot for marks of versions, in pixels."""
AREA = 150
BOTTOM = TOP + AREA
HEIGHT = BOTTOM + 24
_WIDEST_COLUMN = 5.0
_END = 93.0
"""Per cent; labels of marks behind it stand on the left of their marks."""

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
"""What durations are told in on an axis, in seconds."""

_FEW_SLOTS = 31
"""With more of them, only what has no neighbours gets a dot: a line of one point is none."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One mark of an axis at ``at`` (per cent from the left, or pixels from the top)."""

    at: str
    label: str
    is_minor: bool = False
    """Left out where there is little room."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something changed on the time axis; ``label`` is empty where it would touch a later one."""

    at: str
    label: str
    title: str
    is_at_end: bool = False
    """There is no room for the label on its right."""


@dataclass(frozen=True, slots=True)
class Hit:
    """The ground of one slot, as high as the plot: pointing at it tells the numbers."""

    x: str
    width: str
    title: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What all charts over days have: grid, axes, marks and the grounds of the slots."""

    period: Period
    ticks: tuple[Tick, ...]
    """Of the vertical axis, from zero on."""
    days: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    hits: tuple[Hit, ...]
    top: str = str(TOP)
    area: str = str(AREA)
    bottom: str = str(BOTTOM)
    height: str = str(HEIGHT)
    days_y: str = str(BOTTOM + 17)
    marks_y: str = str(TOP - 10)
    box: str = f"0 0 {WIDTH} {AREA}"
    """The view box of what is stretched over the plot."""


@dataclass(frozen=True, slots=True)
class DayColumns:
    """Stacked columns over days."""

    frame: Frame
    fills: tuple[Fill, ...]
    """In a box of ``WIDTH`` by ``AREA``."""


@dataclass(frozen=True, slots=True)
class Dot:
    x: str
    y: str


@dataclass(frozen=True, slots=True)
class Line:
    """One series: ``paths`` are point lists in a box of ``WIDTH`` by ``AREA``, one for each stretch without a gap."""

    kind: str
    paths: tuple[str, ...]
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class DayLines:
    """Values over days as lines above zero."""

    frame: Frame
    lines: tuple[Line, ...]


def plot_columns(
    period: Period,
    slots: Sequence[Mapping[str, float] | None],
    titles: Sequence[str],
    *,
    format_value: Callable[[float, float], str],
    marks: Sequence[Mark] = (),
    is_whole: bool = True,
) -> DayColumns:
    """Stack the values of each slot by kind, from the bottom on, in the order in which they come.

    ``titles`` tell what each slot holds, ``format_value`` writes a tick, given the distance of two. ``is_whole`` says
    that values are counts, so that there is no tick at 0.5.
    """
    most = max((sum(values.values()) for values in slots if values), default=0.0)
    step = choose_step(most, least=1.0 if is_whole else 0.0)
    scale = max(step * _round_up(most / step), step)
    ticks = tuple(
        Tick(format_number(BOTTOM - position * step / scale * AREA), format_value(position * step, step))
        for position in range(round(scale / step) + 1)
    )
    fills = stack_columns(slots, scale=scale, height=AREA, fill=min(0.7, _WIDEST_COLUMN * len(slots) / 100))
    return DayColumns(_build_frame(period, ticks, titles, marks), fills)


def plot_rates(
    period: Period, series: Mapping[str, Sequence[float | None]], titles: Sequence[str], *, marks: Sequence[Mark] = ()
) -> DayLines:
    """Draw fractions of one as lines from 0 to 100 per cent, one for each series by its kind."""
    ticks = tuple(Tick(format_number(BOTTOM - percent / 100 * AREA), f"{percent}%") for percent in (0, 25, 50, 75, 100))
    return DayLines(_build_frame(period, ticks, titles, marks), _draw_lines(series, scale=1.0))


def plot_durations(
    period: Period, series: Mapping[str, Sequence[float | None]], titles: Sequence[str], *, marks: Sequence[Mark] = ()
) -> DayLines:
    """Draw seconds as lines, one for each series by its kind.

    Ticks are whole numbers of the unit that suits the longest.
    """
    most = max((seconds for values in series.values() for seconds in values if seconds is not None), default=0.0)
    unit, name = next(((unit, name) for unit, name in _UNITS if most >= 2 * unit), _UNITS[-1])
    step = choose_step(most / unit, least=1.0)
    count_of_steps = max(_round_up(most / unit / step), 1)
    ticks = tuple(
        Tick(
            format_number(BOTTOM - position / count_of_steps * AREA), f"{position * step:g} {name}" if position else "0"
        )
        for position in range(count_of_steps + 1)
    )
    lines = _draw_lines(series, scale=count_of_steps * step * unit)
    return DayLines(_build_frame(period, ticks, titles, marks), lines)


def place_marks(period: Period, changes: Sequence[tuple[date, str, str]]) -> tuple[Mark, ...]:
    """Marks for changes (day, label, title) in their order; those of one slot share a mark, which names the last."""
    by_slot: dict[int, list[tuple[str, str]]] = {}
    for day, label, title in changes:
        position = period.find_slot(day)
        if position is not None:
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


def choose_step(most: float, *, least: float = 0.0) -> float:
    """The distance of two ticks: 1, 2 or 5 times a power of ten, so that there are at most five above zero."""
    if most <= 0:
        return least or 1.0
    for power in count(-8):
        for factor in (1, 2, 5):
            step = factor * 10.0**power
            if step >= least and most / step <= 5 * (1 + 1e-9):
                return step
    raise AssertionError


def _build_frame(period: Period, ticks: tuple[Tick, ...], titles: Sequence[str], marks: Sequence[Mark]) -> Frame:
    places, width = _place_slots(len(titles))
    hits = tuple(Hit(place, width, title) for place, title in zip(places, titles, strict=True))
    return Frame(period, ticks, _list_days(period), tuple(marks), hits)


@lru_cache(maxsize=100)
def _place_slots(count: int) -> tuple[tuple[str, ...], str]:
    """Where each of so many slots begins, and how wide they are: the same for all charts of a page."""
    share = 100 / count
    return tuple(f"{format_number(share * at)}%" for at in range(count)), f"{format_number(share)}%"


def _draw_lines(series: Mapping[str, Sequence[float | None]], *, scale: float) -> tuple[Line, ...]:
    """The lines of all series; ``scale`` is the value at the top."""
    lines = []
    for kind, values in series.items():
        share = WIDTH / len(values)
        stretches = [
            [(share * (position + 0.5), (1 - value / scale) * AREA) for position, value in stretch]
            for stretch in _split_at_gaps(values)
        ]
        lines.append(
            Line(
                kind=kind,
                paths=tuple(
                    " ".join(f"{format_number(x)},{format_number(y)}" for x, y in points) for points in stretches
                ),
                dots=tuple(
                    Dot(f"{format_number(100 * x / WIDTH)}%", format_number(TOP + y))
                    for points in stretches
                    for x, y in points
                    if len(points) == 1 or len(values) <= _FEW_SLOTS
                ),
            )
        )
    return tuple(lines)


@lru_cache(maxsize=100)
def _list_days(period: Period) -> tuple[Tick, ...]:
    """Labels of the time axis: days of a week, every other day of two, Mondays, every other Monday, or months."""
    return tuple(_label_days(period))


def _label_days(period: Period) -> Iterator[Tick]:
    share = 100 / len(period.slots)
    labelled = 0
    for position, slot in enumerate(period.slots):
        at = f"{format_number(share * (position + 0.5))}%"
        day = slot.first
        if period.slot_days == WEEK:
            # The week in which a month begins, but not at the very end: there is no room for its name.
            begins_month = slot.first.day == 1 or slot.last.month != slot.first.month
            if begins_month and position < len(period.slots) - 1:
                yield Tick(at, f"{slot.last:%b}" if slot.last.month > 1 else str(slot.last.year), labelled % 2 == 1)
                labelled += 1
        elif len(period.slots) <= 7:
            yield Tick(at, f"{day:%a} {day.day}", is_minor=labelled % 2 == 1)
            labelled += 1
        elif len(period.slots) <= 16:
            if (len(period.slots) - position) % 2 == 1:
                yield Tick(at, f"{day.day} {day:%b}", is_minor=labelled % 2 == 1)
                labelled += 1
        elif day.weekday() == 0 and (len(period.slots) <= 31 or day.isocalendar().week % 2 == 0):
            yield Tick(at, f"{day.day} {day:%b}", is_minor=labelled % 2 == 1)
            labelled += 1


def _split_at_gaps(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    stretch: list[tuple[int, float]] = []
    for position, value in enumerate(values):
        if value is not None:
            stretch.append((position, value))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _round_up(value: float) -> int:
    # A sum of fractions may miss a whole number by the last bit.
    return -int(-value // 1) if value - round(value) > 1e-9 else round(value)
