"""One run as large as they come: 20 steps of 10 attempts each, with outputs of 50 KB."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from benchmarks.editor import make_document
from flows.portability import load_flow
from runs.models import Attempt, AttemptRequest, EndReason, Issue, Run, RunStatus, Step, TokenUsage

STEPS, ATTEMPTS = 20, 10


def store_large_run() -> int:
    """Store the run; gives its number."""
    now = timezone.now()
    version = load_flow(document=make_document())
    run = Run.objects.create(
        flow=version.flow,
        version=version,
        input={"topic": "tea"},
        model_settings={"model": "gpt-5-mini"},
        status=RunStatus.FAILED,
        end_reason=EndReason.STEP_FAILED,
        end_sentence="Step 20 did not pass.",
        blocking_step=STEPS,
        blocking_attempt=ATTEMPTS,
        started_at=now - timedelta(minutes=10),
        ended_at=now,
        step_count=STEPS,
        attempt_count=STEPS * ATTEMPTS,
        issues_high=STEPS * ATTEMPTS,
    )
    steps = Step.objects.bulk_create(
        Step(run=run, index=index, name=step.name) for index, step in enumerate(version.flow_spec.steps, start=1)
    )
    output = {"rows": [{"id": number, "text": "a line of an output " * 3} for number in range(550)]}
    attempts = Attempt.objects.bulk_create(
        Attempt(
            step=step,
            number=number,
            outcome="failed",
            input={"topic": "tea"},
            output=output,
            model="gpt-5-mini",
            started_at=now - timedelta(seconds=3 * (STEPS * ATTEMPTS - step.index * ATTEMPTS - number) + 2),
            ended_at=now - timedelta(seconds=3 * (STEPS * ATTEMPTS - step.index * ATTEMPTS - number)),
        )
        for step in steps
        for number in range(1, ATTEMPTS + 1)
    )
    AttemptRequest.objects.bulk_create(
        AttemptRequest(attempt=attempt, body={"model": "gpt-5-mini", "messages": []}) for attempt in attempts
    )
    Issue.objects.bulk_create(
        Issue(attempt=attempt, position=0, code="too_plain", severity="high", description="Plain.", path="/rows/9/text")
        for attempt in attempts
    )
    TokenUsage.objects.bulk_create(
        TokenUsage(attempt=attempt, prompt=900, completion=300, total=1_200) for attempt in attempts
    )
    return run.pk
