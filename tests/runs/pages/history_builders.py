"""Stored history for tests of pages: attempts as the recorder leaves them, with totals on the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flows.engine.history import Attempt
from flows.engine.prompt import build_request
from flows.engine.spec import FlowSpec, StepSpec
from flows.models import FlowVersion
from runs import models
from runs.models import Run, RunStatus, Step
from runs.stored_history import build_issues, build_usage
from tests.engine.builders import NOON, make_attempt, make_history, make_issue, make_step, make_usage
from tests.runs.builders import make_run, make_version

BEGIN = NOON - timedelta(minutes=5)


def make_page_flow(
    *steps: StepSpec, name: str = "colour-theme", title: str = "Colour theme", **fields: Any
) -> FlowSpec:
    """A flow of two model steps and a local one, unless other steps are given."""
    steps = steps or (make_step(1), make_step(2, max_retries=1), make_step(3, compute="{'n': 1}"))
    return FlowSpec(name=name, title=title, steps=steps, **fields)


def make_stored_run(
    *attempts: Attempt,
    spec: FlowSpec | None = None,
    version: FlowVersion | None = None,
    status: str = RunStatus.SUCCEEDED,
    **fields: Any,
) -> Run:
    """A run of ``status`` with these attempts, of ``version`` or a new one with ``spec``.

    Attempts without times last a second each, one after the other.
    """
    spec = spec or make_page_flow()
    run = make_run(version or make_version(spec))
    totals: dict[str, Any] = {"attempt_count": len(attempts)}
    for position, attempt in enumerate(attempts):
        begin = BEGIN + timedelta(seconds=2 * position)
        store_attempt(run, attempt.model_copy(update={"started_at": begin, "ended_at": begin + timedelta(seconds=1)}))
        for issue in attempt.issues:
            name = f"issues_{issue.severity.value}"
            totals[name] = totals.get(name, 0) + 1
    values: dict[str, Any] = {"status": status, "revision": 3}
    if status != RunStatus.QUEUED:
        values["started_at"] = BEGIN
    if status == RunStatus.RUNNING:
        values["lease_until"] = NOON
    elif status != RunStatus.QUEUED:
        values["ended_at"] = NOON
    Run.objects.filter(pk=run.pk).update(**{**values, **totals, **fields})
    run.refresh_from_db()
    return run


def make_asked_run(spec: FlowSpec, failures: int = 1, **failed: Any) -> Run:
    """A run whose first attempts failed and whose last passed, each with the request that it was asked with.

    ``failed`` are fields of those that failed.
    """
    history = make_history()
    for number in range(1, failures + 2):
        request = build_request(spec, history, 1, {"topic": "tea"})
        is_last = number == failures + 1
        outcome = {"issues": ()} if is_last else {"outcome": "failed", **failed}
        history = history.append(make_attempt(1, number, request=request, **outcome))
    return make_stored_run(*list(history)[1:], spec=spec)


def store_attempt(run: Run, attempt: Attempt) -> models.Attempt:
    """The rows of one attempt that ended."""
    step, _ = Step.objects.get_or_create(run=run, index=attempt.step, defaults={"name": f"Step {attempt.step}"})
    row = models.Attempt.objects.create(
        step=step,
        number=attempt.number,
        outcome=attempt.outcome.value,
        input=attempt.input,
        output=attempt.output,
        raw_output=attempt.raw_output,
        model=attempt.model or "",
        error=attempt.error.model_dump(mode="json") if attempt.error else None,
        failure_reason=attempt.failure_reason or "",
        plugins=attempt.plugins,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
    )
    if attempt.request is not None:
        models.AttemptRequest.objects.create(attempt=row, body=attempt.request)
    models.Issue.objects.bulk_create(build_issues(row, attempt.issues))
    build_usage(row, attempt.usage).save(force_insert=True)
    return row


def begin_attempt(run: Run, step: int, number: int) -> models.Attempt:
    """The row of an attempt that runs."""
    parent, _ = Step.objects.get_or_create(run=run, index=step, defaults={"name": f"Step {step}"})
    return models.Attempt.objects.create(step=parent, number=number, started_at=BEGIN)


def make_retried_run(**fields: Any) -> Run:
    """A run whose first step failed its audit and then passed; the other two steps passed at once."""
    issue = make_issue(
        "critical", "“red” is no hex colour.", code="hex_format", audit="Hex colours", path="/colours/1", vendor_id=4711
    )
    return make_stored_run(
        make_attempt(1, 1, "failed", output={"colours": ["#ff0000", "red"]}, issues=(issue,), usage=make_usage(300)),
        make_attempt(1, 2, output={"colours": ["#ff0000", "#00ff00"]}, usage=make_usage(600)),
        make_attempt(2, 1, usage=make_usage(90)),
        make_attempt(3, 1, output={"n": 1}),
        **{"steps_passed": 3, "end_sentence": "All steps passed.", **fields},
    )
