"""The outline of a run: its result, its input, its steps with their attempts, and when each of them ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from flows.engine.errors import ModelErrorCode
from flows.engine.history import COUNTED, UNDECIDED, UNREPORTED_USAGE, Outcome, TokenUsage, sum_usage
from flows.engine.spec import FlowSpec, StepSpec
from runs import models
from runs.formatting import format_cost, format_count, format_duration, format_elapsed, format_number, format_plural
from runs.history.issues import StepIssues, address_attempt, anchor_attempt
from runs.models import Run, RunStatus
from runs.pages.attempts import RUNNING, Traced, count_severities, find_state
from runs.pages.badges import STATES, Badge, IssueCounts
from runs.stored_history import build_engine_usage

RESULT, INPUT = "result", "s0a1"
"""The ids of these two entries; an attempt has ``s2a1``."""

_MIN_BAR = 3.0
"""Per cent of the column of bars."""
_STRIP_WIDTH, _STRIP_GAP = 360, 4


@dataclass(frozen=True, slots=True)
class OutlineAttempt:
    """An attempt in the outline."""

    id: str
    step: int
    number: int
    state: str
    badge: Badge
    is_try: bool
    is_accepted: bool
    label: str
    """What it is called where its outcome is shown by an icon: “Attempt 2: Failed, 1 high”."""
    usage: TokenUsage | None
    cost: str
    """Empty where it is not known."""
    counts: IssueCounts
    same_as: int | None
    """The number of the first of the attempts right before it that gave this very output."""
    duration: str
    seconds: str
    """A script counts on from there; empty unless it runs."""
    url: str
    is_selected: bool
    waited: str
    bar_x: str
    bar_width: str


@dataclass(frozen=True, slots=True)
class OutlineStep:
    """A step with the attempts made so far."""

    index: int
    name: str
    tool_name: str
    model: str
    is_local: bool
    state: str
    badge: Badge
    attempts: Sequence[OutlineAttempt]
    last: OutlineAttempt | None
    """The attempt that counts: the accepted one, or the last."""
    tries: int
    used: str
    """How many of its attempts it has used: “2 of 4 attempts, 1 interrupted”."""
    spent: str
    """Its model with what its attempts used: “gpt-5, 900 tokens, $0.0124”."""
    issues: StepIssues
    duration: str


@dataclass(frozen=True, slots=True)
class Outline:
    """All entries of a run."""

    selected: str
    result_url: str
    """Empty while there is no result."""
    input_url: str
    steps: Sequence[OutlineStep]
    attempts: Sequence[OutlineAttempt]
    has_issues: bool
    axis: str
    """What the whole width of bars stands for."""
    queued: str
    """How long the run waited before its first attempt; empty if it hardly did."""
    strip: Sequence[tuple[str, str, OutlineAttempt]]
    """All attempts beside each other for phones: place and width of each, which are equal, and the attempt."""
    cursor: str
    """Where a live update continues: the last attempt, “2.3”, with “r” while it runs."""


def build_outline(
    run: Run,
    run_url: str,
    spec: FlowSpec | None,
    rows: Sequence[models.Attempt],
    issues: Mapping[int, Sequence[models.Issue]],
    traced: Traced,
    selected: str,
    now: datetime,
) -> Outline:
    """All entries of a run, from the rows of its page; without a ``spec`` steps are known as far as they began."""
    traced_issues, same_as = traced
    origin, seconds = _measure(run, rows, now)
    by_step: dict[int, list[OutlineAttempt]] = {}
    lasted: dict[int, float] = {}
    for earlier, row in zip((None, *rows), rows, strict=False):
        index, state = row.step.index, find_state(row, run)
        end = now if state == RUNNING else row.ended_at or row.started_at
        length = max((end - row.started_at).total_seconds(), 0.0) if end and row.started_at else None
        lasted[index] = lasted.get(index, 0.0) + (length or 0.0)
        x = width = 0.0
        if row.started_at:
            x = min(100 * (row.started_at - origin).total_seconds() / seconds, 100 - _MIN_BAR)
            width = min(max(100 * (length or 0.0) / seconds, _MIN_BAR), 100 - x)
        usage, counts = view_usage(row), count_severities(issues.get(row.pk, ()))
        badge, same = STATES["accepted" if row.is_accepted else state], same_as.get(row.pk)
        found = "".join(f", {count} {severity.tone}" for severity, count in counts)
        by_step.setdefault(index, []).append(
            OutlineAttempt(
                id=name_attempt(row),
                step=index,
                number=row.number,
                state=state,
                badge=badge,
                # While it runs it is taken for a try of its step.
                is_try=state == RUNNING or state in COUNTED,
                is_accepted=row.is_accepted,
                label=f"Attempt {row.number}: {badge.word}{found}",
                usage=usage,
                cost=format_cost(usage.cost, usage.unpriced) if usage and usage.cost is not None else "",
                counts=counts,
                same_as=same.number if same else None,
                duration=format_elapsed(length or 0.0) if state == RUNNING else format_duration(length),
                seconds=format_number(length or 0.0) if state == RUNNING else "",
                url=f"{run_url}{address_attempt(index, row.number)}",
                is_selected=name_attempt(row) == selected,
                waited=_explain_wait(earlier, row),
                bar_x=f"{format_number(x)}%",
                bar_width=f"{format_number(width)}%" if width else "",
            )
        )
    names = {row.step.index: row.step.name for row in rows}
    steps = []
    for index in range(1, (len(spec.steps) if spec else max(run.step_count, *names, 0)) + 1):
        step, lines = spec.step(index) if spec else None, by_step.get(index, [])
        most, is_last_begun = step.max_attempts if step else None, bool(rows) and rows[-1].step.index == index
        state = _find_step_state(lines, most, run, is_last_begun=is_last_begun)
        steps.append(
            OutlineStep(
                index=index,
                name=step.name if step else names.get(index, f"Step {index}"),
                tool_name=(step and step.tool_name) or "",
                model=(step and step.model) or "",
                is_local=step is not None and step.is_local,
                state=state,
                badge=STATES[state],
                attempts=lines,
                last=next((one for one in lines if one.is_accepted), lines[-1] if lines else None),
                tries=sum(one.is_try for one in lines),
                used=_describe_tries(lines, most),
                spent=_describe_spent(step, lines),
                issues=traced_issues.get(index, StepIssues()),
                duration=format_duration(lasted[index]) if lines else "",
            )
        )
    attempts = [line for one in steps for line in one.attempts]
    share = _STRIP_WIDTH / max(len(attempts), 1)
    width_text = format_number(share - min(_STRIP_GAP, share / 3))
    last = attempts[-1] if attempts else None
    queued = (origin - run.created_at).total_seconds() if rows else 0.0
    return Outline(
        selected=selected,
        result_url=f"{run_url}?show=result" if find_result(run, rows) else "",
        input_url=f"{run_url}{address_attempt(0, 1)}",
        steps=steps,
        attempts=attempts,
        has_issues=any(one.issues.parts for one in steps),
        axis=format_duration(seconds) if rows else "",
        queued=format_duration(queued) if queued >= 1 else "",
        strip=[(format_number(place * share), width_text, line) for place, line in enumerate(attempts)],
        cursor=f"{last.step}.{last.number}{'r' if last.state == RUNNING else ''}" if last else "0.0",
    )


def _describe_tries(attempts: Sequence[OutlineAttempt], most: int | None) -> str:
    tries = sum(attempt.is_try for attempt in attempts)
    others = Counter(attempt.badge.word.lower() for attempt in attempts if not attempt.is_try)
    used = format_plural(tries, "attempt") if most is None else f"{tries} of {format_plural(most, 'attempt')}"
    return ", ".join([used, *(f"{count} {word}" for word, count in others.items())])


def _describe_spent(step: StepSpec | None, attempts: Sequence[OutlineAttempt]) -> str:
    if step is not None and step.is_local:
        return "local step, no model call"
    spent = [step.model] if step and step.model else []
    if attempts:
        usage = sum_usage(attempt.usage for attempt in attempts if attempt.usage)
        spent.append(f"{format_count(usage.total)} tokens")
        spent += [format_cost(usage.cost, usage.unpriced)] if usage.cost is not None else []
    elif step is not None:
        spent.append(f"up to {format_plural(step.max_attempts, 'attempt')}")
    return ", ".join(spent)


def name_attempt(row: models.Attempt) -> str:
    """The id of an attempt: ``s2a1``."""
    return anchor_attempt(row.step.index, row.number)


def view_usage(row: models.Attempt) -> TokenUsage | None:
    """What an attempt used; None while it runs."""
    if not row.outcome:
        return None
    usage: models.TokenUsage | None = getattr(row, "usage", None)
    return UNREPORTED_USAGE if usage is None else build_engine_usage(usage)


def find_result(run: Run, rows: Sequence[models.Attempt]) -> models.Attempt | None:
    """The attempt whose output is the result of a run that succeeded: the last step's last one, or the accepted one."""
    if not rows or run.status != RunStatus.SUCCEEDED:
        return None
    accepted = (row for row in rows if row.is_accepted and row.step.index == rows[-1].step.index)
    return next(accepted, rows[-1])


def choose_entry(run: Run, rows: Sequence[models.Attempt]) -> str:
    """What opens with the page of a run: its result, the attempt that blocked it, or where it is at."""
    if find_result(run, rows) is not None:
        return RESULT
    if not rows:
        return INPUT
    blocking = anchor_attempt(run.blocking_step or 0, run.blocking_attempt or 0)
    is_there = run.has_ended and any(name_attempt(row) == blocking for row in rows)
    return blocking if is_there else name_attempt(rows[-1])


def _measure(run: Run, rows: Sequence[models.Attempt], now: datetime) -> tuple[datetime, float]:
    """When bars begin, and how many seconds their whole width stands for."""
    begun = [row.started_at for row in rows if row.started_at]
    origin = min([*begun, *([run.started_at] if run.started_at else [])], default=now)
    ends = [row.ended_at or (origin if run.has_ended else now) for row in rows]
    seconds = max([(end - origin).total_seconds() for end in ends], default=0.0)
    if rows and not run.has_ended:
        # What goes on still has room before it, and an axis that it doesn't outgrow at once.
        seconds = max(seconds * 1.15, 10.0)
    return origin, max(seconds, 0.001)


def _explain_wait(earlier: models.Attempt | None, row: models.Attempt) -> str:
    """How long a step waited after an attempt, and for what; empty if it didn't, or the attempt was its first."""
    if earlier is None or earlier.step_id != row.step_id or earlier.ended_at is None or row.started_at is None:
        return ""
    waited = (row.started_at - earlier.ended_at).total_seconds()
    if waited < 0.001:
        return ""
    words, error = f"Waited {format_duration(waited)}", earlier.error or {}
    if earlier.outcome == Outcome.INTERRUPTED:
        return f"{words} for a worker after the interruption"
    if earlier.outcome != Outcome.ERRORED:
        return words if waited >= 1 else ""
    asked = error.get("retry_after")
    wish = f" (the provider asked for {format_duration(asked)})" if isinstance(asked, int | float) and asked else ""
    limited = error.get("code") == ModelErrorCode.RATE_LIMITED
    return f"{words} {'for the provider’s rate limit' if limited else 'to retry after an error'}{wish}"


def _find_step_state(attempts: Sequence[OutlineAttempt], most: int | None, run: Run, *, is_last_begun: bool) -> str:
    if not attempts:
        return "waiting"
    if attempts[-1].state == RUNNING:
        return RUNNING
    if any(attempt.is_accepted for attempt in attempts):
        return "accepted"
    decided = [attempt.state for attempt in attempts if attempt.state not in UNDECIDED]
    if decided and decided[-1] == "passed":
        return "passed"
    # Only the step that was begun last can still be open.
    if is_last_begun and (most is None or sum(attempt.is_try for attempt in attempts) < most):
        if not run.has_ended:
            return "retrying"
        if run.status == RunStatus.CANCELLED:
            return "cancelled"
    last = decided[-1] if decided else attempts[-1].state
    return "failed" if last == "invalid" else last
