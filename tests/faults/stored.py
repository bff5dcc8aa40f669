"""What an installation has stored, as its observer reads it out."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from pydantic import BaseModel

ENDED = frozenset({"succeeded", "failed", "errored", "cancelled"})


class StoredAttempt(BaseModel):
    """A row of an attempt, with how many rows of usage it has and what they and its issues count."""

    step: int
    number: int
    outcome: str
    is_call: bool
    usage_rows: int
    usage: dict[str, int]
    cost: Decimal | None
    issues: dict[str, int]
    started_at: datetime
    ended_at: datetime | None


class StoredRun(BaseModel):
    """A row of a run, its attempts in order, and what the planner says of its history."""

    pk: int
    status: str
    end_reason: str
    end_sentence: str
    crashes: int
    created_at: datetime
    ended_at: datetime | None
    counts: dict[str, int]
    """The totals on the run's row: attempts, retries, steps passed, issues by severity, tokens by kind."""
    cost: Decimal | None
    attempts: list[StoredAttempt]
    planned_end: tuple[str, str] | None = None
    """Status and reason of the end that the planner sees in the history; None where the run should go on."""
    history_error: str = ""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def longest_stuck(self) -> timedelta:
        """The longest time that the run stood still once it had begun: between the end of an attempt and the next
        one's start, where a worker died between the start of the attempt and the next one's."""
        begins = [*(attempt.started_at for attempt in self.attempts[1:]), self.ended_at]
        ends = [one.started_at if one.outcome == "interrupted" else one.ended_at for one in self.attempts]
        # A run that was cancelled in the queue ended without an attempt.
        gaps = [begin - end for end, begin in zip(ends, begins, strict=False) if begin is not None and end is not None]
        return max(gaps, default=timedelta(0))
