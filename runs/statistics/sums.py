"""What daily rows add up to: rates, means, percentiles, the cost of retries; and periods to add them up by.

Pure. A rate is a fraction of one; rates and means of nothing are None. Cancelled runs count in no rate.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Any, Self, TypeVar

from runs.attempt_rules import FIRST, USEFUL, WASTED

MIN_SECONDS = 0.001
"""The longest duration of bucket 0."""
BUCKET_GROWTH = 1.05
"""The longest duration of a bucket over that of the one before."""
DAY, WEEK = 1, 7
TITLES: Mapping[str, str] = {
    FIRST: "First attempts",
    USEFUL: "Retries that led to a pass",
    WASTED: "Retries that did not",
}
"""What the parts of the retry cost are called, in their order."""

_NONE = Decimal(0)


def share_of(part: int, whole: int) -> float | None:
    """``part`` of ``whole`` as a fraction."""
    return part / whole if whole else None


def find_known_cost(cost: Decimal, unpriced: int) -> Decimal | None:
    """The cost, None where no price is known at all."""
    return cost if cost or not unpriced else None


def find_bucket(seconds: float) -> int:
    """The number of the bucket of a duration; 0 up to ``MIN_SECONDS``, and for negative ones."""
    return 0 if seconds <= MIN_SECONDS else math.ceil(math.log(seconds / MIN_SECONDS, BUCKET_GROWTH))


def find_percentile(counts: Mapping[str, int], percent: float) -> float | None:
    """Seconds that ``percent`` of 100 durations took at most, within 2.5 %: the middle of their bucket.

    ``counts`` has the number of durations by the number of their bucket, as JSON stores it.
    """
    rank = max(1, math.ceil(sum(counts.values()) * percent / 100))
    seen = 0
    for bucket in sorted(counts, key=int):
        seen += counts[bucket]
        if seen >= rank:
            return MIN_SECONDS * BUCKET_GROWTH ** (int(bucket) - 0.5) if int(bucket) else MIN_SECONDS
    return None


def add_up(values: Sequence[Any]) -> Any:
    """The sum of numbers, or of counts by bucket."""
    if not isinstance(values[0], dict):
        return sum(values[1:], start=values[0])
    merged: dict[str, int] = {}
    for counts in values:
        for bucket, count in counts.items():
            merged[bucket] = merged.get(bucket, 0) + count
    return merged


@dataclass(slots=True)
class Spent:
    """Attempts, their tokens, and their cost in USD without that of the ``unpriced`` ones."""

    total_tokens: int = 0
    cost: Decimal = _NONE
    unpriced: int = 0
    attempts: int = 0
    retries: int = 0
    begun: int = 0

    @property
    def known_cost(self) -> Decimal | None:
        return find_known_cost(self.cost, self.unpriced)

    @property
    def attempts_per_step(self) -> float | None:
        """Attempts with an output for each step that brought one; not for the attempts of one model."""
        return share_of(self.begun + self.retries, self.begun)

    def cost_for(self, count: int) -> Decimal | None:
        """The mean cost of ``count`` things."""
        return self.cost / count if count and self.known_cost is not None else None

    def tokens_for(self, count: int) -> int | None:
        """The mean tokens of ``count`` things."""
        return round(self.total_tokens / count) if count else None

    @classmethod
    def join(cls, parts: Iterable[Self]) -> Self:
        """The sum of all parts."""
        get_values = attrgetter(*(column.name for column in fields(cls)))
        return cls(*map(add_up, zip(*map(get_values, parts), strict=True)))


@dataclass(slots=True)
class RunSums(Spent):
    """Runs that ended, and what they used. An accepted output is that of a run that succeeded."""

    runs: int = 0
    succeeded: int = 0
    accepted: int = 0
    failed: int = 0
    errored: int = 0
    cancelled: int = 0
    first_time: int = 0
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
        """The share that succeeded with every step passed."""
        return share_of(self.succeeded - self.accepted, self.judged)

    @property
    def first_rate(self) -> float | None:
        """The share that succeeded without any retry."""
        return share_of(self.first_time, self.judged)

    @property
    def median(self) -> float | None:
        """Seconds that half of the runs took at most."""
        return find_percentile(self.durations, 50)

    @property
    def p95(self) -> float | None:
        """Seconds that 95 of 100 runs took at most."""
        return find_percentile(self.durations, 95)

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


@dataclass(slots=True)
class StepSums(Spent):
    """Steps that were begun, and their attempts. A step is passed by one attempt: passed steps are passed attempts.

    Of one model only attempts can be judged: another one may have begun the step, or passed it.
    """

    passed: int = 0
    first_passed: int = 0

    @property
    def pass_rate(self) -> float | None:
        """The share of steps that passed in the end; not for one model."""
        return share_of(self.passed, self.begun)

    @property
    def first_rate(self) -> float | None:
        """The share of first attempts that passed."""
        return share_of(self.first_passed, self.begun)

    @property
    def attempt_rate(self) -> float | None:
        """The share of attempts that passed, first ones and retries."""
        return share_of(self.passed, self.attempts)

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
    def tokens_per_attempt(self) -> int | None:
        return self.tokens_for(self.attempts)


RUN_COLUMNS = tuple(column.name for column in fields(RunSums))
"""The columns of ``DailyRuns`` that make a ``RunSums``, in its order; the last one is ``durations``."""
STEP_COLUMNS = tuple(column.name for column in fields(StepSums))
"""The columns of ``DailySteps`` that make a ``StepSums``, in its order."""


@dataclass(frozen=True, slots=True)
class CostPart:
    """One part of the retry cost: ``first``, ``useful`` or ``wasted``.

    The cost is in USD, without that of ``unpriced`` attempts. Shares are those of ``amount``, in USD or tokens;
    ``share`` is a fraction of the whole, None of nothing.
    """

    kind: str
    tokens: int
    cost: Decimal | None
    unpriced: int
    amount: Decimal
    share: float | None


def split_cost(used: Mapping[str, tuple[int, Decimal | None, int]]) -> tuple[dict[str, CostPart], bool]:
    """The parts by kind, from tokens, cost and unpriced attempts of each; and whether shares are those of the cost.

    They are if all that was used has a price, else those of the tokens.
    """
    spent = [(cost, unpriced) for tokens, cost, unpriced in used.values() if tokens or cost]
    by_cost = not any(unpriced or cost is None for cost, unpriced in spent) and any(cost for cost, _ in spent)
    amounts = {kind: (cost or _NONE) if by_cost else Decimal(tokens) for kind, (tokens, cost, _) in used.items()}
    whole = sum(amounts.values())
    parts = {
        kind: CostPart(kind, *values, amounts[kind], float(amounts[kind] / whole) if whole else None)
        for kind, values in used.items()
    }
    return parts, by_cost


def split_cost_of_runs(sums: RunSums) -> tuple[dict[str, CostPart], bool]:
    """What first attempts, useful and wasted retries of runs used."""
    used = {
        FIRST: (sums.first_tokens, sums.first_cost),
        USEFUL: (sums.useful_retry_tokens, sums.useful_retry_cost),
        WASTED: (sums.wasted_retry_tokens, sums.wasted_retry_cost),
    }
    return split_cost(
        {
            kind: (tokens, cost if cost or not tokens or not sums.unpriced else None, sums.unpriced if tokens else 0)
            for kind, (tokens, cost) in used.items()
        }
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """One place on a time axis: a day or a week."""

    first: date
    last: date


@dataclass(frozen=True)
class Period:
    """Days (UTC) from ``first`` to ``last``, both counted in, in slots of ``slot_days`` days."""

    first: date
    last: date
    slot_days: int = DAY

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots, oldest first; the last one may end after the period."""
        length = timedelta(days=self.slot_days)
        count = (self.last - self.first).days // self.slot_days + 1
        begins = (self.first + length * position for position in range(count))
        return tuple(Slot(begin, begin + length - timedelta(days=1)) for begin in begins)

    @property
    def unit(self) -> str:
        """What a slot is: ``day`` or ``week``."""
        return "day" if self.slot_days == DAY else "week"

    def find_slot(self, day: date) -> int | None:
        """The position of the slot of ``day``; None outside of the period."""
        return (day - self.first).days // self.slot_days if self.first <= day <= self.last else None


def last_days(count: int, today: date) -> Period:
    """The last ``count`` days, today among them."""
    return Period(today - timedelta(days=count - 1), today)


_Key = TypeVar("_Key", bound=Hashable)
_Sums = TypeVar("_Sums", bound=Spent)


def sum_by(parts: Iterable[tuple[_Key, _Sums]]) -> dict[_Key, _Sums]:
    """The sums of the parts that have the same key, such as a version."""
    found: dict[_Key, list[_Sums]] = {}
    for key, sums in parts:
        found.setdefault(key, []).append(sums)
    return {key: type(sums[0]).join(sums) for key, sums in found.items()}


def sum_by_slot(period: Period, days: Iterable[tuple[date, _Sums]]) -> list[_Sums | None]:
    """The sums of each slot of the period; None where there is nothing."""
    found = sum_by((period.find_slot(day), sums) for day, sums in days)
    return [found.get(position) for position in range(len(period.slots))]
