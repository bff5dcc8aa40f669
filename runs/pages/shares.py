"""How shares and means read on pages."""

from __future__ import annotations

from runs.pages.figures import GROUP, NOTHING, format_count, format_short_count

PER_CENT = f"{GROUP}%"


def format_share(share: float | None) -> str:
    """A share in whole per cent: ``71 %``. Nearly all are not all, and a few are not none; ``—`` if unknown."""
    if share is None:
        return NOTHING
    percent = round(100 * share)
    if percent == 100 and share < 1:
        return f"over 99{PER_CENT}"
    if percent == 0 and share > 0:
        return f"under 1{PER_CENT}"
    return f"{percent}{PER_CENT}"


def format_mean(mean: float | None) -> str:
    """A mean of counts with what digits tell something: ``1.32``, ``12.4``, ``1 240``; ``—`` if unknown."""
    if mean is None:
        return NOTHING
    if mean >= 100:
        return format_count(round(mean))
    return f"{mean:.1f}" if mean >= 10 else f"{mean:.2f}"


def format_large(count: int | None) -> str:
    """A count that may be long: in groups of three below 100,000, short above; ``—`` if unknown."""
    if count is None:
        return NOTHING
    return format_count(count) if count < 100_000 else format_short_count(count)
