"""What a claimed run has to store: each finished attempt with the start of the next, as one write.

The recorder keeps the run's totals, which follow from its history; a write carries them as they are after it, so that
storing it twice would change nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db import transaction

from flows.engine import history as engine
from flows.engine.execution import Progress, Start
from flows.engine.history import History, TokenUsage
from flows.engine.spec import FlowSpec
from runs.facets import Facet, list_facets
from runs.group_commit import TOTALS, LeaseLostError, RunWrite, Written, commit_writes
from runs.models import Attempt, EndReason, Run, RunStatus, Step
from runs.models.run import end_values


class RunRecorder:
    """Turns the progress of one claimed run into writes. A run has one write at a time under way.

    ``received`` is the attempt of an earlier worker that still has to be judged.
    """

    def __init__(self, run: Run, spec: FlowSpec, history: History, received: Attempt | None = None) -> None:
        self._run = run
        self._epoch = run.epoch
        self._number = run.record_number
        self._step_names = ["", *(step.name for step in spec.steps)]
        self._totals: dict[str, Any] = {name: getattr(run, name) for name in TOTALS}
        self._counted = Counter(attempt.step for attempt in history if attempt.counts)
        self._facets: set[Facet] = set()
        """Those that this worker has stored."""
        self._step_rows: dict[int, int] = {}
        if run.attempt_count:
            self._step_rows = dict(Step.objects.filter(run=run).values_list("index", "pk"))
        self._running: tuple[int, int, int] | None = None
        """Step, number and row of the attempt that is under way."""
        if received is not None:
            self._running = (received.step.index, received.number, received.pk)
        self._is_usage_stored = received is not None
        """Whether its reply, and with it its usage, is stored already."""

    def record(self, progress: Progress) -> None:
        """Store all of ``progress`` or nothing, now. Raises ``LeaseLostError`` if the run is no longer held."""
        write = self.prepare(progress)
        (result,) = commit_writes([write])
        if isinstance(result, LeaseLostError):
            raise result
        self.confirm(write, result)

    def prepare(self, progress: Progress, *, has_flow_budget: bool = False) -> RunWrite:
        """The write that stores ``progress``; to be confirmed before the next one is prepared."""
        begun, ended, received = progress.begun, progress.ended, progress.received
        running_row, usage, totals = None, None, dict(self._totals)
        if received is not None:
            running_row = self._find_running_row(received.start)
            usage = received.reply.usage
        if ended is not None:
            running_row = self._find_running_row(ended)
            usage = None if self._is_usage_stored else ended.usage
            self._add_end(totals, ended)
        if usage is not None:
            _add_usage(totals, usage)
        if begun is not None:
            totals["attempt_count"] += 1
        return RunWrite(
            run_id=self._run.pk,
            flow_id=self._run.flow_id,
            epoch=self._epoch,
            number=self._number + 1,
            totals=totals,
            ended=ended,
            received=received,
            running_row=running_row,
            usage=usage,
            begun=begun,
            begun_step=self._step_rows.get(begun.step) if begun is not None else None,
            begun_step_name=self._step_names[begun.step] if begun is not None else "",
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
        self._is_usage_stored = write.received is not None
        if not self._is_usage_stored:
            self._running = None
        if write.begun is not None and written.step_row is not None and written.attempt_row is not None:
            self._step_rows[write.begun.step] = written.step_row
            self._running = (write.begun.step, write.begun.number, written.attempt_row)

    def _find_running_row(self, attempt: engine.Attempt | Start) -> int:
        if self._running is None or self._running[:2] != (attempt.step, attempt.number):
            raise ValueError(f"Attempt {attempt.number} of step {attempt.step} goes on without having begun here.")
        return self._running[2]

    def _add_end(self, totals: dict[str, Any], ended: engine.Attempt) -> None:
        totals["steps_passed"] += ended.passed
        # Only losses of the worker without a stored attempt in between count.
        totals["crashes"] = 0
        for issue in ended.issues:
            totals[f"issues_{issue.severity.value}"] += 1
        if ended.counts and self._counted[ended.step]:
            totals["retry_count"] += 1


def _add_usage(totals: dict[str, Any], usage: TokenUsage) -> None:
    totals["prompt_tokens"] += usage.prompt
    totals["completion_tokens"] += usage.completion
    totals["total_tokens"] += usage.total
    totals["cached_tokens"] += usage.cached
    totals["reasoning_tokens"] += usage.reasoning
    totals["unpriced_count"] += usage.unpriced
    if usage.cost is not None:
        totals["cost"] = (totals["cost"] or 0) + usage.cost


def end_held_run(run: Run, status: RunStatus, reason: EndReason, sentence: str, *, outcome: engine.Outcome) -> None:
    """End a claimed run for a reason that the planner doesn't know; an attempt under way ends with ``outcome``.

    Raises ``LeaseLostError`` if the run is no longer held.
    """
    with transaction.atomic():
        if not Run.objects.held(run_id=run.pk, epoch=run.epoch).update(**end_values(status, reason, sentence)):
            raise LeaseLostError(f"Run {run.pk} is no longer held under epoch {run.epoch}.")
        end_running_attempts(run.pk, outcome)


def end_running_attempts(run_id: int, outcome: engine.Outcome) -> None:
    """End the attempt of a run that is under way, if one is, without a verdict.

    In a run that is queued again one with a reply goes on: the next worker judges it. The caller has fenced the run in
    the same transaction.
    """
    running = Attempt.objects.running().filter(step__run_id=run_id)
    queued = Run.objects.filter(pk=run_id, status=RunStatus.QUEUED)
    # Judging a reply calls no model: the run must not wait for a permit.
    if running.filter(received__isnull=False).exists() and queued.update(next_model=""):
        return
    for attempt in running.select_related("step"):
        attempt.end_without_output(outcome)
