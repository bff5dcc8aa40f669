"""Statistics of runs that have ended: one row for each flow, version and day, kept by ``runs.statistics``.

A day is that of the run's end, in UTC. A run counts once, when it is tallied; what it counted stays when it is deleted.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from flows.models import Flow, FlowVersion


def _count() -> Any:
    return models.PositiveBigIntegerField(default=0)


def _cost() -> Any:
    return models.DecimalField(max_digits=20, decimal_places=8, default=0, help_text="USD, where the price is known.")


class DailyCounts(models.Model):
    """What all daily rows have."""

    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="+")
    version = models.ForeignKey(FlowVersion, on_delete=models.CASCADE, related_name="+")
    day = models.DateField(help_text="The day on which the runs ended, UTC.")
    is_simulated = models.BooleanField(default=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.flow} v{self.version.number} on {self.day}"


class DailyRuns(DailyCounts):
    """Runs of a version that ended on a day, and what they used."""

    runs = _count()
    succeeded = _count()
    failed = _count()
    errored = _count()
    cancelled = _count()
    first_time = models.PositiveBigIntegerField(default=0, help_text="Runs that succeeded without any retry.")

    attempts = _count()
    prompt_tokens = _count()
    completion_tokens = _count()
    cached_tokens = _count()
    reasoning_tokens = _count()
    total_tokens = _count()
    cost = _cost()
    unpriced = models.PositiveBigIntegerField(default=0, help_text="Attempts that used tokens at an unknown price.")

    first_tokens = models.PositiveBigIntegerField(default=0, help_text="Tokens of first attempts.")
    first_cost = _cost()
    useful_retry_tokens = models.PositiveBigIntegerField(default=0, help_text="Tokens of retries of steps that passed.")
    useful_retry_cost = _cost()
    wasted_retry_tokens = models.PositiveBigIntegerField(default=0, help_text="Tokens of retries that led to no pass.")
    wasted_retry_cost = _cost()

    timed = models.PositiveBigIntegerField(default=0, help_text="Runs whose duration is known: they were started.")
    duration_total = models.FloatField(default=0, help_text="Seconds, all timed runs together.")
    durations = models.JSONField(
        default=dict, help_text="How many runs took how long: counts by the number of their bucket."
    )

    class Meta:
        ordering = ["flow", "day", "version"]
        verbose_name_plural = "daily runs"
        constraints = [
            models.UniqueConstraint(fields=["flow", "day", "version", "is_simulated"], name="daily_runs_once")
        ]
        indexes = [models.Index(fields=["day"], name="daily_runs_by_day")]


class DailySteps(DailyCounts):
    """Attempts of one step of a version by one model."""

    step = models.PositiveIntegerField(help_text="Its position, from 1.")
    name = models.CharField(max_length=100)
    model = models.CharField(max_length=200, blank=True, help_text="Empty for local steps and where nobody answered.")
    begun = models.PositiveBigIntegerField(default=0, help_text="Runs whose first attempt of this step it was.")
    passed = _count()
    first_passed = models.PositiveBigIntegerField(default=0, help_text="First attempts that passed.")
    attempts = _count()
    prompt_tokens = _count()
    completion_tokens = _count()
    total_tokens = _count()
    cost = _cost()
    unpriced = _count()

    class Meta:
        ordering = ["flow", "day", "version", "step"]
        verbose_name_plural = "daily steps"
        constraints = [
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "step", "model"], name="daily_steps_once"
            )
        ]


class DailyAudits(DailyCounts):
    """How often one audit of a step fired, and what came of it."""

    step = models.PositiveIntegerField()
    audit = models.CharField(max_length=200)
    fired = models.PositiveBigIntegerField(default=0, help_text="Attempts in which it raised an issue.")
    retried = models.PositiveBigIntegerField(default=0, help_text="Of these, attempts that were followed by another.")
    fixed = models.PositiveBigIntegerField(default=0, help_text="Of these, where the next raised none of its issues.")
    retry_tokens = models.PositiveBigIntegerField(default=0, help_text="Tokens of the attempts that followed.")
    retry_cost = _cost()

    class Meta:
        ordering = ["flow", "day", "version", "step", "audit"]
        verbose_name_plural = "daily audits"
        constraints = [
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "step", "audit"], name="daily_audits_once"
            )
        ]


class DailyIssues(DailyCounts):
    """How often one kind of issue was raised."""

    code = models.CharField(max_length=200)
    audit = models.CharField(max_length=200, blank=True)
    severity = models.CharField(max_length=8)
    issues = _count()
    runs = models.PositiveBigIntegerField(default=0, help_text="Runs in which it was raised at least once.")

    class Meta:
        ordering = ["flow", "day", "version", "code"]
        verbose_name_plural = "daily issues"
        constraints = [
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "code", "audit", "severity"],
                name="daily_issues_once",
            )
        ]
