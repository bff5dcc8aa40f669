"""How much runs used, in coarse levels: what “cost over” and “tokens over” are found by.

Runs of a level are read off an index in the order of their numbers. The totals themselves stand on the run; an index on
those would have to be written with every attempt, where these rows are written once, when a run is tallied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from decimal import Decimal

from django.db import models

from runs.models.run import Run

COST_STEPS: Sequence[Decimal] = tuple(
    Decimal(digit).scaleb(exponent) for exponent in range(-3, 2) for digit in (1, 2, 5)
)
"""US dollars at which a level ends and the next begins. People ask for round sums."""
TOKEN_STEPS: Sequence[int] = tuple(digit * 10**exponent for exponent in range(3, 8) for digit in (1, 2, 5))
"""Tokens at which a level ends and the next begins."""


class RunLevels(models.Model):
    """The levels of one run that was tallied; None where it used nothing, or nobody knows what it cost."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="levels")
    cost = models.PositiveSmallIntegerField(null=True)
    tokens = models.PositiveSmallIntegerField(null=True)

    class Meta:
        verbose_name_plural = "run levels"
        indexes = [
            models.Index(fields=["cost", "-run"], name="run_by_cost_level"),
            models.Index(fields=["tokens", "-run"], name="run_by_token_level"),
        ]

    def __str__(self) -> str:
        return f"Levels of run {self.run_id}"


def find_cost_level(cost: Decimal | None) -> int | None:
    """The level of a sum in USD, from 0; None for nothing."""
    return bisect_right(COST_STEPS, cost) if cost else None


def find_token_level(tokens: int) -> int | None:
    """The level of a number of tokens, from 0; None for none."""
    return bisect_right(TOKEN_STEPS, tokens) if tokens else None


def store_levels(*, run_ids: Collection[int]) -> None:
    """Store the levels of runs that have ended; within the transaction that marks them as tallied."""
    totals = Run.objects.filter(pk__in=run_ids).values_list("pk", "cost", "total_tokens")
    RunLevels.objects.bulk_create(
        [
            RunLevels(run_id=run_id, cost=find_cost_level(cost), tokens=find_token_level(tokens))
            for run_id, cost, tokens in totals
        ],
        update_conflicts=True,
        unique_fields=["run"],
        update_fields=["cost", "tokens"],
    )
