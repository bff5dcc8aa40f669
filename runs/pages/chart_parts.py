"""What the charts of a run share. All geometry is text already: a template must not format numbers in the reader's
language. Horizontal positions are percentages, so that a chart fits any width without scaling its text; vertical ones
are pixels.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """One mark of an axis at ``at`` (per cent from the left, or pixels from the top)."""

    at: str
    label: str


def write_number(value: float) -> str:
    """A number as SVG wants it: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
