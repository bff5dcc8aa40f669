"""What the retries of a run cost, and whether they were worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.engine.usage import TokenUsage

if TYPE_CHECKING:
    from runs.pages.run_page import StepView


@dataclass(frozen=True, slots=True)
class RetryBill:
    """Tokens and cost of a run in three parts."""

    first: TokenUsage
    """First attempts."""
    useful: TokenUsage
    """Retries of steps that passed in the end."""
    wasted: TokenUsage
    """Retries of steps that did not."""


def split_bill(steps: Sequence[StepView]) -> RetryBill | None:
    """Split the usage of a run; None if no step was retried."""
    return None
