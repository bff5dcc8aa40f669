"""Courses of runs: what happens in each attempt, invented once and then stored for many runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

from flows.engine.errors import ModelErrorCode
from flows.engine.history import COUNTED, Attempt, AttemptError, History, Issue, Outcome, Severity, TokenUsage
from flows.engine.model_calls import resolve_spec
from flows.engine.planner import describe_verdict
from flows.engine.prompt import build_request
from flows.engine.simulated_model import invent_value
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings, StepSpec
from runs.models import EndReason, RunStatus

OUTCOMES = {
    Outcome.PASSED: 0.66,
    Outcome.FAILED: 0.26,
    Outcome.INVALID: 0.04,
    Outcome.ERRORED: 0.02,
    Outcome.INTERRUPTED: 0.02,
}
REMARKS = 0.2
"""How often an attempt passes with issues."""
CANCELLED, REFUSED = 0.03, 0.02
"""How often a run is cancelled in a step, or refused by the provider."""
LEASE_SECONDS = 90.0
"""How much longer an attempt is whose worker died."""
MODELS = {"gpt-5-mini": Decimal("0.0000006"), "gpt-5": Decimal("0.000003"), "in-house-7b": None}
"""Invented prices of a token; one model has none."""
START = datetime(2026, 1, 1, tzinfo=UTC)
"""When the courses begin, until they are stored."""


@dataclass(frozen=True, slots=True)
class Course:
    """Attempts in order, with times from ``START``, and how the run ends."""

    model: str
    attempts: tuple[Attempt, ...]
    status: RunStatus
    reason: EndReason
    sentence: str
    blocking: tuple[int, int] | tuple[None, None]
    """The step and the attempt that the run ended at."""


def invent_course(spec: FlowSpec, *, seed: str) -> Course:
    """A course that runs of ``spec`` may take."""
    return _Inventor(spec, Random(seed)).invent()  # noqa: S311  # repeatable, not secret


class _Inventor:
    def __init__(self, spec: FlowSpec, random: Random) -> None:
        self.random = random
        self.model = random.choices(list(MODELS), weights=(6, 3, 1))[0]
        self.spec = resolve_spec(spec, ModelSettings(model=self.model))
        self.now = START
        self.history = History.begin({"topic": "an invented input"}, run_id="seed")

    def invent(self) -> Course:
        fate, stops_at = self.random.random(), self.random.randint(1, len(self.spec.steps))
        for index, step in enumerate(self.spec.steps, start=1):
            if index == stops_at and fate < CANCELLED:
                self._add(index, step, Outcome.CANCELLED)
                return self._end(RunStatus.CANCELLED, EndReason.CANCELLED, "The run was cancelled.")
            if index == stops_at and fate < CANCELLED + REFUSED:
                last = self._add(index, step, Outcome.ERRORED)
                sentence = f"Step {index} “{step.name}” stopped: the provider refused the call (HTTP 401)."
                return self._end(RunStatus.ERRORED, EndReason.CALL_REFUSED, sentence, last)
            last = self._try(index, step)
            if not last.passed:
                sentence = f"Step {index} “{step.name}” did not pass: {describe_verdict(last)}"
                return self._end(RunStatus.FAILED, EndReason.STEP_FAILED, sentence, last)
        return self._end(RunStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED, "All steps passed.")

    def _try(self, index: int, step: StepSpec) -> Attempt:
        """Attempts of a step until one decides."""
        tries = 0
        while True:
            outcome = Outcome.PASSED
            if not step.is_local:
                outcome = self.random.choices(list(OUTCOMES), list(OUTCOMES.values()))[0]
            if outcome is Outcome.FAILED and not step.audits:
                outcome = Outcome.INVALID
            last = self._add(index, step, outcome)
            tries += last.counts
            if last.passed or (last.counts and tries == step.max_attempts):
                return last

    def _add(self, index: int, step: StepSpec, outcome: Outcome) -> Attempt:
        number = len(self.history.attempts(index)) + 1
        seconds = round(self.random.lognormvariate(1.2, 0.6), 3)
        if outcome is Outcome.INTERRUPTED:
            seconds += LEASE_SECONDS
        start, self.now = self.now, self.now + timedelta(seconds=seconds)
        has_reply = outcome in COUNTED
        schema = step.output_schema or {"type": "object", "properties": {"value": {"type": "number"}}}
        step_input = {"topic": "an invented input", "step": index}
        error = AttemptError(code=ModelErrorCode.SERVER_ERROR, message="Service unavailable", status=503)
        attempt = Attempt(
            step=index,
            number=number,
            outcome=outcome,
            input=step_input,
            output=invent_value(schema, seed=str(self.random.random())) if has_reply else None,
            issues=tuple(self._raise_issues(step, outcome)),
            usage=self._invent_usage(number) if has_reply and not step.is_local else TokenUsage(reported=step.is_local),
            request=None if step.is_local else build_request(self.spec, self.history, index, step_input),
            model=self.model if has_reply and not step.is_local else None,
            finish_reason="tool_calls" if has_reply and not step.is_local else None,
            error=error if outcome is Outcome.ERRORED else None,
            started_at=start,
            ended_at=self.now,
        )
        self.history = self.history.append(attempt)
        return attempt

    def _raise_issues(self, step: StepSpec, outcome: Outcome) -> list[Issue]:
        random = self.random
        name = random.choice(list((step.output_schema or {}).get("properties", {})) or ["value"])
        if outcome is Outcome.INVALID:
            description = "It does not fit the schema."
            return [Issue(code="schema_mismatch", severity=Severity.CRITICAL, description=description, path=f"/{name}")]
        if outcome is Outcome.FAILED:
            deciding = [(audit, audit.threshold) for audit in step.audits if audit.threshold is not None]
            chosen = random.sample(deciding, k=min(random.choice((1, 1, 2)), len(deciding)))
            return [_build_issue(audit, threshold, name) for audit, threshold in chosen]
        if outcome is Outcome.PASSED and step.audits and random.random() < REMARKS:
            return [_build_issue(random.choice(step.audits), random.choice((Severity.LOW, Severity.MEDIUM)), name)]
        return []

    def _invent_usage(self, number: int) -> TokenUsage:
        prompt, completion = self.random.randint(300, 2_500) + 350 * number, self.random.randint(40, 600)
        price = MODELS[self.model]
        return TokenUsage(
            prompt=prompt,
            completion=completion,
            total=prompt + completion,
            cached=prompt // 2 if number > 1 else 0,
            reasoning=completion // 3,
            cost=None if price is None else (prompt + 4 * completion) * price,
            unpriced=int(price is None),
        )

    def _end(self, status: RunStatus, reason: EndReason, sentence: str, last: Attempt | None = None) -> Course:
        attempts = tuple(attempt for attempt in self.history if attempt.step)
        blocking = (last.step, last.number) if last else (None, None)
        return Course(self.model, attempts, status, reason, sentence, blocking)


def _build_issue(audit: AuditSpec, severity: Severity, name: str) -> Issue:
    return Issue(
        code=audit.name.lower().replace(" ", "_"),
        severity=severity,
        description=f"“{name}” is not what {audit.name.lower()} asks for.",
        audit=audit.name,
        path=f"/{name}",
        suggestions=(f"Check “{name}” again and give another value.",),
    )
