"""Token usage and cost of attempts."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field


class TokenUsage(BaseModel):
    """Tokens that one attempt, or a sum of attempts, was billed for.

    ``cached`` is the part of ``prompt`` that the provider had cached; ``reasoning`` the part of ``completion``
    that was thought and not shown. ``cost`` is in USD and None, never 0, where it is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: int = Field(default=0, ge=0)
    completion: int = Field(default=0, ge=0)
    total: int = Field(default=0, ge=0)
    cached: int = Field(default=0, ge=0)
    reasoning: int = Field(default=0, ge=0)
    reported: bool = True
    """False where a call was made and the provider reported no usage; of a sum: where that holds for any part."""
    cost: Decimal | None = None
    """USD. Of a sum: the known costs added up, None where none is known."""
    unpriced: int = Field(default=0, ge=0)
    """How many attempts used tokens at an unknown price, so that ``cost`` is only a lower bound."""


NO_USAGE = TokenUsage()
"""A local step, or step 0: nothing was called, nothing is billed."""

UNREPORTED_USAGE = TokenUsage(reported=False)
"""A call that brought no usage report."""


def sum_usage(usages: Iterable[TokenUsage]) -> TokenUsage:
    """Add up usages; unknown costs stay out of the sum and are counted in ``unpriced``."""
    prompt = completion = total = cached = reasoning = unpriced = 0
    reported = True
    cost: Decimal | None = None
    for usage in usages:
        prompt += usage.prompt
        completion += usage.completion
        total += usage.total
        cached += usage.cached
        reasoning += usage.reasoning
        unpriced += usage.unpriced
        reported = reported and usage.reported
        if usage.cost is not None:
            cost = usage.cost if cost is None else cost + usage.cost
    return TokenUsage(
        prompt=prompt,
        completion=completion,
        total=total,
        cached=cached,
        reasoning=reasoning,
        reported=reported,
        cost=cost,
        unpriced=unpriced,
    )
