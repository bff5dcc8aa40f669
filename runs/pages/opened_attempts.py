"""Which attempts stand open when the page of a run is opened, and which of these come with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

ROOM = 160_000
"""What may come with a page, in bytes of stored outputs and texts of issues. The rest is loaded when somebody opens it,
or gets there."""

_ATTEMPT = 3_000
_ISSUE = 1_000
"""What an open attempt and each of its issues take of the room, beside output and texts."""


@dataclass(frozen=True, slots=True)
class Openable:
    """An attempt that may stand open."""

    id: str
    is_latest: bool
    issues: int
    stored_bytes: int
    issue_bytes: int = 0
    """What the page shows of the texts of its issues."""

    @property
    def weight(self) -> int:
        """What it takes of the room when it is open."""
        return _ATTEMPT + _ISSUE * self.issues + self.issue_bytes + self.stored_bytes


@dataclass(frozen=True, slots=True)
class OpenedAttempts:
    """The ids of attempts that are ``open``, and of those whose content comes with the page: ``loaded``."""

    open: frozenset[str]
    loaded: frozenset[str]

    @classmethod
    def just(cls, id: str) -> Self:
        """One attempt alone."""
        return cls(frozenset({id}), frozenset({id}))


def choose_open(attempts: Sequence[Openable], *, blocking: str = "", asked: Collection[str] = ()) -> OpenedAttempts:
    """Open what was ``asked`` for, the ``blocking`` attempt, the latest of each step; others with issues if they fit.

    For any issue its output can then be read without a click, unless the page would grow too long for it. Of attempts
    that are open anyhow, those that don't fit are loaded once the reader gets there. The last ones come first: that is
    where a run stopped, or goes on.
    """
    last_first = attempts[::-1]
    wanted = [attempt for attempt in last_first if attempt.id in asked]
    wanted += [attempt for attempt in last_first if attempt.id == blocking]
    wanted += [attempt for attempt in last_first if attempt.is_latest]
    opened = {attempt.id for attempt in wanted}
    loaded: set[str] = set()
    room = ROOM
    for attempt in (*wanted, *(attempt for attempt in last_first if attempt.issues)):
        if attempt.id not in loaded and attempt.weight <= room:
            room -= attempt.weight
            loaded.add(attempt.id)
    return OpenedAttempts(frozenset(opened | loaded), frozenset(loaded))
