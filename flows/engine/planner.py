"""What to do next: a pure function of the spec and the history.

``next_action`` reads no clock, no network and no database. Asking twice gives the same answer, which is what makes a
run go on after a crash: load the history, ask again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from flows.engine.history import Attempt, History, Outcome
from flows.engine.issues import Severity, count_by_severity
from flows.engine.spec import FlowSpec, StepSpec

FIRST_BACKOFF = 1.0
"""Seconds before the second try after a transport error; doubled with each further one."""
LONGEST_BACKOFF = 60.0
"""Seconds; the doubling ends here."""
LONGEST_RETRY_AFTER = 3600.0
"""Seconds; a provider that asks for more is asked again after this long."""


class EndStatus(StrEnum):
    """How a run ends. Failed is a verdict on an output, errored a fault of the machinery."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ERRORED = "errored"


class EndReason(StrEnum):
    """Why a run ends, as a code."""

    ALL_STEPS_PASSED = "all_steps_passed"
    STEP_FAILED = "step_failed"
    PROVIDER_ERROR = "provider_error"
    """Transport errors used up the tries of a step."""
    CALL_REFUSED = "call_refused"
    """The provider gave an error that trying again can't mend."""
    MISSING_INPUT = "missing_input"
    EXPRESSION_ERROR = "expression_error"


@dataclass(frozen=True, slots=True)
class Call:
    """Call the model for attempt ``number`` of ``step``."""

    step: int
    number: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute attempt ``number`` of the local ``step``."""

    step: int
    number: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until a moment, then do ``then``."""

    until: datetime
    then: Call | Compute


@dataclass(frozen=True, slots=True)
class Finish:
    """The run ends. ``blocking`` is the step and the attempt that decided it, if one did."""

    status: EndStatus
    reason: EndReason
    sentence: str
    blocking: tuple[int, int] | None = None


Action = Call | Compute | Wait | Finish


def next_action(spec: FlowSpec, history: History) -> Action:
    """What a run does next, given all that it did. Pure: no clock, no network, no database."""
    unpassed: Finish | None = None
    for index, step in enumerate(spec.steps, start=1):
        attempts = history.attempts(index)
        counted = [attempt for attempt in attempts if attempt.counts]
        action = Compute(index, len(attempts) + 1) if step.is_local else Call(index, len(attempts) + 1)
        if not counted:
            return action
        last = counted[-1]
        if last.passed:
            continue
        if last.error is not None and not last.error.code.is_retryable:
            return _finish_refused(index, step, last)
        if len(counted) < step.max_attempts:
            return _retry(history.run_id, counted, action)
        verdict = _finish_exhausted(index, step, last, len(counted))
        if step.stop_on_failure:
            return verdict
        unpassed = unpassed or verdict
    if unpassed is not None:
        return unpassed
    return Finish(EndStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED, "All steps passed.")


def _retry(run_id: str, counted: list[Attempt], action: Call | Compute) -> Action:
    last = counted[-1]
    if last.outcome is not Outcome.ERRORED or last.ended_at is None:
        return action
    errors_in_a_row = 0
    for attempt in reversed(counted):
        if attempt.outcome is not Outcome.ERRORED:
            break
        errors_in_a_row += 1
    jitter = random.Random(f"{run_id}:{last.step}:{last.number}").random()  # noqa: S311  # spreads load, guards nothing
    retry_after = last.error.retry_after if last.error else None
    if retry_after is not None:
        delay = min(max(retry_after, 0.0), LONGEST_RETRY_AFTER) * (1 + jitter / 10)
    else:
        delay = min(FIRST_BACKOFF * 2 ** min(errors_in_a_row - 1, 16), LONGEST_BACKOFF) * (0.5 + jitter / 2)
    return Wait(last.ended_at + timedelta(seconds=delay), action)


def _finish_refused(index: int, step: StepSpec, last: Attempt) -> Finish:
    message = last.error.message if last.error else ""
    sentence = f"Step {index} “{step.name}”, attempt {last.number}: {message}"
    return Finish(EndStatus.ERRORED, EndReason.CALL_REFUSED, sentence, (index, last.number))


def _finish_exhausted(index: int, step: StepSpec, last: Attempt, tries: int) -> Finish:
    blocking = (index, last.number)
    opening = f"Step {index} “{step.name}” did not pass in {tries} {_plural('attempt', tries)}"
    if last.outcome is Outcome.ERRORED:
        message = last.error.message if last.error else ""
        return Finish(EndStatus.ERRORED, EndReason.PROVIDER_ERROR, f"{opening}. {message}".strip(), blocking)
    sentence = f"{opening}: {describe_verdict(last)}"
    return Finish(EndStatus.FAILED, EndReason.STEP_FAILED, sentence, blocking)


def describe_verdict(attempt: Attempt) -> str:
    """Why an attempt did not pass, in one sentence: its failure reason, else what its issues are."""
    if attempt.failure_reason:
        return attempt.failure_reason
    if attempt.outcome is Outcome.INVALID and attempt.issues:
        return f"the output was not usable. {attempt.issues[0].description}"
    counts = count_by_severity(attempt.issues)
    found = [f"{counts[severity]} {severity}" for severity in reversed(Severity) if counts[severity]]
    if not found:
        return "its pass rule said no."
    last = next(count for count in counts.values() if count)
    return f"the last output has {' and '.join(found)} {_plural('issue', last)}."


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
