"""What the retries of a run cost, and whether they were worth it; ``runs.statistics.sums`` has the rule for shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from flows.engine.history import TokenUsage, sum_usage
from runs.attempt_rules import FIRST, USEFUL, WASTED, classify_attempts
from runs.formatting import format_cost, format_count, format_share
from runs.statistics.sums import TITLES, Use, is_by_cost, measure_uses, split_bill

RUNNING = "running"


class BilledAttempt(Protocol):
    """What must be known of an attempt."""

    @property
    def step(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def is_try(self) -> bool: ...
    @property
    def usage(self) -> TokenUsage | None: ...


class BilledStep(Protocol):
    """What must be known of a step."""

    @property
    def index(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def is_local(self) -> bool: ...
    @property
    def attempts(self) -> Sequence[BilledAttempt]: ...


@dataclass(frozen=True, slots=True)
class BillRow:
    """One of the three parts as text, with its place on the bar in per cent of the width."""

    name: str
    """``first``, ``useful`` or ``wasted``."""
    title: str
    attempts: int
    tokens: str
    cost: str
    share: str
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class RetryBill:
    """Tokens and cost of a run in three parts."""

    used: Mapping[str, Use]
    """What first attempts, retries of steps that passed in the end, and retries of steps that did not used."""
    attempts: Mapping[str, int]
    """How many attempts each part has, by its name."""
    is_reported: bool
    """Whether all attempts reported what they used."""
    has_unanswered: bool
    """Whether some of these ended without an output: they belong to the try that they were meant to be."""
    is_open: bool
    """A step that was retried may still pass."""

    @property
    def is_by_cost(self) -> bool:
        """Whether shares are shares of the money; else of the tokens."""
        return is_by_cost(self.used.values())

    @property
    def sentence(self) -> str:
        """What the retries cost: “Retries cost 38 % of this run: $0.0124 of $0.0331; $0.0090 of it led to a pass.”"""
        amounts = measure_uses(self.used)
        whole, retries = sum(amounts.values()), amounts[USEFUL] + amounts[WASTED]
        if not whole:
            return "No tokens were reported." if not self.is_reported else "No tokens were used."
        spent = f"{self._show(retries)} of {self._show(whole)}"
        if self.is_by_cost:
            words, it = f"Retries cost {_share(retries, whole)} of this run: {spent}", "it"
        else:
            words, it = f"Retries used {_share(retries, whole)} of this run’s tokens: {spent}", "them"
        if not retries:
            return f"{words}."
        if not amounts[WASTED]:
            return f"{words}; all of {it} led to a pass."
        if not amounts[USEFUL]:
            return f"{words}; none of {it} led to a pass{' yet' if self.is_open else ''}."
        return f"{words}; {self._show(amounts[USEFUL])} of {it} led to a pass."

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers leave out or count in, as sentences."""
        notes = []
        if not self.is_reported:
            notes.append("Attempts whose tokens were not reported count as nothing.")
        if self._misses:
            notes.append("Some prices are unknown, so shares are shares of the tokens.")
        if self.has_unanswered:
            notes.append(
                "Attempts without an output do not count as retries: they count towards the attempt that replaced them."
            )
        return tuple(notes)

    @property
    def parts(self) -> tuple[BillRow, ...]:
        """The three parts, also those in which nothing was used."""
        rows, begin = [], 0.0
        for part in split_bill(self.used):
            width = 100 * (part.share or 0.0)
            rows.append(
                BillRow(
                    name=part.kind,
                    title="Retries, no pass yet" if part.kind == WASTED and self.is_open else TITLES[part.kind],
                    attempts=self.attempts[part.kind],
                    tokens=format_count(part.tokens),
                    cost=format_cost(part.cost, part.unpriced),
                    share=format_share(part.share),
                    x=f"{begin:.2f}%",
                    width=f"{width:.2f}%",
                )
            )
            begin += width
        return tuple(rows)

    @property
    def _misses(self) -> bool:
        """Whether tokens were used at an unknown price. A simulated run has no prices at all, and misses none."""
        return any(use.unpriced for use in self.used.values())

    def _show(self, amount: Decimal) -> str:
        return format_cost(amount) if self.is_by_cost else format_count(int(amount))


def bill_run(steps: Sequence[BilledStep]) -> RetryBill | None:
    """Split the usage of a run; None if no step that calls a model was retried."""
    calls = [attempt for step in steps if not step.is_local for attempt in step.attempts]
    parts = classify_attempts([(attempt.step, attempt.state) for attempt in calls])
    retried = {attempt.step for attempt, part in zip(calls, parts, strict=True) if part != FIRST and attempt.is_try}
    if not retried:
        return None
    usages: dict[str, list[TokenUsage]] = {FIRST: [], USEFUL: [], WASTED: []}
    for attempt, part in zip(calls, parts, strict=True):
        if attempt.usage is not None:
            usages[part].append(attempt.usage)
    sums = {name: sum_usage(own) for name, own in usages.items()}
    return RetryBill(
        used={name: Use(usage.total, usage.cost, usage.unpriced) for name, usage in sums.items()},
        attempts={name: parts.count(name) for name in usages},
        is_reported=all(usage.reported for usage in sums.values()),
        has_unanswered=not all(attempt.is_try for attempt in calls),
        is_open=any(step.state in (RUNNING, "retrying") for step in steps if step.index in retried),
    )


def _share(amount: Decimal, whole: Decimal) -> str:
    return format_share(float(amount / whole))
