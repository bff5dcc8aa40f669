"""Runs as JSON documents, many at a time: the number of queries doesn't grow with runs or attempts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from flows.engine.history import initial_attempt
from flows.engine.usage import sum_usage
from flows.models import FlowVersion
from runs import models
from runs.documents.run_document import build_attempt_document
from runs.models import Run
from runs.stored_history import read_attempt

_TOTALS = ("prompt", "completion", "total", "cached", "reasoning")


class RunDocuments:
    """Reads runs as documents: with ``has_attempts`` as the page of a run gives them, else what is known of the run."""

    def __init__(self, *, has_attempts: bool) -> None:
        self._has_attempts = has_attempts
        self._step_names: dict[int, tuple[str, ...]] = {}

    def read(self, run_ids: Collection[int]) -> Iterator[dict[str, Any]]:
        """The documents of these runs, the newest first. A run that is gone is passed over."""
        runs = list(
            Run.objects.filter(pk__in=run_ids)
            .select_related("flow", "version", "started_by")
            .defer("version__spec", "flow__input_schema", "flow__description")
            .order_by("-pk")
        )
        if not self._has_attempts:
            for run in runs:
                yield {**_describe(run), "usage": _sum_totals(run)}
            return
        self._load_step_names({run.version_id for run in runs})
        attempts = _load_attempts(run_ids)
        for run in runs:
            # Let go of it as soon as it is written: outputs may be large.
            yield {**_describe(run), **self._describe_steps(run, attempts.pop(run.pk, []))}

    def _load_step_names(self, versions: set[int]) -> None:
        missing = versions - self._step_names.keys()
        if missing:
            for pk, version in FlowVersion.objects.in_bulk(missing).items():
                self._step_names[pk] = tuple(step.name for step in version.flow_spec.steps)

    def _describe_steps(self, run: Run, rows: list[models.Attempt]) -> dict[str, Any]:
        usages = []
        attempts: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            own = attempts.setdefault(row.step.index, [])
            if not row.outcome:
                own.append({"step": row.step.index, "number": row.number, "outcome": None})
                continue
            attempt = read_attempt(row)
            usages.append(attempt.usage)
            own.append(build_attempt_document(attempt))
        steps = [{"index": 0, "name": "Input", "attempts": [build_attempt_document(initial_attempt(run.input))]}]
        steps += [
            {"index": index, "name": name, "attempts": attempts.get(index, [])}
            for index, name in enumerate(self._step_names[run.version_id], start=1)
        ]
        return {"steps": steps, "usage": sum_usage(usages).model_dump(mode="json")}


def _load_attempts(run_ids: Collection[int]) -> dict[int, list[models.Attempt]]:
    rows = (
        models.Attempt.objects.filter(step__run__in=run_ids)
        .select_related("step", "usage")
        .prefetch_related("issues")
        .order_by("step__run", "step__index", "number")
    )
    attempts: dict[int, list[models.Attempt]] = {}
    for row in rows:
        attempts.setdefault(row.step.run_id, []).append(row)
    return attempts


def _describe(run: Run) -> dict[str, Any]:
    blocking = {"step": run.blocking_step, "attempt": run.blocking_attempt} if run.blocking_step is not None else None
    return {
        "id": run.pk,
        "flow": run.flow.name,
        "version": run.version.number,
        "status": run.status,
        "end_reason": run.end_reason or None,
        "end_sentence": run.end_sentence or None,
        "blocking": blocking,
        "is_simulated": run.is_simulated,
        "model_settings": run.model_settings,
        "started_by": run.started_by.get_username() if run.started_by else None,
        "labels": run.labels,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "input": run.input,
        "step_count": run.step_count,
        "steps_passed": run.steps_passed,
        "attempt_count": run.attempt_count,
        "retry_count": run.retry_count,
        "issue_counts": {severity.value: count for severity, count in run.issue_counts.items()},
    }


def _sum_totals(run: Run) -> dict[str, Any]:
    cost = None if run.cost is None else str(run.cost)
    tokens = {name: getattr(run, f"{name}_tokens") for name in _TOTALS}
    return {**tokens, "cost": cost, "unpriced": run.unpriced_count}
