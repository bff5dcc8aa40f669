"""What follows from an answer: it is delivered, tried again later, or given up."""

from __future__ import annotations

import random
from dataclasses import dataclass

from runs.models import DeliveryState
from runs.webhooks.posting import Answer

DELAYS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 86_400.0)
"""Seconds before the second try, the third and so on; after the last one it is given up."""
MOST_TRIES = len(DELAYS) + 1
JITTER = 0.2
"""The part by which delays are longer or shorter, so that what failed together does not come back together."""
LONGEST_WAIT = 86_400.0
"""Seconds; a receiver that asks for more gets so many."""
GONE = 410
"""The status of a receiver that wants to hear no more of this."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a delivery stands after a try, and in how many seconds it is tried again."""

    state: DeliveryState
    delay: float | None = None


def judge(answer: Answer, *, number: int) -> Verdict:
    """What follows from the answer to try ``number``, counted from 1."""
    if not answer.problem:
        return Verdict(DeliveryState.DELIVERED)
    if answer.is_refused or answer.status == GONE or number >= MOST_TRIES:
        return Verdict(DeliveryState.FAILED)
    delay = DELAYS[number - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # spreads load, guards nothing
    if answer.retry_after is not None:
        delay = max(delay, min(answer.retry_after, LONGEST_WAIT))
    return Verdict(DeliveryState.WAITING, delay)
