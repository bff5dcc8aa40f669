"""Statistics of runs that have ended: rows for each flow, version and day.

``runs.statistics`` keeps them. Days are those of the end of a run, in UTC. A run counts once, when it is
counted; what it counted stays when it is deleted. ``docs/statistics.md`` says exactly what each number means.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from flows.models import Flow, FlowVersion


def _count(meaning: str = "") -> Any:
    return models.PositiveBigIntegerField(default=0, help_text=meaning)


def _cost(meaning: str = "USD, as far as prices are known.") -> Any:
    return models.DecimalField(max_digits=20, decimal_places=8, default=0, help_text=meaning)


class DailyCounts(models.Model):
    """What all rows have."""

    # The index of each table's own constraint begins with the flow.
    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(help_text="The day on which the runs ended, UTC.")
    is_simulated = models.BooleanField(default=False, help_text="Runs that the simulated model answered.")
    version = models.ForeignKey(FlowVersion, on_delete=models.CASCADE, related_name="+")

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"version {self.version_id} on {self.day}"


class DailyRuns(DailyCounts):
    """Runs of a version that ended on a day, by the model that all of their steps ask, and what they used."""

    # What ran once can't be deleted, also when its runs are gone.
    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="daily_runs", db_index=False)
    version = models.ForeignKey(FlowVersion, on_delete=models.PROTECT, related_name="daily_runs")
    model = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="As the definition names it; empty for several, and where none is asked.",
    )
    has_several = models.BooleanField(default=False, help_text="The steps of these runs ask for several models.")

    runs = _count()
    succeeded = _count()
    accepted = _count("Of those that succeeded, runs in which a step did not pass and had its best output accepted.")
    failed = _count()
    errored = _count()
    cancelled = _count()
    first_time = _count("Runs that succeeded without any retry.")
    total_tokens = _count()
    cost = _cost()
    unpriced = _count("Attempts that used tokens at an unknown price: the cost is without them.")
    durations = models.JSONField(
        default=dict, help_text="How many runs took how long: counts by the number of their bucket."
    )

    begun = _count("First attempts of steps that have an output.")
    attempts = _count("All attempts, also those that were interrupted.")
    retries = _count("Attempts with an output that followed another one of their step.")
    prompt_tokens = _count()
    completion_tokens = _count()
    cached_tokens = _count("The part of the prompt tokens that the provider had cached.")
    reasoning_tokens = _count("The part of the completion tokens that was thought and not shown.")

    first_tokens = _count("Tokens of first attempts.")
    first_cost = _cost("USD of first attempts.")
    useful_retry_tokens = _count("Tokens of retries of steps that passed in the end.")
    useful_retry_cost = _cost("USD of retries of steps that passed in the end.")
    wasted_retry_tokens = _count("Tokens of retries of steps that did not pass.")
    wasted_retry_cost = _cost("USD of retries of steps that did not pass.")

    class Meta:
        ordering = ["flow", "day", "version", "model"]
        verbose_name_plural = "daily runs"
        constraints = [
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "model", "has_several"], name="daily_runs_once"
            )
        ]
        indexes = [models.Index(fields=["day"], name="daily_runs_by_day")]


class DailySteps(DailyCounts):
    """Attempts of one step of a version by one model."""

    step = models.PositiveIntegerField(help_text="Its position, from 1.")
    name = models.CharField(max_length=100)
    model = models.CharField(
        max_length=200, blank=True, help_text="The one that answered; empty for local steps and where none did."
    )
    begun = _count("Runs whose first attempt with an output of this step it was.")
    passed = _count("Attempts that passed: runs that got past this step.")
    first_passed = _count("First attempts that passed.")
    attempts = _count("All attempts, also those that were interrupted.")
    retries = _count("Attempts with an output that followed another one of their step.")
    prompt_tokens = _count()
    completion_tokens = _count()
    total_tokens = _count()
    cost = _cost()
    unpriced = _count("Attempts that used tokens at an unknown price: the cost is without them.")

    class Meta:
        ordering = ["flow", "day", "version", "step"]
        verbose_name_plural = "daily steps"
        constraints = [
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "step", "model"], name="daily_steps_once"
            )
        ]


class DailyAudits(DailyCounts):
    """How often one audit of a step fired, and what came of it.

    What ToolFlow itself finds has no audit: there every code has a row of its own, such as ``schema_mismatch``.
    """

    step = models.PositiveIntegerField(help_text="Its position, from 1.")
    audit = models.CharField(max_length=200, blank=True, help_text="Its name; empty where ToolFlow raised the issue.")
    code = models.CharField(max_length=200, blank=True, help_text="Of what ToolFlow raised; empty for audits.")
    fired = _count("Attempts in which it raised an issue.")
    retried = _count("Of these, attempts that were followed by another one of their step.")
    fixed = _count("Of these, where the next one brought a usable output with none of its issues.")
    retry_tokens = _count("Tokens of the attempts that followed.")
    retry_cost = _cost("USD of the attempts that followed, as far as prices are known.")
    retry_unpriced = _count("Of the attempts that followed, those that used tokens at an unknown price.")

    class Meta:
        ordering = ["flow", "day", "version", "step", "audit", "code"]
        verbose_name_plural = "daily audits"
        constraints = [
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "step", "audit", "code"], name="daily_audits_once"
            )
        ]


class DailyIssues(DailyCounts):
    """How often one kind of issue was raised in a step."""

    step = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Its position, from 1; 0 where rows of before don't say which of several."
    )
    code = models.CharField(max_length=200)
    audit = models.CharField(max_length=200, blank=True, help_text="Empty where ToolFlow itself raised it.")
    severity = models.CharField(max_length=8)
    issues = _count()
    runs = _count("Runs in which it was raised at least once, each counted at the first of its steps that did.")
    step_runs = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="Runs in which this step raised it at least once."
    )
    first_run = models.PositiveBigIntegerField(null=True, help_text="The lowest number of these runs.")
    last_run = models.PositiveBigIntegerField(null=True, help_text="The highest number of these runs.")

    class Meta:
        ordering = ["flow", "day", "version", "step", "code"]
        verbose_name_plural = "daily issues"
        constraints = [
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "step", "code", "audit", "severity"],
                name="daily_issues_once",
            )
        ]
        indexes = [
            models.Index(fields=["flow", "audit", "code", "severity", "step", "day"], name="daily_issues_by_kind")
        ]


class PurgedDay(models.Model):
    """A day on which runs ended that retention deleted: it can't be counted again, and its daily rows stay."""

    # Its own constraint begins with the flow.
    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="purged_days", db_index=False)
    day = models.DateField(help_text="The day on which the runs ended, UTC.")

    class Meta:
        # It is not changed by hand.
        default_permissions = ()
        ordering = ["flow", "day"]
        constraints = [models.UniqueConstraint(fields=["flow", "day"], name="purged_day_once")]

    def __str__(self) -> str:
        return f"{self.flow}, {self.day}"
