"""What to do next: a pure function of the spec and the history.

``next_action`` reads no clock, no network and no database. Asking twice gives the same answer, which is what makes a
run go on after a crash: load the history, ask again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise

from flows.engine.clock import describe_seconds
from flows.engine.history import Attempt, History, Outcome, Severity, count_by_severity, find_final
from flows.engine.settling import find_accepted, has_used_tries
from flows.engine.spec import DEFAULT_RETRY_WINDOW, FlowSpec, StepSpec

FIRST_BACKOFF = 1.0
"""Seconds before a call is repeated after a transport error; doubled with each further one."""
MAX_BACKOFF = 60.0
"""Seconds; the doubling ends here."""
MAX_NAMED_AUDITS = 3
"""Audits that a run's last sentence names."""


class EndStatus(StrEnum):
    """How a run ends. Failed is a verdict on an output, errored a fault of the machinery."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ERRORED = "errored"


class EndReason(StrEnum):
    """Why a run ends, as a code."""

    ALL_STEPS_PASSED = "all_steps_passed"
    STEP_FAILED = "step_failed"
    STALLED = "stalled"
    """A step gave the same, or failed for the same issues, again and again."""
    PROVIDER_ERROR = "provider_error"
    """Transport errors went on until the retry window of a step was over."""
    CALL_REFUSED = "call_refused"
    """A call ended with an error that trying again can't fix, of the provider or of the model client."""
    MISSING_INPUT = "missing_input"
    EXPRESSION_ERROR = "expression_error"
    BUDGET_EXCEEDED = "budget_exceeded"
    """The tokens or the money that the run may use are used up."""
    DEADLINE_EXCEEDED = "deadline_exceeded"
    """The run or one of its steps took longer than its time limit."""


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
    """Do nothing until a moment, then do ``then``; ``sentence`` says why."""

    until: datetime
    then: Call | Compute
    sentence: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The run ends. ``blocking`` is the step and the attempt that decided it, if one did."""

    status: EndStatus
    reason: EndReason
    sentence: str
    blocking: tuple[int, int] | None = None
    accepted: tuple[tuple[int, int], ...] = ()
    """Step and number of the attempts that were accepted though they did not pass."""


Action = Call | Compute | Wait | Finish


def next_action(spec: FlowSpec, history: History) -> Action:
    """What a run does next, given all that it did. Pure: no clock, no network, no database."""
    action = _find_next(spec, history)
    if spec.token_budget is None and spec.cost_budget is None:
        return action
    # Only a call uses anything, and only the next one is kept from being made: a verdict that is reached stays.
    wanted = action.then if isinstance(action, Wait) else action
    return (isinstance(wanted, Call) and _finish_over_budget(spec, history, wanted)) or action


def _find_next(spec: FlowSpec, history: History) -> Action:
    unpassed: Finish | None = None
    accepted: list[str] = []
    for index, step in enumerate(spec.steps, start=1):
        attempts = history.attempts(index)
        last = find_final(attempts)
        action = Compute(index, len(attempts) + 1) if step.is_local else Call(index, len(attempts) + 1)
        if last is None:
            return action
        if last.passed:
            continue
        if (best := find_accepted(step, attempts)) is not None:
            tries = sum(attempt.counts for attempt in attempts)
            accepted.append(f"Step {index} “{step.name}”: attempt {best.number} is the best of {tries}, and accepted.")
            continue
        if last.error is not None and not last.error.code.is_retryable:
            return _finish_refused(index, step, last)
        if last.outcome is Outcome.ERRORED:
            following = _repeat_call(history.run_id, step, attempts, last, action)
        else:
            following = _retry(step, attempts, last, action)
        if not isinstance(following, Finish) or step.stop_on_failure:
            return following
        unpassed = unpassed or following
    if unpassed is not None:
        return unpassed
    sentence = " ".join(["All other steps passed.", *accepted]) if accepted else "All steps passed."
    return Finish(EndStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED, sentence)


def _retry(step: StepSpec, attempts: Sequence[Attempt], last: Attempt, action: Call | Compute) -> Action:
    """The next try after an output that did not pass, or the end of the step whose tries are used up."""
    tries = sum(attempt.counts for attempt in attempts)
    if not has_used_tries(step, attempts):
        return action
    reason = EndReason.STEP_FAILED if tries >= step.max_attempts else EndReason.STALLED
    stuck = "" if reason is EndReason.STEP_FAILED else " and was stuck"
    opening = f"Step {last.step} “{step.name}” did not pass in {tries} {_plural('attempt', tries)}{stuck}"
    sentence = f"{opening}: {describe_verdict(last)}"
    return Finish(EndStatus.FAILED, reason, sentence, (last.step, last.number))


def _repeat_call(
    run_id: str, step: StepSpec, attempts: Sequence[Attempt], last: Attempt, action: Call | Compute
) -> Action:
    """The same call after a wait, or the end of the step whose retry window is over. ``last`` is a transport error."""
    assert last.ended_at is not None and last.error is not None  # so every errored attempt is recorded
    window = DEFAULT_RETRY_WINDOW if step.retry_window is None else step.retry_window
    errors, waited = _measure_error_row(attempts)
    left = (timedelta(seconds=window) - waited).total_seconds()
    asked = last.error.retry_after or 0.0
    limit = f"the retry window of {describe_seconds(window)}"
    if not window:
        return _finish_unanswered(step, last, "; calls of this step are not repeated")
    if left <= 0:
        return _finish_unanswered(step, last, f" within {limit}")
    if asked > left:
        asks = f"the provider asks to wait {math.ceil(asked):,} s"
        return _finish_unanswered(step, last, f": {asks}; {math.floor(left):,} s of {limit} are left")
    jitter = random.Random(f"{run_id}:{last.step}:{last.number}").random()  # noqa: S311  # spreads load, guards nothing
    backoff = min(FIRST_BACKOFF * 2 ** min(errors - 1, 16), MAX_BACKOFF) * (0.5 + jitter / 2)
    # The waits grow also where the provider always asks for a short one. The last call is made when the window ends.
    delay = min(max(backoff, asked * (1 + jitter / 10)), left)
    # Without the provider's own words, which may quote the prompt: logs have this sentence too.
    cause = last.error.code.value.replace("_", " ") + (f" ({last.error.status})" if last.error.status else "")
    pause = f"Waiting {describe_seconds(math.ceil(delay))} before attempt {action.number} of step {action.step}"
    sentence = f"{pause}. The previous call got no answer: {cause}."
    return Wait(last.ended_at + timedelta(seconds=delay), action, sentence)


def _measure_error_row(attempts: Sequence[Attempt]) -> tuple[int, timedelta]:
    """How many transport errors there are since the last output, and the time between the calls from first to last.

    Calls that were cut off belong to no such row, and don't end it.
    """
    begin = max((attempt.number for attempt in attempts if attempt.counts), default=0)
    errors = [attempt.number for attempt in attempts[begin:] if attempt.outcome is Outcome.ERRORED]
    gaps = (
        later.started_at - earlier.ended_at
        for earlier, later in pairwise(attempts[errors[0] - 1 : errors[-1]])
        if earlier.ended_at is not None and later.started_at is not None
    )
    # Hosts may differ in their clocks.
    return len(errors), sum((max(gap, timedelta(0)) for gap in gaps), timedelta(0))


def _finish_refused(index: int, step: StepSpec, last: Attempt) -> Finish:
    message = last.error.message if last.error else ""
    sentence = f"Step {index} “{step.name}”, attempt {last.number}: {message}"
    return Finish(EndStatus.ERRORED, EndReason.CALL_REFUSED, sentence, (index, last.number))


def _finish_unanswered(step: StepSpec, last: Attempt, reason: str) -> Finish:
    message = last.error.message if last.error else ""
    sentence = f"Step {last.step} “{step.name}” got no answer{reason}. {message}"
    return Finish(EndStatus.ERRORED, EndReason.PROVIDER_ERROR, sentence, (last.step, last.number))


def _finish_over_budget(spec: FlowSpec, history: History, call: Call) -> Finish | None:
    """The end of a run whose budget is used up, with the attempt that used it up; None if something is left."""
    tokens, cost, blocking = 0, Decimal(0), None
    for attempt in history:
        tokens += attempt.usage.total
        # What has no known price counts as nothing: a guess would be a lie in the sentence below.
        cost += attempt.usage.cost or 0
        if blocking is None and (_reaches(tokens, spec.token_budget) or _reaches(cost, spec.cost_budget)):
            blocking = (attempt.step, attempt.number)
    if blocking is None:
        return None
    if spec.token_budget is not None and tokens >= spec.token_budget:
        words = describe_used_tokens(spec.token_budget, tokens)
    else:
        words = describe_used_cost(spec.cost_budget or Decimal(0), cost)
    sentence = f"The run stopped before step {call.step} “{spec.step(call.step).name}”, attempt {call.number}: {words}."
    return Finish(EndStatus.ERRORED, EndReason.BUDGET_EXCEEDED, sentence, blocking)


def _reaches(used: int | Decimal, budget: int | Decimal | None) -> bool:
    return budget is not None and used >= budget


def describe_used_tokens(budget: int, used: int) -> str:
    """A token budget that is used up, in words: ``budget of 20,000 tokens used (21,340)``."""
    return f"budget of {budget:,} {_plural('token', budget)} used ({used:,})"


def describe_used_cost(budget: Decimal, used: Decimal) -> str:
    """A budget in USD that is used up, in words: ``budget of $0.50 used ($0.53)``."""
    exponent = budget.normalize().as_tuple().exponent
    assert isinstance(exponent, int)  # a letter for what is not a number
    places = max(2, -exponent)
    return f"budget of ${budget:,.{places}f} used (${used:,.{places}f})"


def describe_verdict(attempt: Attempt) -> str:
    """Why an attempt did not pass, in one sentence: its failure reason, else what its issues are."""
    if attempt.failure_reason:
        return attempt.failure_reason
    if attempt.outcome is Outcome.INVALID and attempt.issues:
        return f"the output was not usable. {attempt.issues[0].description}"
    counts = count_by_severity(attempt.issues)
    found = [f"{counts[severity]} {severity}" for severity in reversed(Severity) if counts[severity]]
    if not found:
        return "its pass rule was not met."
    last = next(count for count in counts.values() if count)
    worst = max((severity for severity in Severity if counts[severity]), key=list(Severity).index)
    names = list(dict.fromkeys(issue.audit or issue.code for issue in attempt.issues if issue.severity is worst))
    more = f" and {len(names) - MAX_NAMED_AUDITS} more" if len(names) > MAX_NAMED_AUDITS else ""
    named = f"{', '.join(names[:MAX_NAMED_AUDITS])}{more}"
    return f"the last output has {' and '.join(found)} {_plural('issue', last)}; {worst.value}: {named}."


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
