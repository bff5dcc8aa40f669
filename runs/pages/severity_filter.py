"""The severity filter of the run page: what the URL hides, and the toggles that change it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runs.pages.badges import SEVERITIES, Badge

CLEAN = "clean"
"""Hides attempts that have no issue at all."""

_NAMES = (*SEVERITIES, CLEAN)


@dataclass(frozen=True, slots=True)
class Toggle:
    """One button: pressing it leads to the page that hides ``hide_after``."""

    name: str
    badge: Badge | None
    count: int
    is_hidden: bool
    hide_after: tuple[str, ...]


def read_hidden(text: str) -> tuple[tuple[str, ...], str]:
    """What ``?hide=`` names, in the order of pages, and a sentence about what it can't name (empty if all is well)."""
    named = {name for name in text.split(",") if name}
    unknown = sorted(named.difference(_NAMES))
    problem = ""
    if unknown:
        shown = unknown[0] if len(unknown[0]) <= 40 else f"{unknown[0][:40]}…"
        problem = f"“{shown}” can’t be hidden; it can be {', '.join(_NAMES)}. All issues are shown."
    return () if unknown else tuple(name for name in _NAMES if name in named), problem


def build_toggles(hidden: Sequence[str], counts: Iterable[tuple[str, int]]) -> tuple[Toggle, ...]:
    """A toggle for every severity with its ``counts``, and one for clean attempts."""
    numbers = dict(counts)
    return tuple(
        Toggle(
            name=name,
            badge=SEVERITIES.get(name),
            count=numbers.get(name, 0),
            is_hidden=name in hidden,
            hide_after=tuple(other for other in _NAMES if (other in hidden) != (other == name)),
        )
        for name in _NAMES
    )
