"""Courses of runs: what happens in each attempt, invented once and then stored for many runs."""

from __future__ import annotations

from collections.abc import Iterator
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
from runs.facets import Facet, list_facets
from runs.models import EndReason, RunStatus

FIRST_FAILS, RETRY_FAILS = 0.3, 0.45
"""How often a first attempt does not pass, and how often a retry doesn't."""
INVALID, ERRORED = 0.12, 0.06
"""The parts of the attempts that don't pass which bring no usable output, or no answer at all."""
REMARKS = 0.2
"""How often an attempt passes with issues."""
RETURNS = 0.6
"""How often what was fixed is found again where an attempt does not pass."""
CANCELLED, REFUSED = 0.03, 0.02
"""How often a run is cancelled on its way, or refused by the provider."""
INTERRUPTED, FOUND_OUT = 0.02, 90.0
"""How often the worker of an attempt dies, and the seconds until somebody finds out."""

MODELS = {"gpt-5-mini": Decimal("0.0000006"), "gpt-5": Decimal("0.000003"), "in-house-7b": None}
"""Invented prices of a token; one model has none."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When the invented runs begin, until they are stored."""


@dataclass(frozen=True, slots=True)
class Script:
    """One course: attempts in order, with times from an invented beginning, and how it ends."""

    model: str
    """What its steps ask that name no model of their own, and what answers."""
    attempts: tuple[Attempt, ...]
    facets: frozenset[Facet]
    status: RunStatus
    reason: EndReason
    sentence: str
    blocking: tuple[int, int] | None
    seconds: float


def invent_scripts(spec: FlowSpec, *, count: int, seed: str) -> tuple[Script, ...]:
    """``count`` courses that runs of ``spec`` may take."""
    chances = (Random(f"{seed}/{number}") for number in range(count))  # noqa: S311  # repeatable, not secret
    return tuple(_Course(spec, chance).play() for chance in chances)


class _Course:
    def __init__(self, spec: FlowSpec, random: Random) -> None:
        self.random = random
        self.model = random.choices(list(MODELS), weights=(6, 3, 1))[0]
        self.spec = resolve_spec(spec, ModelSettings(model=self.model))
        self.now = BEGIN
        self.history = History.begin({"topic": "an invented input"}, run_id="seed")

    def play(self) -> Script:
        fate = self.random.random()
        stops_at = self.random.randint(1, len(self.spec.steps))
        for index, step in enumerate(self.spec.steps, start=1):
            if fate < CANCELLED and index == stops_at:
                self._add(index, step, Outcome.CANCELLED)
                return self._end(RunStatus.CANCELLED, EndReason.CANCELLED, "The run was cancelled.", None)
            if fate < CANCELLED + REFUSED and index == stops_at:
                self._add(index, step, Outcome.ERRORED)
                sentence = f"Step {index} “{step.name}” stopped: the provider refused the call (HTTP 401)."
                return self._end(RunStatus.ERRORED, EndReason.CALL_REFUSED, sentence, (index, 1))
            last, tries = self._try(index, step)
            if last.outcome is not Outcome.PASSED:
                opening = f"Step {index} “{step.name}” did not pass in {tries} attempt{'s' if tries > 1 else ''}"
                sentence = f"{opening}: {describe_verdict(last)}"
                return self._end(RunStatus.FAILED, EndReason.STEP_FAILED, sentence, (index, last.number))
        return self._end(RunStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED, "All steps passed.", None)

    def _try(self, index: int, step: StepSpec) -> tuple[Attempt, int]:
        """The attempt that decides, and how many counted as tries until then."""
        tries = 0
        while True:
            if not step.is_local and self.random.random() < INTERRUPTED:
                self._add(index, step, Outcome.INTERRUPTED)
            last = self._add(index, step, self._draw_outcome(step, RETRY_FAILS if tries else FIRST_FAILS))
            tries += last.counts
            if last.outcome is Outcome.PASSED or tries == step.max_attempts:
                return last, tries

    def _draw_outcome(self, step: StepSpec, fails: float) -> Outcome:
        if step.is_local or self.random.random() >= fails:
            return Outcome.PASSED
        kind = self.random.random()
        if kind < ERRORED:
            return Outcome.ERRORED
        return Outcome.INVALID if kind < ERRORED + INVALID or not step.audits else Outcome.FAILED

    def _add(self, index: int, step: StepSpec, outcome: Outcome) -> Attempt:
        number = len(self.history.attempts(index)) + 1
        seconds = round(self.random.lognormvariate(1.2, 0.6), 3)
        if outcome is Outcome.INTERRUPTED:
            seconds += FOUND_OUT
        begin, self.now = self.now, self.now + timedelta(seconds=seconds)
        has_answer = outcome in COUNTED
        schema = step.output_schema or {"type": "object", "properties": {"value": {"type": "number"}}}
        output = invent_value(schema, seed=str(self.random.random())) if has_answer else None
        step_input = {"topic": "an invented input", "step": index}
        attempt = Attempt(
            step=index,
            number=number,
            outcome=outcome,
            input=step_input,
            output=output,
            issues=tuple(self._raise_issues(index, step, outcome)),
            usage=self._use(step, number) if has_answer else TokenUsage(reported=step.is_local),
            request=None if step.is_local else build_request(self.spec, self.history, index, step_input),
            model=self.model if has_answer and not step.is_local else None,
            finish_reason="tool_calls" if has_answer and not step.is_local else None,
            error=AttemptError(code=ModelErrorCode.SERVER_ERROR, message="Service unavailable", status=503)
            if outcome is Outcome.ERRORED
            else None,
            started_at=begin,
            ended_at=self.now,
        )
        self.history = self.history.append(attempt)
        return attempt

    def _raise_issues(self, index: int, step: StepSpec, outcome: Outcome) -> Iterator[Issue]:
        random = self.random
        properties = list((step.output_schema or {}).get("properties", {})) or ["value"]
        if outcome is Outcome.INVALID:
            path = f"/{random.choice(properties)}"
            yield Issue(
                code="schema_mismatch", severity=Severity.CRITICAL, description="It does not fit the schema.", path=path
            )
        elif outcome is Outcome.FAILED and (fixed := self._list_fixed(index)) and random.random() < RETURNS:
            yield random.choice(fixed)
        elif outcome is Outcome.FAILED:
            deciding = [(audit, audit.threshold) for audit in step.audits if audit.threshold is not None]
            for audit, threshold in random.sample(deciding, k=min(random.choice((1, 1, 2)), len(deciding))):
                yield self._raise_issue(audit, threshold, properties)
        elif outcome is Outcome.PASSED and step.audits and random.random() < REMARKS:
            severity = random.choice((Severity.LOW, Severity.MEDIUM))
            yield self._raise_issue(random.choice(step.audits), severity, properties)

    def _list_fixed(self, index: int) -> list[Issue]:
        """What audits found earlier in the step and no longer in its last output that they looked at."""
        looked_at = [attempt for attempt in self.history.attempts(index) if attempt.outcome is Outcome.FAILED]
        if not looked_at:
            return []
        *earlier, last = looked_at
        left = {(issue.audit, issue.path) for issue in last.issues}
        return [issue for attempt in earlier for issue in attempt.issues if (issue.audit, issue.path) not in left]

    def _raise_issue(self, audit: AuditSpec, severity: Severity, properties: list[str]) -> Issue:
        name = self.random.choice(properties)
        return Issue(
            code=audit.name.lower().replace(" ", "_"),
            severity=severity,
            description=f"“{name}” is not what {audit.name.lower()} asks for.",
            audit=audit.name,
            path=f"/{name}",
            suggestions=(f"Look at “{name}” again and give another value.",),
        )

    def _use(self, step: StepSpec, number: int) -> TokenUsage:
        if step.is_local:
            return TokenUsage()
        prompt = self.random.randint(300, 2_500) + 350 * number
        completion = self.random.randint(40, 600)
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

    def _end(self, status: RunStatus, reason: EndReason, sentence: str, blocking: tuple[int, int] | None) -> Script:
        attempts = tuple(attempt for attempt in self.history if attempt.step)
        return Script(
            model=self.model,
            attempts=attempts,
            facets=frozenset(facet for attempt in attempts for facet in list_facets(attempt)),
            status=status,
            reason=reason,
            sentence=sentence,
            blocking=blocking,
            seconds=(self.now - BEGIN).total_seconds(),
        )
