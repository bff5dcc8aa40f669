"""When a step is over, and which of its attempts counts: pure functions of the step and its attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flows.engine.history import MARK, Attempt, History, Outcome, Severity, count_by_severity, find_final
from flows.engine.json_values import dump_json
from flows.engine.spec import FlowSpec, OnExhausted, StepSpec


def find_deciding(step: StepSpec, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that counts for a step: the accepted one, else the last that was not interrupted or cancelled."""
    return find_accepted(step, attempts) or find_final(attempts)


def find_step_final(spec: FlowSpec, history: History, index: int) -> Attempt | None:
    """The attempt that counts for step ``index`` of a run; of step 0 the input."""
    attempts = history.attempts(index)
    return find_deciding(spec.step(index), attempts) if index else find_final(attempts)


def find_accepted(step: StepSpec, attempts: Sequence[Attempt]) -> Attempt | None:
    """The best output of a step that is over without one that passed, if the step accepts that; None otherwise."""
    if step.on_exhausted is not OnExhausted.ACCEPT_BEST:
        return None
    last = find_final(attempts)
    # A step that ends on transport errors is not over by its outputs.
    if last is None or last.passed or not last.counts or not has_used_tries(step, attempts):
        return None
    usable = [attempt for attempt in attempts if attempt.outcome is Outcome.FAILED]
    return max(usable, key=_rank, default=None)


def _rank(attempt: Attempt) -> tuple[int, ...]:
    """Greater for a better output: fewest critical issues, then high, medium, low, then the latest."""
    counts = count_by_severity(attempt.issues)
    return (*(-counts[severity] for severity in reversed(Severity)), attempt.number)


def list_accepted(spec: FlowSpec, history: History) -> tuple[Attempt, ...]:
    """The attempts of a run that were accepted though they did not pass."""
    steps = zip(spec.steps, history.steps[1:], strict=False)
    return tuple(found for step, attempts in steps if (found := find_accepted(step, attempts)) is not None)


def has_used_tries(step: StepSpec, attempts: Sequence[Attempt]) -> bool:
    """Whether no further output of a step is asked for: its tries are used up, or it is stuck."""
    tries, stuck = sum(attempt.counts for attempt in attempts), find_stall(step, attempts)
    # The last model has one more try.
    stalled = stuck is not None and tries >= stuck + (step.last_model is not None)
    return tries >= step.max_attempts or stalled


def find_stall(step: StepSpec, attempts: Sequence[Attempt]) -> int | None:
    """After how many outputs a step was first stuck: ``stall_after`` in a row are equal, or fail for the same issues.

    Issues are the same by audit, code and path.
    """
    if step.stall_after is None:
        return None
    outputs = [attempt for attempt in attempts if attempt.counts]
    found = [_find_row(outputs, _describe_output), _find_row(outputs, lambda one: _describe_issues(step, one))]
    ends = [end for row in found if (end := _find_end(row, step.stall_after)) is not None]
    return min(ends, default=None)


def _find_row(outputs: Sequence[Attempt], describe: Callable[[Attempt], Any]) -> list[int]:
    """For each output how many in a row, up to it, are described alike."""
    lengths: list[int] = []
    before: Any = None
    for output in outputs:
        words = describe(output)
        lengths.append(lengths[-1] + 1 if lengths and words == before else 1)
        before = words
    return lengths


def _find_end(lengths: Sequence[int], count: int) -> int | None:
    return next((place for place, length in enumerate(lengths, start=1) if length >= count), None)


def _describe_output(attempt: Attempt) -> Any:
    # As text: to Python 1, 1.0 and true are equal.
    text = dump_json(attempt.raw_output if attempt.output is None else attempt.output)
    # What was redacted may have differed: such an output equals no other.
    return attempt.number if MARK[:-1] in text else text


def _describe_issues(step: StepSpec, attempt: Attempt) -> Any:
    return frozenset(issue.fingerprint for issue in list_blocking(step, attempt))


def list_blocking(step: StepSpec, attempt: Attempt) -> list[Any]:
    """The issues because of which an attempt did not pass; all of them where none stands out."""
    issues = list(attempt.issues)
    if attempt.outcome is not Outcome.FAILED or step.pass_expression is not None:
        return issues
    thresholds = {audit.name: audit.threshold for audit in step.audits}
    found = [
        issue
        for issue in issues
        if (threshold := thresholds.get(issue.audit, Severity.CRITICAL)) is not None and issue.severity >= threshold
    ]
    return found or issues


def find_called_step(step: StepSpec, attempts: Sequence[Attempt]) -> StepSpec:
    """The step as its next call is made: with its last model if that call is the last one that it may make."""
    if step.last_model is None:
        return step
    tries = sum(attempt.counts for attempt in attempts)
    is_last = tries + 1 >= step.max_attempts or find_stall(step, attempts) is not None
    return step.model_copy(update={"model": step.last_model}) if is_last else step
