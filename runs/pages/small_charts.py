"""Geometry of drawings without axes: columns in a row of a table, a bar of shares. Pure, as all charts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SPARK_HEIGHT = 28
_LEAST = 1.0
"""Pixels: what shows where there is data and next to nothing to draw."""


WIDTH = 1_000
"""All drawings that are stretched to their box are so wide, in units of their own."""


@dataclass(frozen=True, slots=True)
class Fill:
    """All rectangles of one kind, as one path in a box that is ``WIDTH`` wide and as high as its drawing."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Small columns in a box of ``WIDTH`` by ``SPARK_HEIGHT``."""

    fills: tuple[Fill, ...]
    width: str = str(WIDTH)
    height: str = str(SPARK_HEIGHT)


@dataclass(frozen=True, slots=True)
class BarPart:
    """One part of a bar that is as wide as its box."""

    kind: str
    x: str
    width: str


def plot_sparkline(values: Sequence[float | None], *, most: float | None = None, kind: str = "value") -> Sparkline:
    """Draw values as small columns, with a gap for None; ``most`` is of full height, by default the largest value."""
    scale = most or max((value for value in values if value), default=0.0) or 1.0
    slots = [None if value is None else {kind: value} for value in values]
    return Sparkline(stack_columns(slots, scale=scale, height=SPARK_HEIGHT, fill=0.7))


def stack_columns(
    slots: Sequence[Mapping[str, float] | None], *, scale: float, height: float, fill: float
) -> tuple[Fill, ...]:
    """Stack the values of each slot by kind, from the bottom on, and draw them as columns; None is a gap.

    ``scale`` is the sum that is ``height`` high, ``fill`` the share of a slot that its column takes. A slot whose
    values are all nothing shows a little of the kind ``zero``.
    """
    share = WIDTH / len(slots)
    width = format_number(share * fill)
    boxes: dict[str, list[str]] = {}
    for position, values in enumerate(slots):
        if values is None:
            continue
        x = format_number(share * (position + (1 - fill) / 2))
        bottom = height
        for kind, value in (values if any(values.values()) else {"zero": 0.0}).items():
            part = min(value / scale, 1.0) * height
            # What is there is seen, however little it is beside the others.
            part = max(part, _LEAST) if value or kind == "zero" else 0.0
            if part:
                bottom -= part
                box = f"M{x},{format_number(bottom)}h{width}v{format_number(part)}h-{width}z"
                boxes.setdefault(kind, []).append(box)
    return tuple(Fill(kind, "".join(paths)) for kind, paths in boxes.items())


def plot_bar(shares: Mapping[str, float]) -> tuple[BarPart, ...]:
    """Lay shares of one beside each other, by kind; those of nothing are left out."""
    parts = []
    begin = 0.0
    for kind, share in shares.items():
        if share:
            parts.append(BarPart(kind, f"{format_number(100 * begin)}%", f"{format_number(100 * share)}%"))
        begin += share
    return tuple(parts)


def format_number(value: float) -> str:
    """A number as SVG wants it: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
