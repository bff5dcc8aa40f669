"""The outline of a run: its result, its input, its steps with their attempts, and when each of them ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from flows.engine.errors import ModelErrorCode
from flows.engine.history import COUNTED, UNDECIDED, Outcome, TokenUsage, sum_usage
from runs import models
from runs.formatting import format_cost, format_count, format_duration, format_elapsed, format_plural
from runs.history.issue_links import address_attempt, anchor_attempt
from runs.history.lifecycle import StepIssues
from runs.models import Run, RunStatus
from runs.pages.attempt_rows import KnownStep, Traced
from runs.pages.attempt_view import RUNNING, SeverityCount, count_severities, find_state, list_counts, view_usage
from runs.pages.badges import STATES, Badge

BAR_WIDTH = 100
"""Per cent of the column of bars."""
_MIN_BAR = 3.0
_STRIP_WIDTH, _STRIP_GAP = 360, 4

RESULT, INPUT = "result", "s0a1"
"""The ids of these two entries; an attempt has ``s2a1``."""


@dataclass(frozen=True, slots=True)
class Bar:
    """When something ran, as geometry: shares of the width of its box."""

    x: str
    width: str
    tone: str


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One attempt in the outline."""

    id: str
    step: int
    number: int
    url: str
    state: str
    badge: Badge
    usage: TokenUsage | None
    counts: tuple[SeverityCount, ...]
    same_as: int | None
    started_at: datetime | None
    duration: str
    seconds: str
    """How long it has been running; empty once it has ended. A script counts on from there."""
    bar: Bar | None
    waited: str
    """How long its step waited before it, with the reason where it is known."""
    is_selected: bool

    @property
    def is_try(self) -> bool:
        """Whether it counts as a try of its step. While it runs it is taken for one."""
        return self.state == RUNNING or self.state in COUNTED

    @property
    def label(self) -> str:
        """What it is called where its outcome is shown by an icon: “Attempt 2: Failed, 1 high”."""
        issues = "".join(f", {count.count} {count.badge.word.lower()}" for count in self.counts)
        return f"Attempt {self.number}: {self.badge.word}{issues}"


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step of the flow with the attempts made so far; there are none until it begins."""

    index: int
    name: str
    tool_name: str
    model: str
    is_local: bool
    max_attempts: int | None
    state: str
    badge: Badge
    attempts: tuple[AttemptLine, ...]
    issues: StepIssues
    duration: str

    @property
    def last(self) -> AttemptLine | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def used(self) -> str:
        """How many of its attempts it has used: “2 of 4 attempts, 1 interrupted”."""
        tries = sum(attempt.is_try for attempt in self.attempts)
        others = Counter(attempt.badge.word.lower() for attempt in self.attempts if not attempt.is_try)
        most = self.max_attempts
        words = format_plural(tries, "attempt") if most is None else f"{tries} of {format_plural(most, 'attempt')}"
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
class Segment:
    """One attempt in the strip that stands for the outline where there is little room."""

    x: str
    width: str
    y: str
    height: str
    tone: str


@dataclass(frozen=True, slots=True)
class Outline:
    """All entries of a run. ``result`` is the attempt that gave the result, None while there is none."""

    selected: str
    run_url: str
    result_url: str
    input_url: str
    result: AttemptLine | None
    steps: tuple[StepLine, ...]
    axis: str
    """What the whole width of bars stands for."""
    queued: str
    """How long the run waited before its first attempt; empty if it hardly did."""

    @property
    def attempts(self) -> tuple[AttemptLine, ...]:
        return tuple(attempt for step in self.steps for attempt in step.attempts)

    @property
    def strip(self) -> tuple[Segment, ...]:
        """All attempts beside each other, each as wide as the others; the selected one is higher."""
        attempts = self.attempts
        share = _STRIP_WIDTH / max(len(attempts), 1)
        gap = min(_STRIP_GAP, share / 3)
        return tuple(
            Segment(
                x=_number(place * share),
                width=_number(share - gap),
                y="0" if attempt.is_selected else "2",
                height="8" if attempt.is_selected else "4",
                tone=attempt.badge.tone,
            )
            for place, attempt in enumerate(attempts)
        )

    @property
    def cursor(self) -> str:
        """The last attempt, ``2.3``, with ``r`` while it runs: what a live update continues from."""
        if not self.attempts:
            return "0.0"
        last = self.attempts[-1]
        return f"{last.step}.{last.number}{'r' if last.state == RUNNING else ''}"


@dataclass(frozen=True, slots=True)
class _Axis:
    origin: datetime
    seconds: float

    def place(self, moment: datetime) -> float:
        return (moment - self.origin).total_seconds() / self.seconds * BAR_WIDTH


def build_outline(
    run: Run,
    run_url: str,
    steps: Sequence[KnownStep],
    rows: Sequence[models.Attempt],
    issues: Mapping[int, Sequence[models.Issue]],
    traced: Traced,
    selected: str,
    now: datetime,
) -> Outline:
    """Build the outline of a run from the rows of its page."""
    axis = _build_axis(run, rows, now)
    lines = tuple(_build_step(run, run_url, step, rows, issues, traced, selected, axis, now) for step in steps)
    queued = (axis.origin - run.created_at).total_seconds() if rows else 0.0
    result = find_result(run, rows)
    shown = None
    if result is not None:
        shown = next(a for line in lines for a in line.attempts if a.id == name_attempt(result))
    return Outline(
        selected=selected,
        run_url=run_url,
        result_url=f"{run_url}?show=result",
        input_url=f"{run_url}{address_attempt(0, 1)}",
        result=shown,
        steps=lines,
        axis=format_duration(axis.seconds) if rows else "",
        queued=format_duration(queued) if queued >= 1 else "",
    )


def name_attempt(row: models.Attempt) -> str:
    """The id of an attempt: ``s2a1``."""
    return anchor_attempt(row.step.index, row.number)


def find_result(run: Run, rows: Sequence[models.Attempt]) -> models.Attempt | None:
    """The attempt whose output is the result of a run: the last one of a run that succeeded."""
    return rows[-1] if rows and run.status == RunStatus.SUCCEEDED else None


def choose_entry(run: Run, rows: Sequence[models.Attempt]) -> str:
    """What opens with the page of a run: its result, the attempt that blocked it, or where it is at."""
    if find_result(run, rows) is not None:
        return RESULT
    if not rows:
        return INPUT
    blocking = anchor_attempt(run.blocking_step or 0, run.blocking_attempt or 0)
    is_there = run.has_ended and any(name_attempt(row) == blocking for row in rows)
    return blocking if is_there else name_attempt(rows[-1])


def _build_axis(run: Run, rows: Sequence[models.Attempt], now: datetime) -> _Axis:
    begun = [row.started_at for row in rows if row.started_at]
    origin = min([*begun, *([run.started_at] if run.started_at else [])], default=now)
    ends = [row.ended_at or (origin if run.has_ended else now) for row in rows]
    seconds = max([(end - origin).total_seconds() for end in ends], default=0.0)
    if rows and not run.has_ended:
        # What goes on still has room before it, and an axis that it doesn't outgrow at once.
        seconds = max(seconds * 1.15, 10.0)
    return _Axis(origin, max(seconds, 0.001))


def _build_step(
    run: Run,
    run_url: str,
    step: KnownStep,
    rows: Sequence[models.Attempt],
    issues: Mapping[int, Sequence[models.Issue]],
    traced: Traced,
    selected: str,
    axis: _Axis,
    now: datetime,
) -> StepLine:
    lines, total = [], 0.0
    earlier: models.Attempt | None = None
    for row in (row for row in rows if row.step.index == step.index):
        state = find_state(row, run)
        is_running = state == RUNNING
        end = now if is_running else row.ended_at or row.started_at
        lasted = max((end - row.started_at).total_seconds(), 0.0) if end and row.started_at else None
        total += lasted or 0.0
        same = traced.same_as.get(row.pk)
        id = name_attempt(row)
        lines.append(
            AttemptLine(
                id=id,
                step=step.index,
                number=row.number,
                url=f"{run_url}{address_attempt(step.index, row.number)}",
                state=state,
                badge=STATES[state],
                usage=view_usage(row),
                counts=list_counts(count_severities(issues.get(row.pk, ()))),
                same_as=same.number if same else None,
                started_at=row.started_at,
                duration=format_elapsed(lasted or 0.0) if is_running else format_duration(lasted),
                seconds=_number(lasted or 0.0) if is_running else "",
                bar=_draw_bar(axis, row.started_at, end, STATES[state].tone),
                waited=_explain_wait(earlier, row),
                is_selected=id == selected,
            )
        )
        earlier = row
    is_last_begun = bool(lines) and rows[-1].step.index == step.index
    state = _find_step_state(lines, step, run, is_last_begun=is_last_begun)
    return StepLine(
        index=step.index,
        name=step.name,
        tool_name=step.tool_name,
        model=step.model,
        is_local=step.is_local,
        max_attempts=step.max_attempts,
        state=state,
        badge=STATES[state],
        attempts=tuple(lines),
        issues=traced.issues.get(step.index, StepIssues()),
        duration=format_duration(total) if lines else "",
    )


def _draw_bar(axis: _Axis, begin: datetime | None, end: datetime | None, tone: str) -> Bar | None:
    if begin is None or end is None:
        return None
    x = min(axis.place(begin), BAR_WIDTH - _MIN_BAR)
    width = min(max(axis.place(end) - x, _MIN_BAR), BAR_WIDTH - x)
    return Bar(f"{_number(x)}%", f"{_number(width)}%", tone)


def _explain_wait(earlier: models.Attempt | None, row: models.Attempt) -> str:
    """How long a step waited after an attempt, and for what; empty if it didn't, or the attempt was its first."""
    if earlier is None or earlier.ended_at is None or row.started_at is None:
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


def _find_step_state(attempts: Sequence[AttemptLine], step: KnownStep, run: Run, *, is_last_begun: bool) -> str:
    if not attempts:
        return "waiting"
    if attempts[-1].state == RUNNING:
        return RUNNING
    decided = [attempt.state for attempt in attempts if attempt.state not in UNDECIDED]
    if decided and decided[-1] == "passed":
        return "passed"
    tries = sum(attempt.is_try for attempt in attempts)
    # Only the step that was begun last can still be open.
    if is_last_begun and (step.max_attempts is None or tries < step.max_attempts):
        if not run.has_ended:
            return "retrying"
        if run.status == RunStatus.CANCELLED:
            return "cancelled"
    last = decided[-1] if decided else attempts[-1].state
    return "failed" if last == "invalid" else last


def _number(value: float) -> str:
    """A number as SVG wants it: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
