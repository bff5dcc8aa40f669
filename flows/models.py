"""Flows, the immutable versions that runs are pinned to, and what editors have typed and not published.

A flow is defined by one ``FlowSpec`` document. Publishing stores it as a ``FlowVersion``, and only versions ever run.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import cached_property
from typing import Any, NoReturn, Self

from django.conf import settings
from django.core.validators import BaseValidator, MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models.functions import Now

from flows.engine.errors import SpecError
from flows.engine.spec import (
    COST_PLACES,
    MAX_COST_BUDGET,
    MAX_TITLE_LENGTH,
    MAX_TOKEN_BUDGET,
    MIN_COST_BUDGET,
    NAME_PATTERN,
    FlowSpec,
)
from flows.json_field import OrderedJSONField

MAX_KEEP_DAYS = 36_500
"""For how long runs can be kept where a number says so: a hundred years."""


FLOW_SETTINGS = (
    "max_runs_in_flight",
    "total_token_budget",
    "total_cost_budget",
    "budget_period",
    "keep_days",
    "keep_outputs_days",
)
"""How an installation runs a flow: fields that are not part of its definition."""


class ImmutableVersionError(Exception):
    """A flow version was to be changed, or one that is live was to be deleted."""

    def __init__(self, message: str = "Versions of a flow never change. Publish a new one.") -> None:
        super().__init__(message)


validate_name = RegexValidator(
    NAME_PATTERN, "Use lower-case letters and digits, with a hyphen between words, such as “invoice-extraction”."
)


def _between(least: int | Decimal, most: int | Decimal) -> list[BaseValidator]:
    return [MinValueValidator(least), MaxValueValidator(most)]


class BudgetPeriod(models.TextChoices):
    """How long a budget of a whole flow lasts; then it starts again. Days and months are those of UTC."""

    DAY = "day", "Day"
    MONTH = "month", "Month"


class FlowQuerySet(models.QuerySet["Flow"]):
    def runnable(self) -> Self:
        """Flows with a live version that are not archived."""
        return self.filter(live_version__isnull=False, is_archived=False)


class Flow(models.Model):
    """What may run: the name of its versions, and how this installation runs them."""

    # What its latest version says, for lists and searches.
    name = models.SlugField(max_length=100, unique=True, validators=[validate_name])
    title = models.CharField(max_length=MAX_TITLE_LENGTH)
    description = models.TextField(blank=True, default="")

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

    live_version = models.ForeignKey(
        "FlowVersion", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    deleted_number = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    """The highest number of a version that was deleted: backtests, drafts and the audit log may name it still."""
    is_archived = models.BooleanField("archived", default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = FlowQuerySet.as_manager()

    class Meta:
        ordering = ["title", "pk"]

    def __str__(self) -> str:
        return self.title

    def next_number(self, latest: FlowVersion | None) -> int:
        """The number of the version after ``latest``, the flow's latest one, if any: no number is used twice."""
        return max(self.deleted_number, latest.number if latest else 0) + 1

    def make_live(self, version: FlowVersion) -> None:
        """Let new runs use ``version``. Raises ``ValueError`` if it is another flow's."""
        if version.flow_id != self.pk:
            raise ValueError(f"Version {version.number} belongs to another flow.")
        self.live_version = version
        self.save(update_fields=["live_version", "updated_at"])

    def set_archived(self, is_archived: bool) -> str:
        """Archive or unarchive the flow, and give the line for its history, empty if nothing changed."""
        if self.is_archived == is_archived:
            return ""
        self.is_archived = is_archived
        self.save(update_fields=["is_archived", "updated_at"])
        return "Archived." if is_archived else "Unarchived."


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
        with transaction.atomic():
            flows = Flow.objects.filter(pk=self.flow_id, deleted_number__lt=self.number)
            flows.update(deleted_number=self.number)
            return super().delete(*args, **kwargs)

    @cached_property
    def flow_spec(self) -> FlowSpec:
        """The definition as the engine wants it. Raises ``SpecError`` if this release can't read it."""
        return FlowSpec.from_document(self.spec)

    @property
    def readable_spec(self) -> FlowSpec | None:
        """``flow_spec``; None if this release can't read it."""
        try:
            return self.flow_spec
        except SpecError:
            return None


class FlowDraft(models.Model):
    """What one editor has typed into a flow, or into a new one, and not published. It never runs."""

    flow = models.ForeignKey(Flow, null=True, blank=True, on_delete=models.CASCADE, related_name="drafts")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    document = OrderedJSONField()
    """As it was typed: it may be no valid ``FlowSpec`` yet."""
    base_version = models.PositiveIntegerField(default=0)
    """The number of the version that it was made from; 0 for a new flow."""
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-updated_at"]
        constraints = [
            models.UniqueConstraint(fields=["flow", "user"], name="flow_draft_once"),
            models.UniqueConstraint(fields=["user"], condition=models.Q(flow=None), name="flow_draft_of_new_once"),
        ]

    def __str__(self) -> str:
        return f"Draft of {self.flow or 'a new flow'} by {self.user}"
