"""Days that lack runs because retention deleted them: their statistics can't be counted again."""

from __future__ import annotations

from django.db import models

from flows.models import Flow


class PurgedDay(models.Model):
    """A day on which deleted runs of a flow ended; its daily rows stay as they are."""

    # Its own constraint begins with the flow.
    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="purged_days", db_index=False)
    day = models.DateField(help_text="The day on which the runs ended, UTC.")

    class Meta:
        # Nobody changes it by hand.
        default_permissions = ()
        ordering = ["flow", "day"]
        constraints = [models.UniqueConstraint(fields=["flow", "day"], name="purged_day_once")]

    def __str__(self) -> str:
        return f"{self.flow}, {self.day}"
