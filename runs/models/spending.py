"""What all runs of a flow together have used in a period, for flows that have a budget."""

from __future__ import annotations

from django.db import models

from flows.models import Flow


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
