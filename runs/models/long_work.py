"""What is done to many runs, batch by batch, and takes longer than a request: bulk actions and backtests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now

from flows.engine.backtest_result import BacktestKind
from flows.json_field import OrderedJSONField
from flows.models import Flow, FlowVersion
from runs.models.run import Run, in_future


class WorkState(models.TextChoices):
    """``stopped`` is what a user wanted, ``failed`` is not."""

    WAITING = "waiting", "Waiting"
    WORKING = "working", "Working"
    DONE = "done", "Done"
    STOPPED = "stopped", "Stopped"
    FAILED = "failed", "Failed"


UNFINISHED = (WorkState.WAITING, WorkState.WORKING)

_Work_co = TypeVar("_Work_co", bound="LongWork", covariant=True)


class LongWorkQuerySet(models.QuerySet[_Work_co]):
    def unfinished(self) -> Self:
        """What has something left to do."""
        return self.filter(state__in=UNFINISHED)

    def silent(self, length: timedelta) -> Self:
        """What is unfinished and no process has worked on for that long."""
        return self.unfinished().filter(heartbeat_at__lt=in_future(-length))


class LongWork(models.Model):
    """Its runs are fixed when it is requested. What a batch does and the position are stored in one transaction."""

    run_ids = models.JSONField(default=list, blank=True, help_text="Its runs, the newest first.")
    run_count = models.PositiveIntegerField(default=0, help_text="How many these are.")
    query = models.TextField(blank=True, default="", help_text="The filters of the list, as in its address.")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.CharField(max_length=7, choices=WorkState, default=WorkState.WAITING)
    problem = models.TextField(blank=True, default="", help_text="Why it failed, in one sentence.")
    position = models.PositiveIntegerField(default=0, help_text="How many of its runs are behind.")
    revision = models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows.")
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(db_default=Now(), help_text="When it last came on.")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def is_unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def percent(self) -> int:
        """The share of its runs that is behind."""
        if self.state == WorkState.DONE:
            return 100
        return self.position * 100 // max(self.run_count, 1)

    def end(self, state: WorkState, problem: str = "") -> None:
        """Store that nothing is left to do, or that nothing more will be done."""
        self.state, self.problem = state, problem
        self._update(state=state, problem=problem, ended_at=Now())

    def stop(self) -> bool:
        """End it as it is; False if it had ended already. What it has done stays done."""
        values: dict[str, Any] = {"state": WorkState.STOPPED, "ended_at": Now(), "revision": F("revision") + 1}
        unfinished = type(self)._default_manager.filter(pk=self.pk, state__in=UNFINISHED)
        is_stopped = unfinished.update(**values)
        self.refresh_from_db()
        return bool(is_stopped)

    def _update(self, **values: Any) -> None:
        rows = type(self)._default_manager.filter(pk=self.pk)
        rows.update(**values, heartbeat_at=Now(), revision=F("revision") + 1)


MAX_NOTES = 100
"""Runs that were left out whose reasons are kept; the others are counted."""


class BulkKind(models.TextChoices):
    CANCEL = "cancel", "Cancel"
    RUN_AGAIN = "run_again", "Run again"


class BulkActionQuerySet(LongWorkQuerySet["BulkAction"]):
    """Bulk actions."""


class BulkAction(LongWork):
    """One thing that is done to many runs."""

    token = models.UUIDField(unique=True, help_text="Of the form that asked for it: sent twice, it is done once.")
    kind = models.CharField(max_length=9, choices=BulkKind)
    is_chosen = models.BooleanField(default=False, help_text="These were chosen one by one; else filters found them.")
    uses_live_version = models.BooleanField(default=False, help_text="Run again under the live version of the flow.")
    most = models.PositiveIntegerField(null=True, blank=True, help_text="How many runs it may start.")

    done = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0, help_text="Runs where there was nothing to do.")
    failed = models.PositiveIntegerField(default=0, help_text="Runs where it was not possible.")
    notes = models.JSONField(
        default=list, blank=True, help_text="The first runs that were skipped or failed: number, which of the two, why."
    )

    objects = BulkActionQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=BulkKind.values), name="bulk_kind_known"),
            models.CheckConstraint(condition=Q(state__in=WorkState.values), name="bulk_state_known"),
        ]
        indexes = [models.Index(fields=["state", "heartbeat_at"], name="bulk_by_state")]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The label of the runs that the action starts."""
        return f"bulk-{self.pk}"

    @property
    def left_out(self) -> int:
        """Runs to which nothing was done."""
        return self.skipped + self.failed

    def note(self, *, run_id: int, is_failure: bool, sentence: str) -> None:
        """Count a run that was left out and keep the reason; the caller saves."""
        if is_failure:
            self.failed += 1
        else:
            self.skipped += 1
        if len(self.notes) < MAX_NOTES:
            self.notes.append({"run": run_id, "failed": is_failure, "sentence": sentence})

    def advance(self, count: int) -> None:
        """Store what a batch of ``count`` runs did, and that these are behind."""
        values: dict[str, Any] = {name: getattr(self, name) for name in ("done", "skipped", "failed", "notes")}
        if self.state == WorkState.WAITING:
            self.state = values["state"] = WorkState.WORKING
            values["started_at"] = Now()
        self.position += count
        self._update(position=self.position, **values)


class BacktestQuerySet(LongWorkQuerySet["Backtest"]):
    def predicting(self) -> Self:
        """Finished ones of a definition that is a version now, over runs of its flow that no other filter chose."""
        published = FlowVersion.objects.filter(flow=OuterRef("flow"), digest=OuterRef("digest"))
        # Judged by itself, a version says nothing of what it would change.
        itself = published.filter(number=OuterRef("base_version"))
        rows = self.filter(Exists(published), ~Exists(itself), state=WorkState.DONE, leaves_out_each=False)
        # Of the flow's own runs: by whatever name it had.
        return rows.filter(query__startswith="flow=").exclude(query__contains="&")

    def listed(self) -> Self:
        """Backtests as lists show them: not those that leave out each audit, and without what is large."""
        return self.filter(leaves_out_each=False).defer("document", "run_ids")


class Backtest(LongWork):
    """A question, and what was found so far."""

    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="backtests", db_index=False)
    version = models.ForeignKey(
        FlowVersion,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="The version that is judged by; none for a draft.",
    )
    base_version = models.PositiveIntegerField(
        null=True, blank=True, help_text="The number of the live version that it was compared with."
    )
    document = OrderedJSONField(help_text="The definition that is judged by.")
    digest = models.CharField(max_length=64, help_text="Of that definition.")
    leaves_out_each = models.BooleanField(
        default=False, help_text="Each audit of the definition is left out in turn; only its audits have figures."
    )
    limit = models.PositiveIntegerField(help_text="How many runs it may judge.")

    tries = models.PositiveSmallIntegerField(default=0, help_text="Tasks that began at this position.")
    totals = models.JSONField(default=dict, blank=True, help_text="What was found, as ``runs.backtests.totals`` says.")

    objects = BacktestQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=Q(state__in=WorkState.values), name="backtest_state_known")]
        indexes = [
            models.Index(fields=["flow", "leaves_out_each", "-id"], name="backtest_by_flow"),
            models.Index(fields=["state", "heartbeat_at"], name="backtest_by_state"),
            # The prediction of a version.
            models.Index(fields=["digest", "-id"], condition=Q(state="done"), name="backtest_by_digest"),
        ]

    def __str__(self) -> str:
        return f"Backtest {self.pk}"

    def begin(self) -> None:
        """Store that a task works on it from this position on."""
        Backtest.objects.unfinished().filter(pk=self.pk).update(tries=F("tries") + 1)
        Backtest.objects.filter(pk=self.pk, state=WorkState.WAITING).update(
            state=WorkState.WORKING, started_at=Now(), heartbeat_at=Now(), revision=F("revision") + 1
        )

    def advance(self, *, count: int, totals: dict[str, Any]) -> None:
        """Store what is known after a batch of ``count`` runs, and that these are behind."""
        self.position += count
        self.totals = totals
        self._update(position=self.position, totals=totals, tries=0)


class BacktestRun(models.Model):
    """One run that differs, or that can't be judged although its outputs are there. It goes with the run."""

    backtest = models.ForeignKey(Backtest, on_delete=models.CASCADE, related_name="runs", db_index=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in BacktestKind])
    reason = models.CharField(max_length=20, blank=True, default="", help_text="Why history can't say more: a code.")
    sentence = models.TextField(blank=True, default="", help_text="The same in words.")
    step = models.PositiveIntegerField(null=True, blank=True, help_text="The first one that differs.")
    attempt = models.PositiveIntegerField(null=True, blank=True, help_text="Of that step.")
    ended = models.CharField(max_length=9, blank=True, default="", help_text="How the run ended.")
    ends = models.CharField(max_length=9, blank=True, default="", help_text="How it would end; empty if unknown.")
    is_hypothetical = models.BooleanField(default=False, help_text="Its later outputs answer other texts.")
    attempts_saved = models.PositiveIntegerField(default=0)
    tokens_saved = models.PositiveBigIntegerField(default=0)
    cost_saved = models.DecimalField(max_digits=16, decimal_places=8, null=True, blank=True, help_text="USD.")
    unpriced = models.PositiveIntegerField(default=0, help_text="Attempts saved whose price is unknown.")
    further_calls = models.PositiveIntegerField(default=0, help_text="Calls that it would make at least.")
    gone = models.JSONField(default=list, blank=True, help_text="Issues that the attempts would no longer have.")
    new = models.JSONField(default=list, blank=True, help_text="Issues that only the candidate finds in them.")

    class Meta:
        ordering = ["backtest", "kind", "-run_id"]
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["backtest", "kind", "run"], name="backtest_run_once")]

    def __str__(self) -> str:
        return f"run {self.run_id} in backtest {self.backtest_id}"
