"""The outline of a run: its result, its input, its steps with their attempts, and when each of them ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from flows.engine.errors import ModelErrorCode
from flows.engine.history import COUNTED, UNDECIDED, UNREPORTED_USAGE, Outcome, TokenUsage, sum_usage
from flows.engine.spec import FlowSpec
from runs import models
from runs.formatting import (
    NOTHING,
    format_cost,
    format_count,
    format_duration,
    format_elapsed,
    format_number,
    format_plural,
)
from runs.history.issue_links import address_attempt, anchor_attempt
from runs.history.lifecycle import StepIssues
from runs.models import Run, RunStatus
from runs.pages.attempts import RUNNING, Traced, count_severities, find_state
from runs.pages.badges import STATES, Badge, IssueCounts
from runs.stored_history import read_usage

RESULT, INPUT = "result", "s0a1"
"""The ids of these two entries; an attempt has ``s2a1``."""

_MIN_BAR = 3.0
"""Per cent of the column of bars."""
_STRIP_WIDTH, _STRIP_GAP = 360, 4


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One attempt in the outline. Its bar is in per cent of the column; ``bar_width`` is empty before it starts."""

    id: str
    step: int
    number: int
    url: str
    state: str
    usage: TokenUsage | None
    """None while it runs."""
    counts: IssueCounts
    same_as: int | None
    """The first of the attempts right before it that gave this very output."""
    duration: str
    seconds: str
    """How long it has been running; empty once it has ended. A script counts on from there."""
    bar_x: str
    bar_width: str
    waited: str
    """How long its step waited before it, with the reason where it is known."""
    is_selected: bool
    is_accepted: bool

    @property
    def badge(self) -> Badge:
        return STATES["accepted" if self.is_accepted else self.state]

    @property
    def is_try(self) -> bool:
        """Whether it counts as a try of its step. While it runs it is taken for one."""
        return self.state == RUNNING or self.state in COUNTED

    @property
    def label(self) -> str:
        """What it is called where its outcome is shown by an icon: “Attempt 2: Failed, 1 high”."""
        issues = "".join(f", {count} {badge.tone}" for badge, count in self.counts)
        return f"Attempt {self.number}: {self.badge.word}{issues}"

    @property
    def cost(self) -> str:
        """Empty where it is not known."""
        cost = format_cost(self.usage.cost, self.usage.unpriced) if self.usage else NOTHING
        return "" if cost == NOTHING else cost


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step of the flow with the attempts made so far; there are none until it begins."""

    index: int
    name: str
    tool_name: str
    model: str
    is_local: bool
    max_attempts: int | None
    """None where it is not known."""
    state: str
    attempts: tuple[AttemptLine, ...]
    issues: StepIssues
    duration: str

    @property
    def badge(self) -> Badge:
        return STATES[self.state]

    @property
    def last(self) -> AttemptLine | None:
        """The attempt that counts so far: the accepted one, or the last."""
        return next((one for one in self.attempts if one.is_accepted), self.attempts[-1] if self.attempts else None)

    @property
    def tries(self) -> int:
        return sum(attempt.is_try for attempt in self.attempts)

    @property
    def used(self) -> str:
        """How many of its attempts it has used: “2 of 4 attempts, 1 interrupted”."""
        others = Counter(attempt.badge.word.lower() for attempt in self.attempts if not attempt.is_try)
        most = "" if self.max_attempts is None else f" of {format_plural(self.max_attempts, 'attempt')}"
        words = f"{self.tries}{most}" if most else format_plural(self.tries, "attempt")
        return ", ".join([words, *(f"{count} {word}" for word, count in others.items())])

    @property
    def spent(self) -> str:
        """Its model with what its attempts used: “gpt-5, 900 tokens, $0.0124”."""
        if self.is_local:
            return "local step, no model call"
        words = [self.model] if self.model else []
        if self.attempts:
            usage = sum_usage(attempt.usage for attempt in self.attempts if attempt.usage)
            words.append(f"{format_count(usage.total)} tokens")
            words += [format_cost(usage.cost, usage.unpriced)] if usage.cost is not None else []
        elif self.max_attempts:
            words.append(f"up to {format_plural(self.max_attempts, 'attempt')}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Outline:
    """All entries of a run."""

    selected: str
    result_url: str
    """Empty while there is no result."""
    input_url: str
    steps: tuple[StepLine, ...]
    axis: str
    """What the whole width of bars stands for."""
    queued: str
    """How long the run waited before its first attempt; empty if it hardly did."""

    @property
    def attempts(self) -> tuple[AttemptLine, ...]:
        return tuple(attempt for step in self.steps for attempt in step.attempts)

    @property
    def has_issues(self) -> bool:
        return any(step.issues.parts for step in self.steps)

    @property
    def strip(self) -> tuple[tuple[str, str, AttemptLine], ...]:
        """All attempts beside each other for phones: place and width of each, which are equal, and the attempt."""
        attempts = self.attempts
        share = _STRIP_WIDTH / max(len(attempts), 1)
        width = format_number(share - min(_STRIP_GAP, share / 3))
        return tuple((format_number(place * share), width, attempt) for place, attempt in enumerate(attempts))

    @property
    def cursor(self) -> str:
        """The last attempt, ``2.3``, with ``r`` while it runs: what a live update continues from."""
        if not self.attempts:
            return "0.0"
        last = self.attempts[-1]
        return f"{last.step}.{last.number}{'r' if last.state == RUNNING else ''}"


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
    """Build the outline of a run from the rows of its page; without a ``spec`` steps are known as far as they began."""
    origin, seconds = _measure(run, rows, now)
    by_step: dict[int, list[AttemptLine]] = {}
    lasted: dict[int, float] = {}
    for earlier, row in zip((None, *rows), rows, strict=False):
        index, state, same = row.step.index, find_state(row, run), traced.same_as.get(row.pk)
        end = now if state == RUNNING else row.ended_at or row.started_at
        length = max((end - row.started_at).total_seconds(), 0.0) if end and row.started_at else None
        lasted[index] = lasted.get(index, 0.0) + (length or 0.0)
        x = width = 0.0
        if row.started_at:
            x = min(100 * (row.started_at - origin).total_seconds() / seconds, 100 - _MIN_BAR)
            width = min(max(100 * (length or 0.0) / seconds, _MIN_BAR), 100 - x)
        by_step.setdefault(index, []).append(
            AttemptLine(
                id=name_attempt(row),
                step=index,
                number=row.number,
                url=f"{run_url}{address_attempt(index, row.number)}",
                state=state,
                usage=view_usage(row),
                counts=count_severities(issues.get(row.pk, ())),
                same_as=same.number if same else None,
                duration=format_elapsed(length or 0.0) if state == RUNNING else format_duration(length),
                seconds=format_number(length or 0.0) if state == RUNNING else "",
                bar_x=f"{format_number(x)}%",
                bar_width=f"{format_number(width)}%" if width else "",
                waited=_explain_wait(earlier, row),
                is_selected=name_attempt(row) == selected,
                is_accepted=row.is_accepted,
            )
        )
    names = {row.step.index: row.step.name for row in rows}
    steps = []
    for index in range(1, (len(spec.steps) if spec else max(run.step_count, *names, 0)) + 1):
        step, lines = spec.step(index) if spec else None, by_step.get(index, [])
        most = step.max_attempts if step else None
        is_last_begun = bool(rows) and rows[-1].step.index == index
        steps.append(
            StepLine(
                index=index,
                name=step.name if step else names.get(index, f"Step {index}"),
                tool_name=step.tool_name or "" if step else "",
                model=step.model or "" if step else "",
                is_local=step is not None and step.is_local,
                max_attempts=most,
                state=_find_step_state(lines, most, run, is_last_begun=is_last_begun),
                attempts=tuple(lines),
                issues=traced.issues.get(index, StepIssues()),
                duration=format_duration(lasted[index]) if lines else "",
            )
        )
    queued = (origin - run.created_at).total_seconds() if rows else 0.0
    return Outline(
        selected=selected,
        result_url=f"{run_url}?show=result" if find_result(run, rows) else "",
        input_url=f"{run_url}{address_attempt(0, 1)}",
        steps=tuple(steps),
        axis=format_duration(seconds) if rows else "",
        queued=format_duration(queued) if queued >= 1 else "",
    )


def name_attempt(row: models.Attempt) -> str:
    """The id of an attempt: ``s2a1``."""
    return anchor_attempt(row.step.index, row.number)


def view_usage(row: models.Attempt) -> TokenUsage | None:
    """What an attempt used; None while it runs."""
    if not row.outcome:
        return None
    usage: models.TokenUsage | None = getattr(row, "usage", None)
    return UNREPORTED_USAGE if usage is None else read_usage(usage)


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


def _find_step_state(attempts: Sequence[AttemptLine], most: int | None, run: Run, *, is_last_begun: bool) -> str:
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
