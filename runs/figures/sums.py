"""What statistics of runs and steps come to. Pure: counts go in, rates and means come out.

A rate is a fraction of one, None where there is nothing to divide by. Cancelled runs are judged by nobody: rates
leave them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from operator import attrgetter
from typing import Any, Self

from runs.figures.means import divide_cost, divide_count, share_of
from runs.statistics.durations import merge_counts, read_percentile

_NONE = Decimal(0)


@dataclass(slots=True)
class Spent:
    """Tokens, and their cost in USD as far as the price of the ``unpriced`` attempts is known."""

    total_tokens: int = 0
    cost: Decimal = _NONE
    unpriced: int = 0

    @property
    def known_cost(self) -> Decimal | None:
        """The cost, None where no price is known at all."""
        return self.cost if self.cost or not self.unpriced else None

    def cost_for(self, count: int) -> Decimal | None:
        """The mean cost of ``count`` things."""
        return None if self.known_cost is None else divide_cost(self.cost, count)

    def tokens_for(self, count: int) -> int | None:
        """The mean tokens of ``count`` things."""
        return divide_count(self.total_tokens, count)


@dataclass(slots=True)
class RunSums(Spent):
    """Runs that ended, and what they used. An accepted output is that of a run that succeeded."""

    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    errored: int = 0
    cancelled: int = 0
    first_time: int = 0
    attempts: int = 0
    first_tokens: int = 0
    first_cost: Decimal = _NONE
    useful_retry_tokens: int = 0
    useful_retry_cost: Decimal = _NONE
    wasted_retry_tokens: int = 0
    wasted_retry_cost: Decimal = _NONE
    durations: Mapping[str, int] = field(default_factory=dict)

    @property
    def judged(self) -> int:
        """Runs that ended otherwise than by being cancelled."""
        return self.runs - self.cancelled

    @property
    def pass_rate(self) -> float | None:
        return share_of(self.succeeded, self.judged)

    @property
    def first_rate(self) -> float | None:
        """How many succeeded without any retry."""
        return share_of(self.first_time, self.judged)

    @property
    def median(self) -> float | None:
        """Seconds that half of the runs took at most."""
        return read_percentile(self.durations, 50)

    @property
    def p95(self) -> float | None:
        """Seconds that 95 of 100 runs took at most."""
        return read_percentile(self.durations, 95)

    @property
    def cost_per_run(self) -> Decimal | None:
        return self.cost_for(self.runs)

    @property
    def cost_per_accepted(self) -> Decimal | None:
        return self.cost_for(self.succeeded)

    @property
    def tokens_per_run(self) -> int | None:
        return self.tokens_for(self.runs)

    @property
    def tokens_per_accepted(self) -> int | None:
        return self.tokens_for(self.succeeded)

    @classmethod
    def join(cls, parts: Iterable[Self], *, with_durations: bool = True) -> Self:
        """The sum of all parts. Durations are the dearest to add up: where nobody asks for them they are left out."""
        parts = list(parts)
        joined = cls(*_add_up(parts, _RUN_NAMES))
        if with_durations:
            joined.durations = merge_counts(part.durations for part in parts)
        return joined


@dataclass(slots=True)
class StepSums(Spent):
    """Steps that were begun, and their attempts. A step is passed by one attempt: passed steps are passed attempts.

    Of one model only attempts can be judged: another one may have begun the step, or passed it.
    """

    begun: int = 0
    passed: int = 0
    first_passed: int = 0
    attempts: int = 0
    retries: int = 0

    @property
    def pass_rate(self) -> float | None:
        """How many steps were passed in the end; not for one model."""
        return share_of(self.passed, self.begun)

    @property
    def first_rate(self) -> float | None:
        """How many first attempts passed."""
        return share_of(self.first_passed, self.begun)

    @property
    def attempt_rate(self) -> float | None:
        """How many attempts passed, first ones and retries."""
        return share_of(self.passed, self.attempts)

    @property
    def attempts_per_step(self) -> float | None:
        """Attempts with an output for each step that brought one; not for one model."""
        return share_of(self.begun + self.retries, self.begun)

    @property
    def attempts_per_passed(self) -> float | None:
        return share_of(self.attempts, self.passed)

    @property
    def cost_per_passed(self) -> Decimal | None:
        return self.cost_for(self.passed)

    @property
    def tokens_per_passed(self) -> int | None:
        return self.tokens_for(self.passed)

    @property
    def tokens_per_step(self) -> int | None:
        return self.tokens_for(self.begun)

    @property
    def cost_per_attempt(self) -> Decimal | None:
        return self.cost_for(self.attempts)

    @property
    def tokens_per_attempt(self) -> int | None:
        return self.tokens_for(self.attempts)

    @classmethod
    def join(cls, parts: Iterable[Self]) -> Self:
        """The sum of all parts."""
        parts = list(parts)
        return cls(*_add_up(parts, _STEP_NAMES))


def _add_up(parts: Sequence[Spent], names: Sequence[str]) -> list[Any]:
    """Sums of the fields called ``names``, in their order; none of them if there are no parts."""
    return [sum(column) for column in zip(*map(attrgetter(*names), parts), strict=True)]


_RUN_NAMES = tuple(own.name for own in fields(RunSums) if own.name != "durations")
_STEP_NAMES = tuple(own.name for own in fields(StepSums))
RUN_COLUMNS = (*_RUN_NAMES, "durations")
"""The columns of ``DailyRuns`` that make a ``RunSums``."""
STEP_COLUMNS = _STEP_NAMES
"""The columns of ``DailySteps`` that make a ``StepSums``."""
