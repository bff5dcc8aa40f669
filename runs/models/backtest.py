"""What another definition of a flow would have made of runs that ended: one question, and the runs that differ."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import Concat, Now

from flows.engine.backtest_result import BacktestKind
from flows.json_field import OrderedJSONField
from flows.models import Flow, FlowVersion
from runs.models.long_work import LongWork, LongWorkQuerySet, WorkState
from runs.models.run import Run


class BacktestQuerySet(LongWorkQuerySet["Backtest"]):
    def predicting(self) -> Self:
        """Finished ones of what a version has by now, over runs of its flow that no other filter chose."""
        published = FlowVersion.objects.filter(flow=OuterRef("flow"), digest=OuterRef("digest"))
        # Judged by itself, a version says nothing of what it would change.
        itself = published.filter(number=OuterRef("base_version"))
        rows = self.filter(Exists(published), ~Exists(itself), state=WorkState.DONE, leaves_out_each=False)
        return rows.filter(query=Concat(Value("flow="), "flow__name", output_field=models.TextField()))

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
