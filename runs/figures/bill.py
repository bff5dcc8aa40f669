"""What runs used in three parts: first attempts, retries that led to a pass, retries that did not."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from runs.figures.means import share_of
from runs.figures.sums import RunSums
from runs.retry_parts import FIRST, USEFUL, WASTED


@dataclass(frozen=True, slots=True)
class Use:
    """Tokens and what they cost; ``unpriced`` is more than 0 if attempts may be missing in that."""

    tokens: int
    cost: Decimal | None
    unpriced: int


@dataclass(frozen=True, slots=True)
class BillPart(Use):
    """One part of what runs used; ``share`` is that of the tokens."""

    kind: str
    """``first``, ``useful`` or ``wasted``."""
    share: float | None


def split_bill(sums: RunSums) -> tuple[BillPart, ...]:
    """What first attempts, useful and wasted retries used, in this order."""
    used = {
        FIRST: (sums.first_tokens, sums.first_cost),
        USEFUL: (sums.useful_retry_tokens, sums.useful_retry_cost),
        WASTED: (sums.wasted_retry_tokens, sums.wasted_retry_cost),
    }
    whole = sum(tokens for tokens, _ in used.values())
    return tuple(
        BillPart(
            tokens=tokens,
            cost=cost if cost or not tokens or not sums.unpriced else None,
            unpriced=sums.unpriced if tokens else 0,
            kind=kind,
            share=share_of(tokens, whole),
        )
        for kind, (tokens, cost) in used.items()
    )
