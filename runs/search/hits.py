"""What a search found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hits:
    """Numbers of runs that were found, the newest first."""

    ids: list[int]
    looked_to: int | None = None
    """The last run number that was looked at where looking stopped early; None if ``ids`` is all or a whole page."""
