"""What one run or many used in three parts: first attempts, retries that led to a pass, retries that did not.

Shares are shares of the money where all of it is known, else of the tokens: a sum that misses something gives wrong
shares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal

from runs.attempt_rules import FIRST, USEFUL, WASTED
from runs.figures.sums import RunSums

TITLES: Mapping[str, str] = {
    FIRST: "First attempts",
    USEFUL: "Retries that led to a pass",
    WASTED: "Retries that did not",
}
"""What the parts are called, in their order."""


@dataclass(frozen=True, slots=True)
class Use:
    """Tokens and what they cost; ``unpriced`` is more than 0 if attempts may be missing in that."""

    tokens: int
    cost: Decimal | None
    unpriced: int


@dataclass(frozen=True, slots=True)
class BillPart(Use):
    """One part of what was used; ``share`` is that of the money or else of the tokens, see ``is_by_cost``."""

    kind: str
    """``first``, ``useful`` or ``wasted``."""
    share: float | None


def use_of_runs(sums: RunSums) -> Mapping[str, Use]:
    """What first attempts, useful and wasted retries of many runs used."""
    used = {
        FIRST: (sums.first_tokens, sums.first_cost),
        USEFUL: (sums.useful_retry_tokens, sums.useful_retry_cost),
        WASTED: (sums.wasted_retry_tokens, sums.wasted_retry_cost),
    }
    return {
        kind: Use(tokens, cost if cost or not tokens or not sums.unpriced else None, sums.unpriced if tokens else 0)
        for kind, (tokens, cost) in used.items()
    }


def is_by_cost(uses: Collection[Use]) -> bool:
    """Whether shares of these are shares of the money: all that was used has a price, and it cost something."""
    used = [use for use in uses if use.tokens or use.cost]
    return not any(use.unpriced or use.cost is None for use in used) and sum(use.cost or 0 for use in used) > 0


def measure_uses(used: Mapping[str, Use]) -> Mapping[str, Decimal]:
    """How much of the whole each part is: in USD, or else in tokens."""
    if is_by_cost(used.values()):
        return {kind: use.cost or Decimal(0) for kind, use in used.items()}
    return {kind: Decimal(use.tokens) for kind, use in used.items()}


def split_bill(used: Mapping[str, Use]) -> tuple[BillPart, ...]:
    """The parts of a bill with their shares, in the order of ``used``; shares of nothing are None."""
    amounts = measure_uses(used)
    whole = sum(amounts.values())
    return tuple(
        BillPart(
            tokens=use.tokens,
            cost=use.cost,
            unpriced=use.unpriced,
            kind=kind,
            share=float(amounts[kind] / whole) if whole else None,
        )
        for kind, use in used.items()
    )
