"""The outline of a run: its result, its input, its steps with their attempts, and when each of them ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from flows.engine.errors import ModelErrorCode
from flows.engine.history import COUNTED, UNDECIDED, UNREPORTED_USAGE, Outcome, TokenUsage, sum_usage
from flows.engine.spec import FlowSpec, StepSpec
from runs import models
from runs.formatting import format_cost, format_count, format_duration, format_elapsed, format_number, format_plural
from runs.history.issues import StepIssues, address_attempt, anchor_attempt
from runs.models import Run, RunStatus
from runs.pages.attempts import RUNNING, Traced, count_severities, find_state
from runs.pages.badges import STATES
from runs.stored_history import read_usage

RESULT, INPUT = "result", "s0a1"
"""The ids of these two entries; an attempt has ``s2a1``."""

_MIN_BAR = 3.0
"""Per cent of the column of bars."""
_STRIP_WIDTH, _STRIP_GAP = 360, 4


def build_outline(
    run: Run,
    run_url: str,
    spec: FlowSpec | None,
    rows: Sequence[models.Attempt],
    issues: Mapping[int, Sequence[models.Issue]],
    traced: Traced,
    selected: str,
    now: datetime,
) -> dict[str, Any]:
    """All entries of a run, from the rows of its page; without a ``spec`` steps are known as far as they began.

    ``result_url`` is empty while there is no result, ``axis`` is what the whole width of bars stands for, and
    ``queued`` how long the run waited before its first attempt, empty if it hardly did. A live update continues from
    the ``cursor``: the last attempt, ``2.3``, with ``r`` while it runs. ``strip`` has all attempts beside each other
    for phones: place and width of each, which are equal, and the attempt.
    """
    traced_issues, same_as = traced
    origin, seconds = _measure(run, rows, now)
    by_step: dict[int, list[dict[str, Any]]] = {}
    lasted: dict[int, float] = {}
    for earlier, row in zip((None, *rows), rows, strict=False):
        end = now if find_state(row, run) == RUNNING else row.ended_at or row.started_at
        length = max((end - row.started_at).total_seconds(), 0.0) if end and row.started_at else None
        lasted[row.step.index] = lasted.get(row.step.index, 0.0) + (length or 0.0)
        x = width = 0.0
        if row.started_at:
            x = min(100 * (row.started_at - origin).total_seconds() / seconds, 100 - _MIN_BAR)
            width = min(max(100 * (length or 0.0) / seconds, _MIN_BAR), 100 - x)
        line = {
            **_describe_attempt(row, run, length, issues.get(row.pk, ()), same_as.get(row.pk)),
            "url": f"{run_url}{address_attempt(row.step.index, row.number)}",
            "is_selected": name_attempt(row) == selected,
            "waited": _explain_wait(earlier, row),
            "bar_x": f"{format_number(x)}%",
            "bar_width": f"{format_number(width)}%" if width else "",
        }
        by_step.setdefault(row.step.index, []).append(line)
    names = {row.step.index: row.step.name for row in rows}
    steps = []
    for index in range(1, (len(spec.steps) if spec else max(run.step_count, *names, 0)) + 1):
        step, lines = spec.step(index) if spec else None, by_step.get(index, [])
        is_last_begun = bool(rows) and rows[-1].step.index == index
        state = _find_step_state(lines, step.max_attempts if step else None, run, is_last_begun=is_last_begun)
        steps.append(
            {
                **_describe_step(step, lines),
                "index": index,
                "name": step.name if step else names.get(index, f"Step {index}"),
                "state": state,
                "badge": STATES[state],
                "issues": traced_issues.get(index, StepIssues()),
                "duration": format_duration(lasted[index]) if lines else "",
            }
        )
    attempts = [line for one in steps for line in one["attempts"]]
    share = _STRIP_WIDTH / max(len(attempts), 1)
    width_text = format_number(share - min(_STRIP_GAP, share / 3))
    last = attempts[-1] if attempts else None
    queued = (origin - run.created_at).total_seconds() if rows else 0.0
    return {
        "selected": selected,
        "result_url": f"{run_url}?show=result" if find_result(run, rows) else "",
        "input_url": f"{run_url}{address_attempt(0, 1)}",
        "steps": steps,
        "attempts": attempts,
        "has_issues": any(one["issues"].parts for one in steps),
        "axis": format_duration(seconds) if rows else "",
        "queued": format_duration(queued) if queued >= 1 else "",
        "strip": [(format_number(place * share), width_text, line) for place, line in enumerate(attempts)],
        "cursor": f"{last['step']}.{last['number']}{'r' if last['state'] == RUNNING else ''}" if last else "0.0",
    }


def _describe_attempt(
    row: models.Attempt,
    run: Run,
    length: float | None,
    issues: Sequence[models.Issue],
    same: models.Attempt | None,
) -> dict[str, Any]:
    """An attempt in the outline, which took ``length`` seconds so far; a script counts on from ``seconds``.

    ``same_as`` is the first of the attempts right before it that gave this very output. ``label`` is what it is called
    where its outcome is shown by an icon: “Attempt 2: Failed, 1 high”. ``cost`` is empty where it is not known.
    """
    state, usage, counts = find_state(row, run), view_usage(row), count_severities(issues)
    badge = STATES["accepted" if row.is_accepted else state]
    found = "".join(f", {count} {severity.tone}" for severity, count in counts)
    return {
        "id": name_attempt(row),
        "step": row.step.index,
        "number": row.number,
        "state": state,
        "badge": badge,
        # While it runs it is taken for a try of its step.
        "is_try": state == RUNNING or state in COUNTED,
        "is_accepted": row.is_accepted,
        "label": f"Attempt {row.number}: {badge.word}{found}",
        "usage": usage,
        "cost": format_cost(usage.cost, usage.unpriced) if usage and usage.cost is not None else "",
        "counts": counts,
        "same_as": same.number if same else None,
        "duration": format_elapsed(length or 0.0) if state == RUNNING else format_duration(length),
        "seconds": format_number(length or 0.0) if state == RUNNING else "",
    }


def _describe_step(step: StepSpec | None, attempts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A step with the attempts made so far; ``last`` is the one that counts: the accepted one, or the last.

    ``used`` is how many of its attempts it has used: “2 of 4 attempts, 1 interrupted”; ``spent`` its model with what
    its attempts used: “gpt-5, 900 tokens, $0.0124”.
    """
    most, model = step.max_attempts if step else None, (step and step.model) or ""
    tries = sum(attempt["is_try"] for attempt in attempts)
    others = Counter(attempt["badge"].word.lower() for attempt in attempts if not attempt["is_try"])
    used = format_plural(tries, "attempt") if most is None else f"{tries} of {format_plural(most, 'attempt')}"
    spent = [model] if model else []
    if attempts:
        usage = sum_usage(attempt["usage"] for attempt in attempts if attempt["usage"])
        spent.append(f"{format_count(usage.total)} tokens")
        spent += [format_cost(usage.cost, usage.unpriced)] if usage.cost is not None else []
    elif most:
        spent.append(f"up to {format_plural(most, 'attempt')}")
    is_local = step is not None and step.is_local
    return {
        "tool_name": (step and step.tool_name) or "",
        "model": model,
        "is_local": is_local,
        "attempts": attempts,
        "last": next((one for one in attempts if one["is_accepted"]), attempts[-1] if attempts else None),
        "tries": tries,
        "used": ", ".join([used, *(f"{count} {word}" for word, count in others.items())]),
        "spent": "local step, no model call" if is_local else ", ".join(spent),
    }


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


def _find_step_state(attempts: Sequence[dict[str, Any]], most: int | None, run: Run, *, is_last_begun: bool) -> str:
    if not attempts:
        return "waiting"
    if attempts[-1]["state"] == RUNNING:
        return RUNNING
    if any(attempt["is_accepted"] for attempt in attempts):
        return "accepted"
    decided = [attempt["state"] for attempt in attempts if attempt["state"] not in UNDECIDED]
    if decided and decided[-1] == "passed":
        return "passed"
    # Only the step that was begun last can still be open.
    if is_last_begun and (most is None or sum(attempt["is_try"] for attempt in attempts) < most):
        if not run.has_ended:
            return "retrying"
        if run.status == RunStatus.CANCELLED:
            return "cancelled"
    last = decided[-1] if decided else attempts[-1]["state"]
    return "failed" if last == "invalid" else last
