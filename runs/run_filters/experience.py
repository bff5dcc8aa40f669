"""What looking for runs by the same filters took lately, so that the next look begins where the last one ended.

Pages of a list are asked for one after the other. Which filter is the rarest, and how many of its runs meet the others,
costs more to find out than the page itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

from runs.run_filters.conditions import Condition
from runs.run_filters.streams import Text

MOST = 1_000
"""Combinations of filters that are remembered by a process."""


class Experience(NamedTuple):
    """What was learnt. It may be out of date: then a list takes longer, and is right all the same."""

    rarest: int
    """Which of the conditions with an index was read."""
    share: float
    """How many of the runs that were read met all conditions, from 0 to 1."""


_kept: dict[tuple[Text, ...], Experience] = {}
_lock = Lock()


def recall_experience(conditions: Sequence[Condition]) -> Experience | None:
    """What looking for runs that meet these conditions took the last time; None the first time."""
    return _kept.get(_identify(conditions))


def keep_experience(conditions: Sequence[Condition], experience: Experience) -> None:
    """Remember it, and forget what is the longest ago where too much is remembered."""
    key = _identify(conditions)
    with _lock:
        _kept.pop(key, None)
        _kept[key] = experience
        if len(_kept) > MOST:
            del _kept[next(iter(_kept))]


def _identify(conditions: Sequence[Condition]) -> tuple[Text, ...]:
    return tuple(condition.check for condition in conditions)
