"""Limits of the provider and budgets of flows: what staff set, and where drains keep count."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from flows.models import Flow

MOST = 1_000_000_000_000
"""What no limit exceeds; a number above it is a slip of the hand."""

validate_model = RegexValidator(
    r"\A[^\s*]+\*?\Z",
    "Write a model's name such as “gpt-5-mini”, or the beginning of names with one “*” at the end such as “gpt-5*”; "
    "leave it empty for all models.",
)


def _make_limit_field(help_text: str) -> Any:
    validators = [MinValueValidator(1), MaxValueValidator(MOST)]
    return models.BigIntegerField(null=True, blank=True, validators=validators, help_text=help_text)


class RateLimit(models.Model):
    """What calls of some models may take of the provider, all hosts together. A call counts in every row it matches."""

    model = models.CharField(
        max_length=200,
        blank=True,
        default="",
        unique=True,
        validators=[validate_model],
        help_text="Whose calls count here, together: a model (“gpt-5-mini”), all whose names begin so (“gpt-5*”), or "
        "empty for all models.",
        error_messages={"unique": "There is a limit for the same model already; change that one."},
    )
    calls_in_flight = _make_limit_field("Calls under way at the same time.")
    requests_per_minute = _make_limit_field("Calls that begin in a minute.")
    tokens_per_minute = _make_limit_field("Tokens of prompts and answers together.")

    class Meta:
        ordering = ["model"]
        constraints = [
            models.CheckConstraint(
                condition=Q(calls_in_flight__isnull=False)
                | Q(requests_per_minute__isnull=False)
                | Q(tokens_per_minute__isnull=False),
                name="rate_limit_limits_something",
                violation_error_message="Give at least one of the three numbers; without any the row limits nothing.",
            ),
        ]

    def __str__(self) -> str:
        return self.model or "All models"


class LimitLedgerQuerySet(models.QuerySet["LimitLedger"]):
    ROW = 1

    def read_locked(self) -> tuple[dict[str, Any], datetime]:
        """The state and the database's time; within a transaction, until whose end no other process reads it so."""
        row = self._read()
        if row is None:
            # Another process may be creating it at the same time.
            self.bulk_create([LimitLedger(pk=self.ROW)], ignore_conflicts=True)
            row = self._read()
            assert row is not None
        return row

    def _read(self) -> tuple[dict[str, Any], datetime] | None:
        return self.select_for_update().filter(pk=self.ROW).values_list("state", Now()).first()

    def write(self, state: dict[str, Any]) -> None:
        """Replace the state that ``read_locked`` gave."""
        self.filter(pk=self.ROW).update(state=state)


class LimitLedger(models.Model):
    """The one row in which drains keep count of limits; ``runs.limits.ledger`` knows what is in it."""

    state = models.JSONField(default=dict)

    objects = LimitLedgerQuerySet.as_manager()

    def __str__(self) -> str:
        return "Limits"


class FlowSpending(models.Model):
    """Tokens and cost of a flow in one period; kept up to date in the transactions that store attempts."""

    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="spending")
    period_start = models.DateField(help_text="The first day of the period, UTC.")
    tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=8, default=0, help_text="USD")

    class Meta:
        ordering = ["flow", "period_start"]
        verbose_name_plural = "flow spending"
        constraints = [models.UniqueConstraint(fields=["flow", "period_start"], name="flow_spending_once")]

    def __str__(self) -> str:
        return f"{self.flow} since {self.period_start}"
