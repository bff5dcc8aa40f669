"""Between rows and the engine's history: the engine's values know no storage, this module translates.

Step 0 has no rows: it is the run's input.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.utils.crypto import salted_hmac

from flows.engine import history as engine
from flows.engine.execution import Received, Start
from flows.engine.history import NO_USAGE, AttemptError, History, Issue, Outcome, Severity, TokenUsage
from flows.engine.reply import ToolReply
from runs import models

_ISSUE_FIELDS = ("code", "description", "audit", "path", "context")
"""Those that row and value have alike."""


def load_history(run: models.Run, *, input: dict[str, Any] | None = None) -> History:
    """The history of a run as the engine left it, without attempts that are still running.

    ``input`` is what the run works on, for a worker that goes on with it: others see the input as it is kept.
    """
    rows = models.Attempt.objects.filter(step__run=run).exclude(outcome="").order_by("step__index", "number")
    history = History.begin(run.input if input is None else input, run_id=make_run_id(run))
    for row in rows.select_related("step", "usage", "sent").prefetch_related("issues"):
        history = history.append(build_engine_attempt(row))
    return history


def load_histories(runs: Collection[models.Run]) -> dict[int, History]:
    """The histories of runs that have ended, by their numbers, without the requests that were sent. Two queries."""
    rows = models.Attempt.objects.filter(step__run__in=[run.pk for run in runs]).exclude(outcome="")
    rows = rows.defer("received", "step__name").select_related("step", "usage").prefetch_related("issues")
    attempts: dict[int, list[engine.Attempt]] = {run.pk: [] for run in runs}
    for row in rows.order_by("step__run", "step__index", "number"):
        attempts[row.step.run_id].append(build_engine_attempt(row, has_request=False))
    return {
        run.pk: History.from_attempts((engine.initial_attempt(run.input), *attempts[run.pk]), run_id=make_run_id(run))
        for run in runs
    }


def load_received_attempt(run: models.Run) -> models.Attempt | None:
    """The attempt of a run whose reply is stored and not judged yet, if there is one."""
    rows = models.Attempt.objects.running().filter(step__run=run, received__isnull=False)
    return rows.select_related("step", "usage", "sent").first()


def read_received(row: models.Attempt) -> Received:
    """What the engine judges of an attempt that ``load_received_attempt`` gave."""
    assert row.started_at is not None and row.received is not None
    start = Start(row.step.index, row.number, row.input, row.request, row.started_at, row.plugins)
    reply = ToolReply(
        arguments=row.received,
        raw=None,
        issues=(),
        usage=build_engine_usage(row.usage),
        model=row.model or None,
        response_id=row.response_id or None,
        finish_reason=row.finish_reason or None,
    )
    return Received(start, reply)


def load_original_input(run: models.Run) -> dict[str, Any]:
    """What a run works on that has not ended: its input before anything was redacted."""
    input: dict[str, Any] = run.original_input.input if run.is_input_redacted else run.input
    return input


def make_run_id(run: models.Run) -> str:
    """What names a run to providers and seeds its waits: its number, and something that only this installation has.

    Providers may remember idempotency keys; two installations must never send the same.
    """
    installation = salted_hmac("runs.stored_history.make_run_id", "installation").hexdigest()[:16]
    return f"{installation}-{run.pk}"


def build_engine_attempt(row: models.Attempt, *, has_request: bool = True) -> engine.Attempt:
    """The engine's attempt that a row holds; its request is read only where it is wanted."""
    usage = getattr(row, "usage", None)
    return engine.Attempt(
        step=row.step.index,
        number=row.number,
        outcome=Outcome(row.outcome),
        input=row.input,
        output=row.output,
        raw_output=row.raw_output,
        issues=tuple(build_engine_issue(issue) for issue in row.issues.all()),
        usage=build_engine_usage(usage) if usage else NO_USAGE,
        request=row.request if has_request else None,
        model=row.model or None,
        response_id=row.response_id or None,
        finish_reason=row.finish_reason or None,
        error=AttemptError.model_validate(row.error) if row.error else None,
        failure_reason=row.failure_reason or None,
        plugins=row.plugins,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def build_engine_issue(row: models.Issue) -> Issue:
    """The engine's issue that a row holds, with the fields that its audit added."""
    alike = {name: getattr(row, name) for name in _ISSUE_FIELDS}
    return Issue(severity=Severity(row.severity), suggestions=tuple(row.suggestions), **alike, **row.added_fields)


def build_engine_usage(row: models.TokenUsage) -> TokenUsage:
    """The engine's usage that a row holds."""
    return TokenUsage(**{name: getattr(row, name) for name in TokenUsage.model_fields})


def list_issue_values(attempt: int | None, issues: tuple[Issue, ...]) -> list[dict[str, Any]]:
    """The columns of an attempt's issues; ``attempt`` is its row."""
    return [
        {
            "attempt": attempt,
            "position": position,
            "severity": issue.severity.value,
            "suggestions": list(issue.suggestions),
            "added_fields": issue.added_fields,
            **{name: getattr(issue, name) for name in _ISSUE_FIELDS},
        }
        for position, issue in enumerate(issues)
    ]


def build_issues(attempt: models.Attempt, issues: tuple[Issue, ...]) -> list[models.Issue]:
    """The rows of an attempt's issues, not stored yet."""
    return [models.Issue(**{**values, "attempt": attempt}) for values in list_issue_values(None, issues)]


def build_usage(attempt: models.Attempt, usage: TokenUsage) -> models.TokenUsage:
    """The row of an attempt's usage, not stored yet."""
    return models.TokenUsage(attempt=attempt, **usage.model_dump())
