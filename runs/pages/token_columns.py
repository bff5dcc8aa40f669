"""The geometry of tokens per attempt. Pure: what goes in are numbers, what comes out are SVG attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runs.formatting import format_count, format_short_count
from runs.pages.small_charts import format_number
from runs.pages.waterfall import Tick

COLUMN_AREA = 150
LEAST_COLUMN_AREA = 66
_MARK_EVERY = 24
"""Pixels between two marks of the vertical axis, at least; there are at most five above zero."""
COLUMN_TOP = 24
COLUMN_LABELS = 22
_FEW_COLUMNS = 8
"""So many columns fit a phone; more get ``MANY_WIDTH`` each and scroll."""
MANY_WIDTH = 44


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
    """One part of a column; ``kind`` is ``cached``, ``fresh``, ``reasoning`` or ``out``, which is the rest of it."""

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
    has_reasoning: bool


def plot_tokens(attempts: Sequence[AttemptTokens], *, height: float | None = None) -> TokenColumns | None:
    """Lay out the tokens of attempts as stacked columns; None if none is known of.

    The drawing is about as high as ``height``, in pixels, so that charts beside each other end level.
    """
    most = max((attempt.prompt + attempt.completion for attempt in attempts), default=0)
    if not most:
        return None
    area: float = COLUMN_AREA
    if height is not None:
        area = min(max(height - COLUMN_TOP - COLUMN_LABELS, LEAST_COLUMN_AREA), COLUMN_AREA)
    step = _count_step(most, min(int(area // _MARK_EVERY), 5))
    top_value = step * -(-most // step)
    baseline = COLUMN_TOP + area
    share = 100 / len(attempts)
    # Few attempts get slim columns too: a run of one attempt is no wall of colour.
    column_width = min(share * 0.56, 9.0)
    columns = []
    for position, attempt in enumerate(attempts):
        middle = share * (position + 0.5)
        bottom = float(baseline)
        segments = []
        for kind, count in _split_tokens(attempt).items():
            if count:
                bottom -= count / top_value * area
                segments.append(Segment(kind, format_number(bottom), format_number(count / top_value * area)))
        total = attempt.prompt + attempt.completion
        columns.append(
            Column(
                tokens=attempt,
                segments=tuple(segments),
                x=f"{format_number(middle - column_width / 2)}%",
                width=f"{format_number(column_width)}%",
                middle=f"{format_number(middle)}%",
                label=format_short_count(total) if attempt.is_known else "?",
                label_y=format_number(bottom - 5),
                title=_describe_tokens(attempt),
            )
        )
    ticks = tuple(
        Tick(format_number(baseline - value / top_value * area), format_short_count(value))
        for value in range(0, top_value + 1, step)
    )
    width = "100%" if len(attempts) <= _FEW_COLUMNS else str(len(attempts) * MANY_WIDTH)
    return TokenColumns(
        columns=tuple(columns),
        ticks=ticks,
        width=width,
        height=format_number(baseline + COLUMN_LABELS),
        baseline=format_number(baseline),
        labels_y=format_number(baseline + 16),
        has_reasoning=any(attempt.reasoning for attempt in attempts),
    )


def _split_tokens(attempt: AttemptTokens) -> dict[str, int]:
    """The tokens of an attempt by the parts of its column, from below."""
    cached, reasoning = min(attempt.cached, attempt.prompt), min(attempt.reasoning, attempt.completion)
    return {
        "cached": cached,
        "fresh": attempt.prompt - cached,
        "reasoning": reasoning,
        "out": attempt.completion - reasoning,
    }


def _describe_tokens(attempt: AttemptTokens) -> str:
    name = f"Step {attempt.step}, attempt {attempt.number}"
    if not attempt.is_known:
        return f"{name}: the provider reported no usage"
    parts = _split_tokens(attempt)
    reasoning = f", {format_count(parts['reasoning'])} of them reasoning" if parts["reasoning"] else ""
    return (
        f"{name}: {format_count(parts['cached'])} cached in, {format_count(parts['fresh'])} fresh in, "
        f"{format_count(attempt.completion)} out{reasoning}"
    )


def _count_step(most: int, marks: int) -> int:
    """Tokens between two marks, so that there are at most ``marks`` above zero."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if most / (step * factor) <= marks:
                return step * factor
        step *= 10
