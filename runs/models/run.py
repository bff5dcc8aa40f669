"""One execution of a flow version on one input.

The row is the truth of the queue: ``status``, ``owner``, ``epoch``, ``lease_until`` and ``available_at`` say who may
work on it. A worker's writes are fenced by the epoch it claimed the run with. Leases are written and compared in
database time only, so that hosts' clocks don't matter.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any, Self

from django.conf import settings
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from flows.engine.history import Outcome, Severity
from flows.engine.planner import EndReason as PlannedEnd
from flows.json_field import OrderedJSONField
from flows.models import Flow, FlowVersion
from runs.observability.log_events import note_run_end

MAX_CRASHES = 5
"""A run that lost its worker this often without a stored attempt in between is poison and ends ``errored``."""


class RunStatus(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"
    ERRORED = "errored", "Errored"
    CANCELLED = "cancelled", "Cancelled"


ENDED = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.ERRORED, RunStatus.CANCELLED)


class EndReason(models.TextChoices):
    """Why a run ended: the planner's reasons, and those that only the machinery knows."""

    ALL_STEPS_PASSED = PlannedEnd.ALL_STEPS_PASSED.value, "All steps passed"
    STEP_FAILED = PlannedEnd.STEP_FAILED.value, "A step did not pass"
    STALLED = PlannedEnd.STALLED.value, "A step was stuck"
    PROVIDER_ERROR = PlannedEnd.PROVIDER_ERROR.value, "The provider could not be reached"
    CALL_REFUSED = PlannedEnd.CALL_REFUSED.value, "The call failed for good"
    MISSING_INPUT = PlannedEnd.MISSING_INPUT.value, "A step had no input"
    EXPRESSION_ERROR = PlannedEnd.EXPRESSION_ERROR.value, "An expression failed"
    BUDGET_EXCEEDED = "budget_exceeded", "The budget was used up"
    DEADLINE_EXCEEDED = "deadline_exceeded", "The time limit was reached"
    CONFIGURATION = "configuration", "The flow can't run here"
    CRASHED = "crashed", "Its workers died"
    INTERNAL_ERROR = "internal_error", "ToolFlow failed"
    CANCELLED = "cancelled", "Cancelled"


class Priority(models.IntegerChoices):
    """Which queued runs are claimed first."""

    HIGH = 0, "High"
    NORMAL = 1, "Normal"
    LOW = 2, "Low"


def in_future(delay: timedelta) -> models.Expression:
    """A moment in database time, ``delay`` from now."""
    if not delay:
        # SQLite compares texts, and a sum comes out with more digits than the time it began with.
        return Now()
    return models.ExpressionWrapper(Now() + models.Value(delay), output_field=models.DateTimeField())


class RunQuerySet(models.QuerySet["Run"]):
    def queued(self) -> Self:
        """Runs that a worker may claim now."""
        return self.filter(status=RunStatus.QUEUED, available_at__lte=Now(), cancel_requested=False)

    def running(self) -> Self:
        return self.filter(status=RunStatus.RUNNING)

    def ended(self) -> Self:
        return self.filter(status__in=ENDED)

    def uncounted(self) -> Self:
        """Runs that have ended and that statistics and search don't know yet."""
        # By their end, not by status: SQLite would read all that ended off the index of statuses.
        return self.filter(is_counted=False, ended_at__isnull=False)

    def cancelled_in_queue(self) -> Self:
        """Queued runs with a cancel flag: it was set while their worker handed them back."""
        return self.filter(status=RunStatus.QUEUED, cancel_requested=True)

    def expired(self) -> Self:
        """Runs whose worker has not renewed its lease in time."""
        return self.running().filter(lease_until__lt=Now())

    def suspect(self, grace: timedelta) -> Self:
        """Expired runs that a sweep found so ``grace`` ago or earlier: time enough for a live worker to say so."""
        return self.expired().filter(suspect_since__lte=in_future(-grace))

    def held(self, *, run_id: int, epoch: int) -> Self:
        """The run if it is still held under ``epoch``: the fence of every write of a worker."""
        return self.running().filter(pk=run_id, epoch=epoch)

    def renew(self, *, owner: str, ids: Collection[int], lease: timedelta) -> set[int]:
        """Prolong the leases of ``owner``; gives the runs that it still holds."""
        mine = self.running().filter(pk__in=ids, owner=owner)
        mine.update(lease_until=in_future(lease), suspect_since=None)
        return set(mine.values_list("pk", flat=True))


class Run(models.Model):
    """One execution of a flow version on one input, with totals kept as its attempts are stored."""

    # Indexes of lists begin with these columns: they need none of their own.
    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="runs", db_index=False)
    version = models.ForeignKey(FlowVersion, on_delete=models.PROTECT, related_name="runs", db_index=False)
    input = OrderedJSONField()
    is_input_redacted = models.BooleanField(default=False, help_text="The input is not the one that the run works on.")
    model_settings = models.JSONField(help_text="What calls fall back to, as resolved when the run was submitted.")
    is_simulated = models.BooleanField(default=False, help_text="The simulated model answers; nothing is billed.")
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )

    # No foreign key: retention deletes runs without reading those that repeat them.
    again_of = models.BigIntegerField(
        null=True, blank=True, help_text="The number of the run that this one repeats; it may be gone."
    )

    labels = models.JSONField(default=list, blank=True, help_text="Short texts given when the run was started.")

    metadata = OrderedJSONField(default=dict, help_text="What the caller keeps; ToolFlow only hands it on.")
    webhook_url = models.URLField(
        max_length=2000, blank=True, default="", help_text="What gets a message when the run has ended."
    )

    priority = models.PositiveSmallIntegerField(choices=Priority, default=Priority.NORMAL)
    token_budget = models.PositiveBigIntegerField(null=True, blank=True, help_text="Tokens that the run may use.")
    cost_budget = models.DecimalField(
        max_digits=16, decimal_places=8, null=True, blank=True, help_text="USD that the run may cost."
    )
    time_limit = models.DurationField(null=True, blank=True, help_text="How long the run may take from its start.")

    status = models.CharField(max_length=10, choices=RunStatus, default=RunStatus.QUEUED)
    end_reason = models.CharField(max_length=32, choices=EndReason, blank=True, default="")
    end_sentence = models.TextField(blank=True, default="")
    blocking_step = models.PositiveIntegerField(null=True, blank=True)
    blocking_attempt = models.PositiveIntegerField(null=True, blank=True)

    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    owner = models.CharField(max_length=200, blank=True, default="")
    epoch = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    suspect_since = models.DateTimeField(
        null=True, blank=True, help_text="When a sweep first found the lease expired; a live worker clears it."
    )
    record_number = models.PositiveIntegerField(default=0, help_text="How many writes of its workers are stored.")
    available_at = models.DateTimeField(db_default=Now())
    deadline_at = models.DateTimeField(null=True, blank=True)
    next_model = models.CharField(
        max_length=200, blank=True, default="", help_text="The model that its next call asks, for rate limits."
    )
    waiting_for = models.TextField(blank=True, default="", help_text="What a queued run waits for, in one sentence.")
    waiting_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when no worker has what the run's version needs."
    )
    cancel_requested = models.BooleanField(default=False)
    crashes = models.PositiveIntegerField(default=0)
    """Losses of its worker since its last stored attempt."""
    revision = models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows.")

    step_count = models.PositiveIntegerField()
    steps_passed = models.PositiveIntegerField(default=0)
    accepted_count = models.PositiveIntegerField(default=0, help_text="Steps whose best output was accepted.")
    attempt_count = models.PositiveIntegerField(default=0)
    retry_count = models.PositiveIntegerField(default=0)
    issues_low = models.PositiveIntegerField(default=0)
    issues_medium = models.PositiveIntegerField(default=0)
    issues_high = models.PositiveIntegerField(default=0)
    issues_critical = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    total_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=16, decimal_places=8, null=True, blank=True, help_text="USD")
    unpriced_count = models.PositiveIntegerField(default=0, help_text="Attempts that used tokens at an unknown price.")

    is_counted = models.BooleanField(default=False, help_text="Statistics and search know of this run; it has ended.")
    outputs_removed_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when only figures are left of what the run read and wrote."
    )

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(condition=Q(status__in=RunStatus.values), name="run_status_known"),
            models.CheckConstraint(condition=Q(priority__in=Priority.values), name="run_priority_known"),
            models.CheckConstraint(
                condition=Q(status__in=ENDED, ended_at__isnull=False)
                | Q(status__in=[RunStatus.QUEUED, RunStatus.RUNNING], ended_at__isnull=True),
                name="run_ended_at_iff_ended",
            ),
            models.CheckConstraint(
                condition=~Q(status=RunStatus.RUNNING) | Q(lease_until__isnull=False), name="run_running_has_lease"
            ),
        ]
        indexes = [
            models.Index(fields=["available_at", "id"], condition=Q(status="queued"), name="run_queued"),
            models.Index(fields=["flow", "priority", "id"], condition=Q(status="queued"), name="run_queued_by_flow"),
            models.Index(
                fields=["deadline_at"],
                condition=Q(status="queued", deadline_at__isnull=False),
                name="run_queued_by_deadline",
            ),
            models.Index(
                fields=["waiting_since"],
                condition=Q(status="queued", waiting_since__isnull=False),
                name="run_queued_by_waiting",
            ),
            # They are few: those whose lease has expired are found among all, and renewing one changes no index.
            models.Index(fields=["flow"], condition=Q(status="running"), name="run_running_by_flow"),
            models.Index(fields=["flow", "created_at", "id"], name="run_by_flow"),
            models.Index(fields=["status", "created_at", "id"], name="run_by_status"),
            # How many runs of a version passed.
            models.Index(fields=["version", "status"], name="run_by_version"),
            models.Index(fields=["version", "created_at", "id"], name="run_by_version_in_order"),
            models.Index(fields=["started_by", "created_at", "id"], name="run_by_user"),
            models.Index(fields=["created_at", "id"], name="run_by_creation"),
            # Recent failures: other indexes say when a run was created, not when it failed.
            models.Index(
                fields=["status", "-ended_at"], condition=Q(ended_at__isnull=False), name="run_by_status_at_end"
            ),
            models.Index(fields=["id"], condition=Q(is_counted=False, ended_at__isnull=False), name="run_uncounted"),
            # What is due under the policy of a flow. Each run that has ended is in one of the two.
            models.Index(
                fields=["flow", "ended_at"],
                condition=Q(ended_at__isnull=False, outputs_removed_at__isnull=True),
                name="run_by_end",
            ),
            models.Index(
                fields=["flow", "ended_at"],
                condition=Q(outputs_removed_at__isnull=False),
                name="run_by_end_without_outputs",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.flow} #{self.pk}"

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def issue_counts(self) -> dict[Severity, int]:
        """Issues of all attempts by severity."""
        return {severity: getattr(self, f"issues_{severity.value}") for severity in Severity}

    @property
    def _held(self) -> RunQuerySet:
        return Run.objects.held(run_id=self.pk, epoch=self.epoch)

    def hand_back(
        self,
        *,
        delay: timedelta = timedelta(0),
        next_model: str = "",
        waiting_for: str = "",
        needs_plugins: bool = False,
    ) -> bool:
        """Queue a run again that this worker holds, to be claimed after ``delay``. False if it held it no longer.

        ``next_model`` is asked next; ``waiting_for`` says what the run waits for, in a sentence. ``needs_plugins``
        says that this worker lacks plug-ins; the run doesn't wait for ever for one that has them.
        One that was to be cancelled ends so instead: no worker checks its flag while it waits.
        """
        values = {
            **QUEUED_AGAIN,
            "available_at": in_future(delay),
            "next_model": next_model,
            "waiting_for": waiting_for,
            "waiting_since": Coalesce("waiting_since", Now()) if needs_plugins else None,
        }
        with transaction.atomic():
            # A cancellation waits for this.
            locked = Run.objects.select_for_update().filter(pk=self.pk).first()
            cancelled = self._held.filter(cancel_requested=True).update(
                **end_values(RunStatus.CANCELLED, EndReason.CANCELLED, CANCELLED_SENTENCE)
            )
            if cancelled and locked is not None:
                locked._end_attempt()
                self._log_cancelled()
            return bool(cancelled or self._held.update(**values))

    def reclaim(self, lost: RunQuerySet, cause: str) -> bool:
        """Take a run from a lost worker: queue it again, or end it if that happened too often.

        ``lost`` are the runs whose workers are lost; gives False if this one is no longer among them. ``cause`` is a
        sentence on what happened to the worker. The caller ends the attempt that was under way.
        """
        values: dict[str, Any]
        if self.cancel_requested:
            values = end_values(RunStatus.CANCELLED, EndReason.CANCELLED, CANCELLED_SENTENCE)
        elif self.crashes + 1 >= MAX_CRASHES:
            values = end_values(
                RunStatus.ERRORED,
                EndReason.CRASHED,
                f"The run lost its worker {self.crashes + 1} times in a row without storing an attempt. "
                f"The last time: {cause} Run it again once the cause is fixed.",
            )
        else:
            # The model that its next call asks may be another one than it was claimed for: the gate knows.
            values = {**QUEUED_AGAIN, "available_at": Now(), "next_model": ""}
        mine = lost.filter(pk=self.pk, epoch=self.epoch)
        return bool(mine.update(**values, epoch=F("epoch") + 1, crashes=F("crashes") + 1))

    def request_cancel(self) -> bool:
        """Cancel: a queued run at once, a running one as soon as its worker sees the flag.

        Gives False if the run had ended already.
        """
        with transaction.atomic():
            # A worker that hands the run back takes turns with this.
            locked = Run.objects.select_for_update().filter(pk=self.pk).first()
            queued = Run.objects.filter(pk=self.pk, status=RunStatus.QUEUED).update(
                cancel_requested=True, **end_values(RunStatus.CANCELLED, EndReason.CANCELLED, CANCELLED_SENTENCE)
            )
            if queued and locked is not None:
                locked._end_attempt()
                self._log_cancelled()
            flagged = queued or Run.objects.running().filter(pk=self.pk).update(
                cancel_requested=True, revision=F("revision") + 1
            )
        self.refresh_from_db()
        return bool(flagged)

    def _end_attempt(self) -> None:
        """End the attempt of a cancelled run that no worker goes on with."""
        if not self.attempt_count:
            return
        for step in self.steps.filter(attempts__outcome=""):
            for attempt in step.attempts.running():
                attempt.end_without_output(Outcome.CANCELLED)

    def _log_cancelled(self) -> None:
        log = partial(note_run_end, RunStatus.CANCELLED.value, EndReason.CANCELLED.value, run=self.pk)
        transaction.on_commit(log)


CANCELLED_SENTENCE = "The run was cancelled."
REDACTED_INPUT = "Its input was redacted. Re-run it alone, and enter the original text again."
REMOVED_INPUT = "Its input was removed by the retention policy."
"""Why a run can't be run again, in a sentence."""

QUEUED_AGAIN: dict[str, Any] = {
    "status": RunStatus.QUEUED,
    "owner": "",
    "lease_until": None,
    "suspect_since": None,
    "waiting_since": None,
    "revision": F("revision") + 1,
}
"""The columns of a run that goes back to the queue."""


def end_expressions() -> dict[str, Any]:
    """The columns of every run that ends, besides its status and why it ended."""
    return {
        "ended_at": Now(),
        "lease_until": models.Value(None, output_field=models.DateTimeField()),
        "owner": models.Value(""),
        "waiting_for": models.Value(""),
        "revision": F("revision") + 1,
    }


def end_values(status: RunStatus, reason: EndReason, sentence: str) -> dict[str, Any]:
    """The columns of a run that ends without an attempt as its cause, for an UPDATE that the caller has fenced."""
    return {"status": status, "end_reason": reason, "end_sentence": sentence, **end_expressions()}
