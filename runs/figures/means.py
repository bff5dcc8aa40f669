"""Shares and means. Of nothing there is none."""

from __future__ import annotations

from decimal import Decimal


def share_of(part: int, whole: int) -> float | None:
    """``part`` of ``whole`` as a fraction; None of nothing."""
    return part / whole if whole else None


def divide_cost(cost: Decimal, count: int) -> Decimal | None:
    """The mean cost in USD; None of nothing."""
    return cost / count if count else None


def divide_count(total: int, count: int) -> int | None:
    """A mean, in whole numbers; None of nothing."""
    return round(total / count) if count else None
