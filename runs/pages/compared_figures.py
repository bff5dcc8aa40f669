"""Figures of two runs, or of a step in both, and how they differ: by sign, word and colour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from flows.engine.history import TokenUsage
from runs.formatting import format_cost, format_count, format_duration

Counts = tuple[tuple[str, int], ...]
"""Numbers of issues by severity, the gravest first."""


@dataclass(frozen=True, slots=True)
class Delta:
    """How the right one differs from the left one: ``+1.4 s slower``. ``tone`` says whether that is good."""

    text: str
    icon: str
    tone: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both; ``counts`` take the place of the texts of issues."""

    name: str
    left: str
    right: str
    delta: Delta | None
    """None where it is unknown."""
    counts: tuple[Counts, Counts] | None = None


SAME = Delta("same", "", "quiet")

_Amount = TypeVar("_Amount", int, float, Decimal)


def _compare(
    left: _Amount, right: _Amount, write: Callable[[_Amount], str], words: tuple[str, str], *, good: str
) -> Delta:
    """``words`` are those for a larger and a smaller right one; ``good`` is the better of them, or empty."""
    if left == right:
        return SAME
    is_larger = right > left
    word = words[0] if is_larger else words[1]
    tone = "quiet" if not good else "passed" if word == good else "failed"
    sign = "+" if is_larger else "\N{MINUS SIGN}"
    return Delta(f"{sign}{write(abs(right - left))} {word}", "arrow-up" if is_larger else "arrow-down", tone)


def compare_counts(
    name: str, left: int, right: int, *, good: str = "fewer", of: tuple[int, int] | None = None
) -> Figure:
    """Two whole numbers; ``of`` what there is at most."""
    texts = [format_count(left), format_count(right)]
    if of is not None:
        texts = [f"{text} of {format_count(most)}" for text, most in zip(texts, of, strict=True)]
    return Figure(name, texts[0], texts[1], _compare(left, right, format_count, ("more", "fewer"), good=good))


def compare_issues(name: str, left: Counts, right: Counts) -> Figure:
    """The issues of both, by severity; told is the difference of their number."""
    totals = [sum(count for _, count in counts) for counts in (left, right)]
    delta = _compare(totals[0], totals[1], format_count, ("more", "fewer"), good="fewer")
    return Figure(name, "", "", delta, (left, right))


def compare_durations(left: float | None, right: float | None) -> Figure:
    """Two lengths of time in seconds."""
    texts = format_duration(left), format_duration(right)
    if left is None or right is None:
        return Figure("Duration", *texts, None)
    # A difference that no reader could see is none.
    rounded = round(left, 3), round(right, 3)
    return Figure("Duration", *texts, _compare(*rounded, format_duration, ("slower", "faster"), good="faster"))


def compare_usage(left: TokenUsage, right: TokenUsage) -> tuple[Figure, ...]:
    """Tokens and cost of two usages."""
    return (
        compare_counts("Tokens in", left.prompt, right.prompt),
        compare_counts("Tokens out", left.completion, right.completion),
        _compare_costs(left, right),
    )


def _compare_costs(left: TokenUsage, right: TokenUsage) -> Figure:
    texts = format_cost(left.cost, left.unpriced), format_cost(right.cost, right.unpriced)
    is_bound = left.unpriced or right.unpriced
    if is_bound or left.cost is None or right.cost is None:
        return Figure("Cost", *texts, None)
    return Figure("Cost", *texts, _compare(left.cost, right.cost, format_cost, ("dearer", "cheaper"), good="cheaper"))
