"""What happened in a run: steps, their attempts, each with its own request, issues and token usage; and its facets."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Now

from flows.engine.history import Outcome, Severity
from flows.json_field import OrderedJSONField, PackedJSONField
from runs.models.run import Run

OUTCOME_CHOICES = [(outcome.value, outcome.value.capitalize()) for outcome in Outcome]
SEVERITY_CHOICES = [(severity.value, severity.value.capitalize()) for severity in Severity]


class Step(models.Model):
    """One position in a run, counted from 1 (0 is the run's input). It has a row once its first attempt begins."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps")
    index = models.PositiveIntegerField()
    name = models.CharField(max_length=100)

    class Meta:
        ordering = ["run", "index"]
        constraints = [models.UniqueConstraint(fields=["run", "index"], name="step_index_once")]

    def __str__(self) -> str:
        return f"{self.index}. {self.name}"


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def running(self) -> Self:
        """Attempts that have begun and not ended."""
        return self.filter(outcome="")

    def build_deciding_state(self) -> Subquery:
        """For an annotation of steps: how the attempt came out that counts for the step.

        That is the accepted one (“accepted”), else the last that was not interrupted (its outcome, empty while it
        runs); NULL if there is none.
        """
        rows = self.filter(step=OuterRef("pk")).exclude(outcome=Outcome.INTERRUPTED).order_by("-is_accepted", "-number")
        return Subquery(
            rows.values(state=Case(When(is_accepted=True, then=Value("accepted")), default=F("outcome")))[:1]
        )


class Attempt(models.Model):
    """One try of a step. The row is written when the attempt begins and completed, once, when it ends.

    In between a reply may be stored that is not judged yet: ``received``, with its usage.
    """

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    outcome = models.CharField(max_length=11, choices=OUTCOME_CHOICES, blank=True, default="")
    input = OrderedJSONField(null=True, blank=True)
    output = OrderedJSONField(null=True, blank=True)
    raw_output = OrderedJSONField(
        null=True, blank=True, help_text="What came back before the sanitizer, where it differs from the output."
    )
    model = models.CharField(max_length=200, blank=True, default="")
    response_id = models.CharField(max_length=200, blank=True, default="")
    finish_reason = models.CharField(max_length=50, blank=True, default="")
    error = models.JSONField(null=True, blank=True)
    failure_reason = models.TextField(blank=True, default="")
    is_accepted = models.BooleanField(
        default=False, help_text="It did not pass, and its step accepted it as the best; known once the run has ended."
    )
    plugins = models.JSONField(default=dict, blank=True)
    received = PackedJSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="The arguments that came back, not redacted, from when they are stored until they are judged.",
    )
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        ordering = ["step", "number"]
        constraints = [
            models.UniqueConstraint(fields=["step", "number"], name="attempt_number_once"),
            models.CheckConstraint(condition=Q(number__gte=1), name="attempt_number_from_one"),
            models.CheckConstraint(
                condition=Q(outcome__in=["", *(outcome.value for outcome in Outcome)]), name="attempt_outcome_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.step}, attempt {self.number}"

    @property
    def request(self) -> dict[str, Any] | None:
        """The exact body that was sent to the model, None for a local step. A query unless ``sent`` is selected."""
        sent = getattr(self, "sent", None)
        return None if sent is None else sent.body

    def end_without_output(self, outcome: Outcome) -> None:
        """End an attempt without a verdict (its worker died, the run was cancelled).

        What it used is known only where its reply was received: that is stored and counted already.
        """
        if self.received is None:
            TokenUsage.objects.create(attempt=self, reported=self.request is None)
        self.outcome = outcome.value
        self.received = None
        self.ended_at = Now()
        self.save(update_fields=["outcome", "received", "ended_at"])


class AttemptRequest(models.Model):
    """The exact body that an attempt sent to the model.

    It has a row of its own because an attempt's row is written again when it ends, and PostgreSQL copies all of it.
    """

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, primary_key=True, related_name="sent")
    body = PackedJSONField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"request of attempt {self.attempt_id}"


class IssueQuerySet(models.QuerySet["Issue"]):
    def at_least(self, severity: Severity) -> Self:
        """Issues of this severity and above."""
        return self.filter(severity__in=[other.value for other in Severity if other >= severity])


class Issue(models.Model):
    """What an audit found in one attempt's output."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="issues")
    position = models.PositiveIntegerField()
    code = models.CharField(max_length=200)
    severity = models.CharField(max_length=8, choices=SEVERITY_CHOICES)
    description = models.TextField()
    audit = models.CharField(max_length=200, blank=True, default="")
    path = models.TextField(null=True, blank=True)  # noqa: DJ001  # "" is a JSON pointer: the whole output
    context = OrderedJSONField(default=dict, blank=True)
    suggestions = models.JSONField(default=list, blank=True)
    added_fields = OrderedJSONField(default=dict, blank=True, help_text="Fields that the audit added.")

    objects = IssueQuerySet.as_manager()

    class Meta:
        ordering = ["attempt", "position"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "position"], name="issue_position_once"),
            models.CheckConstraint(
                condition=Q(severity__in=[severity.value for severity in Severity]), name="issue_severity_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.code} ({self.severity})"


class TokenUsage(models.Model):
    """Tokens and cost of one attempt."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, primary_key=True, related_name="usage")
    prompt = models.PositiveBigIntegerField(default=0)
    completion = models.PositiveBigIntegerField(default=0)
    total = models.PositiveBigIntegerField(default=0)
    cached = models.PositiveBigIntegerField(default=0)
    reasoning = models.PositiveBigIntegerField(default=0)
    reported = models.BooleanField(default=True)
    cost = models.DecimalField(max_digits=16, decimal_places=8, null=True, blank=True, help_text="USD")
    unpriced = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "token usage"

    def __str__(self) -> str:
        return f"{self.total} tokens"


class FacetKind(models.TextChoices):
    """What a facet is about."""

    CODE = "code", "Issue code"
    AUDIT = "audit", "Audit"
    SEVERITY = "severity", "Severity at least"
    MODEL = "model", "Model"
    LABEL = "label", "Label"


class RunFacet(models.Model):
    """One value of one kind that a run is found by. Runs with a value are read off the index, the newest first."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="facets")
    kind = models.CharField(max_length=8, choices=FacetKind)
    value = models.CharField(max_length=200)
    created_at = models.DateTimeField(help_text="When the run was created.")

    class Meta:
        ordering = ["kind", "value", "created_at", "run"]
        constraints = [models.UniqueConstraint(fields=["kind", "value", "created_at", "run"], name="run_facet_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.value} of run {self.run_id}"


class OriginalInput(models.Model):
    """What a run works on, apart from the row that all pages read: it is gone once the run is counted.

    Where that can't be done retention deletes it an hour after the run has ended.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="original_input")
    input = PackedJSONField()

    def __str__(self) -> str:
        return f"The input of run {self.run_id}"
