"""Runs and attempts as JSON documents. Fields that an audit added to an issue are never left out."""

from __future__ import annotations

from typing import Any

from flows.engine.history import Attempt, initial_attempt
from flows.engine.issues import Severity, filter_issues
from flows.engine.usage import sum_usage
from runs import models
from runs.models import Run
from runs.stored_history import read_attempt


def build_run_document(
    run: Run, *, minimum: Severity = Severity.LOW, only_final_attempts: bool = False
) -> dict[str, Any]:
    """A run as JSON types. Step 0 is its input; an attempt that still runs has the outcome None and nothing else.

    ``minimum`` leaves out issues of lower severity; ``only_final_attempts`` all but the last attempt of each step.
    """
    attempts: dict[int, list[dict[str, Any]]] = {}
    usages = []
    rows = (
        models.Attempt.objects.filter(step__run=run)
        .select_related("step", "usage")
        .prefetch_related("issues")
        .order_by("step__index", "number")
    )
    for row in rows:
        own = attempts.setdefault(row.step.index, [])
        if only_final_attempts:
            own.clear()
        if not row.outcome:
            own.append({"step": row.step.index, "number": row.number, "outcome": None})
            continue
        attempt = read_attempt(row)
        usages.append(attempt.usage)
        own.append(build_attempt_document(attempt, minimum=minimum))
    steps = [{"index": 0, "name": "Input", "attempts": [build_attempt_document(initial_attempt(run.input))]}]
    for index, step in enumerate(run.version.flow_spec.steps, start=1):
        steps.append({"index": index, "name": step.name, "attempts": attempts.get(index, [])})
    blocking = {"step": run.blocking_step, "attempt": run.blocking_attempt} if run.blocking_step is not None else None
    return {
        "id": run.pk,
        "flow": run.flow.name,
        "version": run.version.number,
        "status": run.status,
        "end_reason": run.end_reason or None,
        "end_sentence": run.end_sentence or None,
        "blocking": blocking,
        "labels": run.labels,
        "is_simulated": run.is_simulated,
        "model_settings": run.model_settings,
        "started_by": run.started_by.get_username() if run.started_by else None,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "input": run.input,
        "steps": steps,
        "step_count": run.step_count,
        "steps_passed": run.steps_passed,
        "attempt_count": run.attempt_count,
        "retry_count": run.retry_count,
        "issue_counts": {severity.value: count for severity, count in run.issue_counts.items()},
        "usage": sum_usage(usages).model_dump(mode="json"),
    }


def build_attempt_document(attempt: Attempt, *, minimum: Severity = Severity.LOW) -> dict[str, Any]:
    """An attempt as JSON types, with its issues of at least ``minimum`` severity."""
    document = attempt.model_dump(mode="json")
    document["issues"] = [issue.model_dump(mode="json") for issue in filter_issues(attempt.issues, minimum)]
    return document
