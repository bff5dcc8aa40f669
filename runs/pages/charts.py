"""Geometry of the charts of a run. Pure: what goes in are numbers, what comes out are SVG attributes.

Horizontal positions are percentages, so that a chart fits any width without scaling its text; vertical ones are
pixels. All are text already: a template must not format numbers in the reader's language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runs.pages.badges import STATES
from runs.pages.figures import format_count, format_duration, format_short_count

ROW_HEIGHT = 22
BAR_HEIGHT = 12
TOP = 24
"""Room for the labels of the time axis, in pixels."""
_SHORTEST_WAIT = 0.02
"""Waits under this share of the whole width are not drawn."""
_NARROWEST_BAR = 0.4
"""Per cent of the width: what an attempt of no length still shows."""

COLUMN_AREA = 150
COLUMN_TOP = 24
COLUMN_LABELS = 22
_FEW_COLUMNS = 8
"""So many columns fit a phone; more get ``MANY_WIDTH`` each and scroll."""
MANY_WIDTH = 44


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """When one attempt ran, in seconds since the run began. ``outcome`` is ``running`` while it runs."""

    step: int
    step_name: str
    number: int
    outcome: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """One attempt as a bar, with the wait before it if there is one worth seeing."""

    span: AttemptSpan
    begins_step: bool
    anchor: str
    y: str
    middle: str
    baseline: str
    x: str
    width: str
    end: str
    wait_x: str
    label: str
    outcome_word: str
    duration: str
    waited: str


@dataclass(frozen=True, slots=True)
class Tick:
    """One mark of an axis at ``at`` (per cent from the left, or pixels from the top)."""

    at: str
    label: str


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Attempts over time."""

    rows: tuple[WaterfallRow, ...]
    ticks: tuple[Tick, ...]
    height: str


def plot_waterfall(spans: Sequence[AttemptSpan]) -> Waterfall | None:
    """Lay out attempts, in their order, as bars over time; None if there are none."""
    if not spans:
        return None
    total = max(*(span.end for span in spans), 0.001)
    rows = []
    earlier_end = 0.0
    earlier_step = 0
    for position, span in enumerate(spans):
        y = TOP + position * ROW_HEIGHT + (ROW_HEIGHT - BAR_HEIGHT) / 2
        wait = span.begin - earlier_end
        badge = STATES[span.outcome]
        duration = format_duration(span.end - span.begin)
        end = max(_percent(span.end, total), _percent(span.begin, total) + _NARROWEST_BAR)
        rows.append(
            WaterfallRow(
                span=span,
                begins_step=span.step != earlier_step,
                anchor=f"s{span.step}a{span.number}",
                y=_number(y),
                middle=_number(y + BAR_HEIGHT / 2),
                baseline=_number(y + BAR_HEIGHT / 2 + 4),
                x=f"{_number(_percent(span.begin, total))}%",
                width=f"{_number(end - _percent(span.begin, total))}%",
                end=f"{_number(end)}%",
                wait_x=f"{_number(_percent(earlier_end, total))}%" if wait > total * _SHORTEST_WAIT else "",
                label=f"{badge.sign} {duration}",
                outcome_word=badge.word,
                duration=duration,
                waited=format_duration(wait) if wait >= 0.001 else "",
            )
        )
        earlier_end, earlier_step = max(span.end, earlier_end), span.step
    step = _time_step(total)
    ticks = []
    moment = 0.0
    while moment <= total * 1.0001:
        ticks.append(Tick(f"{_number(_percent(moment, total))}%", _format_tick(moment, step)))
        moment += step
    return Waterfall(tuple(rows), tuple(ticks), _number(TOP + len(rows) * ROW_HEIGHT + 4))


@dataclass(frozen=True, slots=True)
class AttemptTokens:
    """Tokens of one attempt. ``cached`` is part of ``prompt``, ``reasoning`` part of ``completion``.

    ``is_known`` is False where the provider reported nothing.
    """

    step: int
    number: int
    prompt: int
    cached: int
    completion: int
    reasoning: int
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a column; ``kind`` is ``cached``, ``fresh`` or ``out``."""

    kind: str
    y: str
    height: str


@dataclass(frozen=True, slots=True)
class Column:
    """One attempt as a stacked column."""

    tokens: AttemptTokens
    segments: tuple[Segment, ...]
    x: str
    width: str
    middle: str
    label: str
    label_y: str
    title: str


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Tokens per attempt. ``width`` is that of the drawing: ``100%``, or pixels where it has to scroll."""

    columns: tuple[Column, ...]
    ticks: tuple[Tick, ...]
    width: str
    height: str
    baseline: str
    labels_y: str


def plot_tokens(attempts: Sequence[AttemptTokens]) -> TokenColumns | None:
    """Lay out the tokens of attempts as stacked columns; None if there are none."""
    if not attempts:
        return None
    most = max(attempt.prompt + attempt.completion for attempt in attempts)
    step = _count_step(most)
    top_value = max(step * -(-most // step), 1)
    baseline = COLUMN_TOP + COLUMN_AREA
    share = 100 / len(attempts)
    # Few attempts get slim columns too: a run of one attempt is no wall of colour.
    column_width = min(share * 0.56, 9.0)
    columns = []
    for position, attempt in enumerate(attempts):
        middle = share * (position + 0.5)
        bottom = float(baseline)
        segments = []
        cached = min(attempt.cached, attempt.prompt)
        for kind, count in (("cached", cached), ("fresh", attempt.prompt - cached), ("out", attempt.completion)):
            height = count / top_value * COLUMN_AREA
            if height:
                bottom -= height
                segments.append(Segment(kind, _number(bottom), _number(height)))
        total = attempt.prompt + attempt.completion
        columns.append(
            Column(
                tokens=attempt,
                segments=tuple(segments),
                x=f"{_number(middle - column_width / 2)}%",
                width=f"{_number(column_width)}%",
                middle=f"{_number(middle)}%",
                label=format_short_count(total) if attempt.is_known else "?",
                label_y=_number(bottom - 5),
                title=_describe_tokens(attempt),
            )
        )
    ticks = tuple(
        Tick(_number(baseline - value / top_value * COLUMN_AREA), format_short_count(value))
        for value in range(0, (top_value if most else 0) + 1, step)
    )
    width = "100%" if len(attempts) <= _FEW_COLUMNS else str(len(attempts) * MANY_WIDTH)
    height = baseline + COLUMN_LABELS
    return TokenColumns(tuple(columns), ticks, width, _number(height), _number(baseline), _number(baseline + 16))


def _describe_tokens(attempt: AttemptTokens) -> str:
    name = f"Step {attempt.step}, attempt {attempt.number}"
    if not attempt.is_known:
        return f"{name}: the provider reported no usage"
    fresh = attempt.prompt - min(attempt.cached, attempt.prompt)
    return (
        f"{name}: {format_count(attempt.cached)} cached in, {format_count(fresh)} fresh in, "
        f"{format_count(attempt.completion)} out"
    )


_TIME_STEPS = (
    *(base * 10**power for power in range(-3, 1) for base in (1, 2, 5)),
    *(10, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400),
)


def _time_step(total: float) -> float:
    """Seconds between two marks, so that there are at most seven."""
    return next((step for step in _TIME_STEPS if total / step <= 6), 86_400 * -(-total // (6 * 86_400)))


def _format_tick(seconds: float, step: float) -> str:
    if seconds == 0:
        return "0"
    if step < 1:
        return f"{round(seconds * 1000)} ms" if step < 0.1 else f"{seconds:.1f} s"
    if step < 60:
        return f"{round(seconds)} s"
    if step < 3_600:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3_600)} h"


def _count_step(most: int) -> int:
    """Tokens between two marks, so that there are at most five above zero."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if most / (step * factor) <= 5:
                return step * factor
        step *= 10


def _percent(value: float, total: float) -> float:
    return value / total * 100


def _number(value: float) -> str:
    """A number as SVG wants it: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
