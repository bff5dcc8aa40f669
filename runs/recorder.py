"""What a claimed run has to store: each finished attempt with the start of the next, as one write.

The recorder keeps the run's totals, which follow from its history; a write carries them as they are after it, so that
storing it twice would change nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db import transaction
from django.db.models import F

from flows.engine import history as engine
from flows.engine.execution import Progress
from flows.engine.history import History
from flows.engine.spec import FlowSpec
from runs.facets import Facet, list_facets
from runs.group_commit import TOTALS, LeaseLostError, RunWrite, Written, commit_writes
from runs.models import Attempt, EndReason, Run, RunStatus, Step
from runs.models.run import end_values


class RunRecorder:
    """Turns the progress of one claimed run into writes. A run has one write at a time under way."""

    def __init__(self, run: Run, spec: FlowSpec, history: History) -> None:
        self._run_id = run.pk
        self._flow_id = run.flow_id
        self._epoch = run.epoch
        self._number = run.record_number
        self.step_names = ["", *(step.name for step in spec.steps)]
        """The names of the run's steps, by number."""
        self._totals: dict[str, Any] = {name: getattr(run, name) for name in TOTALS}
        self._counted = Counter(attempt.step for attempt in history if attempt.counts)
        self._step_rows: dict[int, int] = {}
        self._facets: set[Facet] = set()
        """Those that this worker has stored."""
        if run.attempt_count:
            self._step_rows = dict(Step.objects.filter(run=run).values_list("index", "pk"))
        self._running: tuple[int, int, int] | None = None
        """Step, number and row of the attempt that is under way."""

    def record(self, progress: Progress) -> None:
        """Store all of ``progress`` or nothing, now. Raises ``LeaseLostError`` if the run is no longer held."""
        write = self.prepare(progress)
        (result,) = commit_writes([write])
        if isinstance(result, LeaseLostError):
            raise result
        self.confirm(write, result)

    def prepare(self, progress: Progress, *, has_flow_budget: bool = False) -> RunWrite:
        """The write that stores ``progress``; to be confirmed before the next one is prepared."""
        begun, ended = progress.begun, progress.ended
        running_row = None
        if ended is not None:
            if self._running is None or self._running[:2] != (ended.step, ended.number):
                raise ValueError(f"Attempt {ended.number} of step {ended.step} ends without having begun here.")
            running_row = self._running[2]
        totals = self._totals | (self._count(ended) if ended is not None else {})
        if begun is not None:
            totals["attempt_count"] += 1
        return RunWrite(
            run_id=self._run_id,
            flow_id=self._flow_id,
            epoch=self._epoch,
            number=self._number + 1,
            totals=totals,
            ended=ended,
            ended_row=running_row,
            begun=begun,
            begun_step=self._step_rows.get(begun.step) if begun is not None else None,
            begun_step_name=self.step_names[begun.step] if begun is not None else "",
            finish=progress.finish,
            facets=list_facets(ended) - self._facets if ended is not None else (),
            has_flow_budget=has_flow_budget,
        )

    def confirm(self, write: RunWrite, written: Written) -> None:
        """Go on behind ``write``, which is stored."""
        self._number = write.number
        self._totals = dict(write.totals)
        self._facets.update(write.facets)
        if write.ended is not None:
            self._counted[write.ended.step] += write.ended.counts
        self._running = None
        if write.begun is not None and written.step_row is not None and written.attempt_row is not None:
            self._step_rows[write.begun.step] = written.step_row
            self._running = (write.begun.step, write.begun.number, written.attempt_row)

    def _count(self, ended: engine.Attempt) -> dict[str, Any]:
        """The totals that an attempt changes, after it."""
        before, usage = self._totals, ended.usage
        totals = {
            "prompt_tokens": before["prompt_tokens"] + usage.prompt,
            "completion_tokens": before["completion_tokens"] + usage.completion,
            "total_tokens": before["total_tokens"] + usage.total,
            "cached_tokens": before["cached_tokens"] + usage.cached,
            "reasoning_tokens": before["reasoning_tokens"] + usage.reasoning,
            "unpriced_count": before["unpriced_count"] + usage.unpriced,
            "steps_passed": before["steps_passed"] + ended.passed,
            # Only losses of the worker without a stored attempt in between count.
            "crashes": 0,
        }
        if usage.cost is not None:
            totals["cost"] = (before["cost"] or 0) + usage.cost
        for issue in ended.issues:
            column = f"issues_{issue.severity.value}"
            totals[column] = totals.get(column, before[column]) + 1
        if ended.counts and self._counted[ended.step]:
            totals["retry_count"] = before["retry_count"] + 1
        return totals


def end_held_run(run: Run, status: RunStatus, reason: EndReason, sentence: str, *, outcome: engine.Outcome) -> None:
    """End a claimed run for a reason that the planner doesn't know; an attempt under way ends with ``outcome``.

    Raises ``LeaseLostError`` if the run is no longer held.
    """
    with transaction.atomic():
        if not Run.objects.held(run_id=run.pk, epoch=run.epoch).update(**end_values(status, reason, sentence)):
            raise LeaseLostError(f"Run {run.pk} is no longer held under epoch {run.epoch}.")
        end_running_attempts(run.pk, outcome)


def end_running_attempts(run_id: int, outcome: engine.Outcome) -> None:
    """End the attempt of a run that is under way, if one is, without an output; its usage is not known.

    The caller has fenced the run in the same transaction.
    """
    for attempt in Attempt.objects.running().filter(step__run_id=run_id).select_related("step"):
        attempt.end_without_output(outcome)
        earlier = Attempt.objects.filter(step=attempt.step_id, number__lt=attempt.number)
        if outcome is not engine.Outcome.INTERRUPTED and earlier.exclude(outcome=engine.Outcome.INTERRUPTED).exists():
            Run.objects.filter(pk=run_id).update(retry_count=F("retry_count") + 1)
