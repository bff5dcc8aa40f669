"""What runs can be found by besides their own columns: a row for each value, in the order of lists."""

from __future__ import annotations

from django.db import models

from runs.models.run import Run


class FacetKind(models.TextChoices):
    """What a facet is about."""

    CODE = "code", "Issue code"
    AUDIT = "audit", "Audit"
    SEVERITY = "severity", "Severity at least"
    MODEL = "model", "Model"
    LABEL = "label", "Label"


class RunFacet(models.Model):
    """One value of one kind that a run has. Runs with a value are read off the index, the newest first."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="facets")
    kind = models.CharField(max_length=8, choices=FacetKind)
    value = models.CharField(max_length=200)
    created_at = models.DateTimeField(help_text="When the run was created.")

    class Meta:
        ordering = ["kind", "value", "created_at", "run"]
        constraints = [models.UniqueConstraint(fields=["kind", "value", "created_at", "run"], name="run_facet_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.value} of run {self.run_id}"
