"""Keeping what a run does: one short transaction for each finished attempt and the start of the next.

Every transaction begins with an UPDATE of the run that is fenced by the epoch it was claimed with. If that changes no
row, the run is somebody else's by now and nothing is written.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce

from flows.engine import history as engine
from flows.engine.execution import Progress, Start
from flows.engine.history import History
from flows.engine.issues import count_by_severity
from flows.engine.planner import Finish
from flows.engine.spec import FlowSpec
from runs.models import Attempt, EndReason, Issue, Run, RunStatus, Step, TokenUsage
from runs.models.run import end_values
from runs.stored_history import build_issues, build_usage

SHORT_TEXT = 200
"""Characters that columns for names and ids of the provider hold; longer ones are cut."""


class LeaseLostError(Exception):
    """The run is not held under this epoch any more: another worker has it, or it was ended."""


class RunRecorder:
    """Writes the progress of one claimed run. Synchronous; one thread at a time may use it."""

    def __init__(self, run: Run, spec: FlowSpec, history: History) -> None:
        self._run_id = run.pk
        self._epoch = run.epoch
        self._step_names = ["", *(step.name for step in spec.steps)]
        self._counted = {
            index: sum(attempt.counts for attempt in attempts) for index, attempts in enumerate(history.steps)
        }
        self._running: Attempt | None = None

    def record(self, progress: Progress) -> None:
        """Store all of ``progress`` or nothing. Raises ``LeaseLostError`` if the run is no longer held."""
        with transaction.atomic():
            self._update_run(progress)
            if progress.ended is not None:
                self._end_attempt(progress.ended)
            begun = self._begin_attempt(progress.begun) if progress.begun is not None else None
        self._running = begun
        if progress.ended is not None:
            step = progress.ended.step
            self._counted[step] = self._counted.get(step, 0) + progress.ended.counts

    def _update_run(self, progress: Progress) -> None:
        values: dict[str, Any] = {"revision": F("revision") + 1}
        if progress.ended is not None:
            values.update(self._count(progress.ended))
        if progress.begun is not None:
            values["attempt_count"] = F("attempt_count") + 1
        if progress.finish is not None:
            values.update(_finish_values(progress.finish))
        _update_held(self._run_id, self._epoch, values)

    def _count(self, ended: engine.Attempt) -> dict[str, Any]:
        usage = ended.usage
        values: dict[str, Any] = {
            "prompt_tokens": F("prompt_tokens") + usage.prompt,
            "completion_tokens": F("completion_tokens") + usage.completion,
            "total_tokens": F("total_tokens") + usage.total,
            "cached_tokens": F("cached_tokens") + usage.cached,
            "reasoning_tokens": F("reasoning_tokens") + usage.reasoning,
            "unpriced_count": F("unpriced_count") + usage.unpriced,
        }
        if usage.cost is not None:
            values["cost"] = Coalesce(F("cost"), 0, output_field=Run._meta.get_field("cost")) + usage.cost
        for severity, count in count_by_severity(ended.issues).items():
            if count:
                values[f"issues_{severity.value}"] = F(f"issues_{severity.value}") + count
        if ended.passed:
            values["steps_passed"] = F("steps_passed") + 1
        if ended.counts and self._counted.get(ended.step):
            values["retry_count"] = F("retry_count") + 1
        return values

    def _begin_attempt(self, start: Start) -> Attempt:
        step, _ = Step.objects.get_or_create(
            run_id=self._run_id, index=start.step, defaults={"name": self._step_names[start.step]}
        )
        return Attempt.objects.create(
            step=step,
            number=start.number,
            input=start.input,
            request=start.request,
            plugins=start.plugins,
            started_at=start.started_at,
        )

    def _end_attempt(self, ended: engine.Attempt) -> None:
        row = self._running
        if row is None or row.number != ended.number:
            raise ValueError(f"Attempt {ended.number} of step {ended.step} ends without having begun here.")
        row.outcome = ended.outcome.value
        row.output = ended.output
        row.raw_output = ended.raw_output
        row.model = (ended.model or "")[:SHORT_TEXT]
        row.response_id = (ended.response_id or "")[:SHORT_TEXT]
        row.finish_reason = (ended.finish_reason or "")[:50]
        row.error = ended.error.model_dump(mode="json") if ended.error else None
        row.failure_reason = ended.failure_reason or ""
        row.plugins = ended.plugins
        row.ended_at = ended.ended_at
        row.save(
            update_fields=[
                "outcome",
                "output",
                "raw_output",
                "model",
                "response_id",
                "finish_reason",
                "error",
                "failure_reason",
                "plugins",
                "ended_at",
            ]
        )
        Issue.objects.bulk_create(build_issues(row, ended.issues))
        TokenUsage.objects.bulk_create([build_usage(row, ended.usage)])


def end_held_run(run: Run, status: RunStatus, reason: EndReason, sentence: str, *, outcome: engine.Outcome) -> None:
    """End a claimed run for a reason that the planner doesn't know; an attempt under way ends with ``outcome``.

    Raises ``LeaseLostError`` if the run is no longer held.
    """
    with transaction.atomic():
        _update_held(run.pk, run.epoch, end_values(status, reason, sentence))
        end_running_attempts(run.pk, outcome)


def _update_held(run_id: int, epoch: int, values: dict[str, Any]) -> None:
    if not Run.objects.held(run_id=run_id, epoch=epoch).update(**values):
        raise LeaseLostError(f"Run {run_id} is no longer held under epoch {epoch}.")


def end_running_attempts(run_id: int, outcome: engine.Outcome) -> None:
    """End the attempt of a run that is under way, if one is, without an output; its usage is not known.

    The caller has fenced the run in the same transaction.
    """
    for attempt in Attempt.objects.running().filter(step__run_id=run_id).select_related("step"):
        attempt.end_without_output(outcome)


def _finish_values(finish: Finish) -> dict[str, Any]:
    return end_values(
        RunStatus(finish.status.value), EndReason(finish.reason.value), finish.sentence, blocking=finish.blocking
    )
