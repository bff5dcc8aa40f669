"""Time limits of runs and steps: which one comes first, and what is broken off when it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from flows.engine.clock import Clock, SystemClock, describe_seconds
from flows.engine.errors import ExpressionError
from flows.engine.history import History
from flows.engine.planner import EndReason, EndStatus, Finish
from flows.engine.spec import FlowSpec

DEFAULT_PLUGIN_TIMEOUT = 60.0
"""Seconds that one call of a plug-in may take."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which a run has to end, whose time is up then, and the last attempt that used it."""

    moment: datetime
    subject: str
    limit: str
    blocking: tuple[int, int] | None

    def end(self, *, now: datetime, blocking: tuple[int, int] | None = None) -> Finish:
        """The end of the run: its time is up ``now``, or will be before anything else can happen.

        ``blocking`` is the attempt that was broken off, if one was.
        """
        sentence = f"{self.subject} took longer than {self.limit}."
        if now < self.moment:
            sentence = (
                f"{self.subject} would take longer than {self.limit}: its next attempt may begin only after that."
            )
        return Finish(EndStatus.ERRORED, EndReason.DEADLINE_EXCEEDED, sentence, blocking or self.blocking)


def find_deadline(
    spec: FlowSpec, history: History, step: int, *, run_deadline: datetime | None, now: datetime
) -> Deadline | None:
    """What limits the time of the next attempt of ``step``: the step's own limit or the run's, the earlier one.

    A step's time counts from the start of its first attempt, ``now`` if it has none yet.
    """
    attempts, seconds = history.attempts(step), spec.step(step).time_limit
    last = (step, attempts[-1].number) if attempts else None
    found = []
    if run_deadline is not None:
        limit = f"its time limit of {describe_seconds(spec.time_limit)}" if spec.time_limit else "it may"
        found.append(Deadline(run_deadline, "The run", limit, last))
    if seconds is not None:
        end = ((attempts[0].started_at if attempts else None) or now) + timedelta(seconds=seconds)
        limit = f"its time limit of {describe_seconds(seconds)}"
        found.append(Deadline(end, f"Step {step} “{spec.step(step).name}”", limit, last))
    return min(found, key=lambda deadline: deadline.moment, default=None)


@dataclass(slots=True)
class TimeBudget:
    """How long the plug-ins and expressions of one attempt may take.

    ``plugin_timeout`` is in seconds and holds for each call; ``deadline`` for all of them together.
    """

    plugin_timeout: float = DEFAULT_PLUGIN_TIMEOUT
    deadline: Deadline | None = None
    clock: Clock = field(default_factory=SystemClock)
    expired: bool = False
    """Whether something was broken off at the deadline."""
    is_killable: bool = False
    """Whether this process may be killed when time is up, so that no expression needs one of its own."""

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        return (self.deadline.moment - self.clock.now()).total_seconds() if self.deadline else None

    def limit(self) -> AbstractAsyncContextManager[None]:
        """Cancel what is within at the deadline, and raise ``ExpressionError`` then."""
        return nullcontext() if self.deadline is None else self._watch(self.deadline)

    @asynccontextmanager
    async def _watch(self, deadline: Deadline) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.remaining) as timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            self.expired = True
            raise ExpressionError(f"it was aborted: {deadline.subject} took longer than {deadline.limit}.") from None
