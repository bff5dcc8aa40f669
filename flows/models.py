"""Flows as editors define them, and the immutable versions that runs are pinned to.

``Flow``, ``StepDefinition`` and ``AuditRule`` are what the admin edits. Publishing turns them into a ``FlowVersion``
(one ``FlowSpec`` document), and only versions ever run. Field names are those of ``flows.engine.spec``.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self

from django.conf import settings
from django.core.validators import BaseValidator, MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models.functions import Now

from flows.engine.history import Severity
from flows.engine.model_families import ReasoningEffort
from flows.engine.spec import (
    COST_PLACES,
    MAX_COST_BUDGET,
    MAX_EXPRESSION_LENGTH,
    MAX_TIME_LIMIT,
    MAX_TOKEN_BUDGET,
    MIN_COST_BUDGET,
    NAME_PATTERN,
    TOOL_NAME_PATTERN,
    FailAt,
    FlowSpec,
    ServiceTier,
)
from flows.json_field import OrderedJSONField


def _choices(values: type[StrEnum]) -> list[tuple[str, str]]:
    return [(value.value, value.value.capitalize()) for value in values]


SEVERITY_CHOICES = _choices(Severity)


MAX_KEEP_DAYS = 36_500
"""For how long runs can be kept where a number says so: a hundred years."""


class ImmutableVersionError(Exception):
    """A flow version was to be changed, or one that is live was to be deleted."""

    def __init__(self, message: str = "Versions of a flow never change. Publish a new one.") -> None:
        super().__init__(message)


if TYPE_CHECKING:
    _TextField = models.TextField[str, str]
else:  # Django's fields are generic for type checkers only.
    _TextField = models.TextField


class ExpressionField(_TextField):
    """CEL text or ``python:name``; empty where nothing is set."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("blank", True)
        kwargs.setdefault("default", "")
        kwargs.setdefault("max_length", MAX_EXPRESSION_LENGTH)
        super().__init__(*args, **kwargs)


class ModelSettingsFields(models.Model):
    """What flows and steps may say about the model; empty falls back (step, flow, settings)."""

    model = models.CharField(max_length=200, blank=True, default="")
    temperature = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0), MaxValueValidator(2)])
    max_tokens = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    reasoning_effort = models.CharField(max_length=10, choices=_choices(ReasoningEffort), blank=True, default="")
    service_tier = models.CharField(max_length=10, choices=_choices(ServiceTier), blank=True, default="")

    class Meta:
        abstract = True


validate_name = RegexValidator(
    NAME_PATTERN, "Use lower-case letters and digits, with a hyphen between words, such as “invoice-extraction”."
)


def _between(least: int | Decimal, most: int | Decimal) -> list[BaseValidator]:
    return [MinValueValidator(least), MaxValueValidator(most)]


class BudgetPeriod(models.TextChoices):
    """How long a budget of a whole flow lasts; then it begins anew. Days and months are those of UTC."""

    DAY = "day", "Day"
    MONTH = "month", "Month"


class FlowQuerySet(models.QuerySet["Flow"]):
    def runnable(self) -> Self:
        """Flows with a live version that are not archived."""
        return self.filter(live_version__isnull=False, is_archived=False)


class Flow(ModelSettingsFields):
    """What may run. Its rows are a draft until they are published as a version."""

    name = models.SlugField(max_length=100, unique=True, validators=[validate_name])
    title = models.CharField(max_length=200)
    description = models.TextField(blank=True, default="")
    input_schema = OrderedJSONField(null=True, blank=True)
    token_budget = models.PositiveBigIntegerField(null=True, blank=True, validators=_between(1, MAX_TOKEN_BUDGET))
    cost_budget = models.DecimalField(
        null=True,
        blank=True,
        max_digits=16,
        decimal_places=COST_PLACES,
        validators=_between(MIN_COST_BUDGET, MAX_COST_BUDGET),
    )
    time_limit = models.PositiveIntegerField(null=True, blank=True, validators=_between(1, MAX_TIME_LIMIT))

    redact = models.JSONField(default=list, blank=True)

    # How this installation runs the flow. No part of its definition: a change makes no version and holds at once.
    max_runs_in_flight = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    total_token_budget = models.PositiveBigIntegerField(null=True, blank=True, validators=_between(1, MAX_TOKEN_BUDGET))
    total_cost_budget = models.DecimalField(
        null=True,
        blank=True,
        max_digits=16,
        decimal_places=COST_PLACES,
        validators=_between(MIN_COST_BUDGET, MAX_COST_BUDGET),
    )
    budget_period = models.CharField(max_length=5, choices=BudgetPeriod, default=BudgetPeriod.MONTH)
    # Days from the end of a run; empty where the installation's own hold.
    # 0 keeps for ever, whatever the installation does.
    keep_days = models.PositiveIntegerField(null=True, blank=True, validators=_between(0, MAX_KEEP_DAYS))
    keep_outputs_days = models.PositiveIntegerField(null=True, blank=True, validators=_between(0, MAX_KEEP_DAYS))

    revision = models.PositiveIntegerField(default=0, editable=False)
    """How often the flow was saved: an editor's page names the revision that it was made of."""
    live_version = models.ForeignKey(
        "FlowVersion", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    is_archived = models.BooleanField("archived", default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = FlowQuerySet.as_manager()

    class Meta:
        ordering = ["title", "pk"]

    def __str__(self) -> str:
        return self.title

    def make_live(self, version: FlowVersion) -> None:
        """Let new runs use ``version``. Raises ``ValueError`` if it is another flow's."""
        if version.flow_id != self.pk:
            raise ValueError(f"Version {version.number} belongs to another flow.")
        self.live_version = version
        self.save(update_fields=["live_version", "updated_at"])


class StepDefinition(ModelSettingsFields):
    """One step of a flow's draft."""

    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveIntegerField(default=0)
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True, default="")
    tool_name = models.CharField(
        max_length=64,
        blank=True,
        default="",
        validators=[
            RegexValidator(TOOL_NAME_PATTERN, "Use 1 to 64 letters, digits, “_” and “-”, as the model's API wants it.")
        ],
    )
    system_message = models.TextField(blank=True, default="")
    output_type = models.CharField(max_length=200, blank=True, default="")
    output_schema = OrderedJSONField(null=True, blank=True)
    compute = ExpressionField()
    input_expression = ExpressionField()
    input_sanitizer = ExpressionField()
    output_sanitizer = ExpressionField()
    include_results = models.JSONField(default=list, blank=True)
    issue_severity_filter = models.CharField(max_length=8, choices=SEVERITY_CHOICES, default=Severity.HIGH.value)
    max_retries = models.PositiveIntegerField(default=3, validators=[MaxValueValidator(100)])
    stop_on_failure = models.BooleanField(default=True)
    retry_window = models.PositiveIntegerField(null=True, blank=True, validators=_between(0, MAX_TIME_LIMIT))
    time_limit = models.PositiveIntegerField(null=True, blank=True, validators=_between(1, MAX_TIME_LIMIT))
    pass_expression = ExpressionField()
    failure_reason_expression = ExpressionField()

    class Meta:
        # Positions may repeat while an editor reorders; the key decides then.
        ordering = ["position", "pk"]
        verbose_name = "step"

    def __str__(self) -> str:
        return self.name


class AuditRule(models.Model):
    """One audit of a step's draft."""

    step = models.ForeignKey(StepDefinition, on_delete=models.CASCADE, related_name="audits")
    position = models.PositiveIntegerField(default=0)
    name = models.CharField(max_length=100)
    # Workers of the version before write rows without it.
    for_each = ExpressionField(db_default="")
    rule = models.TextField(max_length=MAX_EXPRESSION_LENGTH)
    severity = models.CharField(max_length=8, choices=SEVERITY_CHOICES, default=Severity.CRITICAL.value)
    fail_at = models.CharField(max_length=8, choices=[("", "Its severity"), *_choices(FailAt)], blank=True, default="")
    message = ExpressionField()
    message_template = models.TextField(max_length=MAX_EXPRESSION_LENGTH, blank=True, default="")
    suggestions = ExpressionField()
    path = ExpressionField()

    class Meta:
        ordering = ["position", "pk"]
        verbose_name = "audit"

    def __str__(self) -> str:
        return self.name


class FlowVersionQuerySet(models.QuerySet["FlowVersion"]):
    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete versions one by one, so that each says whether it may go."""
        with transaction.atomic(using=self.db):
            counts = [version.delete()[0] for version in self]
        return sum(counts), {FlowVersion._meta.label: len(counts)}

    def bulk_create(self, objs: Iterable[FlowVersion], *args: Any, **kwargs: Any) -> list[FlowVersion]:
        if kwargs.get("update_conflicts"):
            raise ImmutableVersionError
        return super().bulk_create(objs, *args, **kwargs)

    def update(self, **kwargs: Any) -> NoReturn:
        raise ImmutableVersionError

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ImmutableVersionError


class FlowVersion(models.Model):
    """An immutable, numbered snapshot of a flow."""

    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    spec = OrderedJSONField()
    digest = models.CharField(max_length=64)
    note = models.CharField(max_length=500, blank=True, default="")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now())

    objects = FlowVersionQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["flow", "number"], name="flow_version_number_once")]

    def __str__(self) -> str:
        return f"{self.flow} v{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store a new version. Raises ``ImmutableVersionError`` if it is stored already."""
        if not self._state.adding:
            raise ImmutableVersionError(f"{self} is published and never changes. Publish a new version.")
        # Never an UPDATE, not even of a row that is named by its key.
        super().save(*args, **{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete a version that never ran. Raises ``ImmutableVersionError`` if it is live.

        One that has runs raises ``django.db.models.ProtectedError``: runs protect their version.
        """
        if self.flow.live_version_id == self.pk:
            raise ImmutableVersionError(f"{self} is live. Make another version live first.")
        return super().delete(*args, **kwargs)

    @cached_property
    def flow_spec(self) -> FlowSpec:
        """The definition as the engine wants it."""
        return FlowSpec.from_document(self.spec)
