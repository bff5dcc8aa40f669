"""What log and metrics get of the runs of a drain, once it is stored: names, numbers and codes.

Inputs, outputs and prompts stay in the history.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flows.engine.execution import Progress
from flows.engine.history import Attempt
from flows.engine.spec import FlowSpec, StepSpec
from runs.models import Run
from runs.observability.log_events import RunPlace, log_event, note_run_end, run_place

if TYPE_CHECKING:
    from runs.observability.meters import WorkerMeter

logger = logging.getLogger(__name__)


class RunEvents:
    """Each run's own task calls this; without ``meter``, and with its log level off, it does nothing."""

    def __init__(self, *, meter: WorkerMeter | None = None) -> None:
        self._meter = meter

    def begin(self, run: Run) -> None:
        """A worker has taken a run; all that this task logs from now on says so."""
        run_place.set(RunPlace(run.pk))
        if logger.isEnabledFor(logging.INFO):
            event, verb = ("run.resumed", "goes on") if run.attempt_count else ("run.started", "starts")
            log_event(
                logger, logging.INFO, event, f"The run {verb}.", flow=run.flow_id, version=run.version_id,
                crashes=run.crashes or None,
            )  # fmt: skip

    def note(self, run: Run, spec: FlowSpec, progress: Progress) -> None:
        """What happened in a run of ``spec`` is stored."""
        if (ended := progress.ended) is not None:
            self._note_end(run, spec.step(ended.step), ended)
        if (begun := progress.begun) is not None:
            run_place.set(RunPlace(run.pk, begun.step, begun.number))
            level = logging.INFO if begun.number > 1 else logging.DEBUG
            if logger.isEnabledFor(level):
                log_event(logger, level, "attempt.started", f"Attempt {begun.number} of step {begun.step} started.")
        if (finish := progress.finish) is not None:
            note_run_end(finish.status.value, finish.reason.value)

    def note_hand_back(self, *, seconds: float, waits_for: str) -> None:
        """A run waits in the queue again: until a moment, for something, or for another worker."""
        log_event(
            logger, logging.INFO, "run.handed_back", "The run returned to the queue.",
            wait_seconds=round(seconds, 3), waits_for=waits_for or None,
        )  # fmt: skip

    def note_batch(self, writes: int, seconds: float) -> None:
        """One transaction has stored the writes of ``writes`` runs, in ``seconds``."""
        if self._meter is not None:
            self._meter.note_batch(writes=writes, seconds=seconds)
        if logger.isEnabledFor(logging.DEBUG):
            log_event(
                logger, logging.DEBUG, "recorder.committed", f"{writes} writes are stored.",
                writes=writes, seconds=round(seconds, 5),
            )  # fmt: skip

    def _note_end(self, run: Run, step: StepSpec, ended: Attempt) -> None:
        error, seconds = ended.error, 0.0
        if ended.started_at is not None and ended.ended_at is not None:
            seconds = max(0.0, (ended.ended_at - ended.started_at).total_seconds())
        # The simulated model says nothing of providers.
        if self._meter is not None and not run.is_simulated:
            model = step.model if ended.request is not None else None
            code = error.code.value if error is not None else None
            self._meter.note_attempt(model=model, outcome=ended.outcome.value, seconds=seconds, error=code)
        if error is not None:
            log_event(
                logger, logging.WARNING, "provider.error", "A model call got no answer.",
                code=error.code.value, status=error.status, retry_after=error.retry_after,
            )  # fmt: skip
        if logger.isEnabledFor(logging.INFO):
            usage = ended.usage
            log_event(
                logger, logging.INFO, "attempt.ended",
                f"Attempt {ended.number} of step {ended.step} ended: {ended.outcome.value}.",
                outcome=ended.outcome.value, model=ended.model, seconds=round(seconds, 3),
                issues=len(ended.issues), prompt_tokens=usage.prompt, completion_tokens=usage.completion,
                cached_tokens=usage.cached, reasoning_tokens=usage.reasoning,
                cost=None if usage.cost is None else f"{usage.cost:f}",
            )  # fmt: skip


def note_wait(seconds: float) -> None:
    """A run waits before its next attempt, and keeps its slot meanwhile."""
    log_event(
        logger, logging.INFO, "run.waits", "The run is waiting before its next attempt.", seconds=round(seconds, 3)
    )


def note_drain_start(*, owner: str, slots: int) -> None:
    """A drain begins to take runs."""
    log_event(logger, logging.INFO, "drain.started", "The worker started.", owner=owner, slots=slots)


def note_drain_stop(*, owner: str, runs: int, seconds: float, is_well: bool) -> None:
    """A drain is over."""
    log_event(
        logger, logging.INFO if is_well else logging.ERROR, "drain.stopped", "The worker released its runs.",
        owner=owner, runs=runs, seconds=round(seconds, 1),
    )  # fmt: skip
