"""Which part of a run a page or a part of it shows: the more is left out, the less is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from runs import models
from runs.pages.attempt_rows import name_attempt


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a page: all of it, or no more than some attempts need; of other steps no issues are read."""

    compared: Collection[str] = ()
    """The ids of attempts whose outputs are to be shown against those before them."""
    only: str | None = None
    """The id of an attempt: it comes open, and all others stay closed."""
    issue_page: int = 1
    """Which of the issues of that one, where it has too many for one page."""
    since: tuple[int, int] | None = None
    """Step and number of the last attempt that is known: what came later is new."""
    is_since_new: bool = False
    """That one was running and may have ended."""

    def includes(self, row: models.Attempt) -> bool:
        """Whether this attempt is wanted."""
        if self.only is not None:
            return name_attempt(row) == self.only
        return self.since is None or self.is_new(row.step.index, row.number)

    def is_new(self, step: int, number: int) -> bool:
        """Whether an attempt came after what is known, or may have changed."""
        known = self.since or (0, 0)
        return (step, number) > known or (self.is_since_new and (step, number) == known)

    def list_steps(self, rows: Sequence[models.Attempt]) -> Collection[int] | None:
        """The steps whose issues are told of; None for all."""
        if self.only is not None:
            return {row.step.index for row in rows if self.includes(row)}
        # Also the one that was begun last before: its head may say something new.
        return None if self.since is None else {row.step.index for row in rows if row.step.index >= self.since[0]}
