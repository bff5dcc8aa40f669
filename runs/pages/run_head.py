"""The head of a run's page: what happened, in one sentence and a strip of figures, and what can be done with it."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from runs import formatting
from runs.history.retry_cost import build_retry_cost
from runs.history.texts import MAX_SENTENCE_LENGTH, cut_text, show_invisible
from runs.models import Priority, Run, RunStatus
from runs.pages.badges import STATES, IssueCounts, find_run_state, list_counts
from runs.pages.outline import Outline, OutlineStep
from runs.retention.policy import effective_policy
from runs.statistics.queue_state import runs_without_worker

MAX_COMMAND_LENGTH = 20_000
"""Characters; a longer command is not offered."""
MAX_NAMED_STEPS = 3
"""Retried steps that the sentence of a succeeded run names."""


def measure_run(run: Run, now: datetime) -> float | None:
    """Seconds from the start of a run to its end, or to now; None before it starts."""
    return None if run.started_at is None else ((run.ended_at or now) - run.started_at).total_seconds()


def build_head(run: Run, outline: Outline, request: HttpRequest, now: datetime) -> dict[str, Any]:
    """What is above the outline of a run, and what the user of ``request`` can do there.

    ``fingerprint`` is another text as soon as the head may look different, but for its figures.
    """
    is_removed = run.outputs_removed_at is not None
    days = effective_policy(run.flow).keep_outputs_days if is_removed else None
    address = request.build_absolute_uri(reverse("api:list_runs"))
    can_rerun = run.has_ended and not is_removed and not run.flow.is_archived
    state = find_run_state(run)
    success = _describe_success(run, outline)
    shown = {
        "badge": STATES[state],
        "accepted": _describe_accepted(run, outline),
        "success": success,
        "verdict": None if success else cut_text(run.end_sentence, MAX_SENTENCE_LENGTH),
        "waiting": view_waiting(run, now),
        "limits": list_limits(run),
        "interrupted": sum(attempt.state == "interrupted" for attempt in outline.attempts),
        "has_no_worker": run.status == RunStatus.QUEUED and runs_without_worker().filter(pk=run.pk).exists(),
        "can_cancel": not run.has_ended and state != "cancelling" and request.user.has_perm("runs.change_run"),
        "can_rerun": can_rerun and request.user.has_perm("runs.add_run"),
    }
    facts = (
        run.labels, run.started_at, run.ended_at, run.status, run.again_of, run.outputs_removed_at, run.flow.title,
        run.flow.is_archived, run.flow.live_version_id,
    )  # fmt: skip
    calls = [(one.step, one.state, one.usage) for step in outline.steps if not step.is_local for one in step.attempts]
    cost = build_retry_cost(calls, {step.index for step in outline.steps if step.state in ("running", "retrying")})
    seconds = measure_run(run, now)
    is_ticking = seconds is not None and not run.has_ended
    return {
        **shown,
        "fingerprint": hashlib.blake2b(repr((shown, facts)).encode(), digest_size=6).hexdigest(),
        "duration": formatting.format_elapsed(seconds or 0.0) if is_ticking else formatting.format_duration(seconds),
        # A script counts on from there.
        "seconds": f"{seconds:.2f}" if is_ticking else "",
        "issues_left": _count_left(outline),
        "fixed": sum(map(_count_fixed, outline.steps)),
        "retry_cost": cost,
        "curl": None if is_removed else build_curl_command(address, run.flow.name, run.version.number, run.input),
        "keeps_outputs": "" if days is None else formatting.format_plural(days, "day"),
    }


def _describe_accepted(run: Run, outline: Outline) -> str:
    """Which outputs were accepted though they did not pass: “best of 4 attempts”; empty if none was."""
    steps = [step for step in outline.steps if step.state == "accepted"]
    if len(steps) == 1:
        return f"best of {formatting.format_plural(steps[0].tries, 'attempt')}"
    return f"best outputs of {formatting.format_plural(run.accepted_count, 'step')}" if run.accepted_count else ""


def _describe_success(run: Run, outline: Outline) -> dict[str, Any] | None:
    """What happened in a run whose steps all passed, as far as its rows say it; None for other runs.

    ``retried`` has names of steps with their attempts, ``left`` is how many issues are left, some ``in_result``.
    """
    if not outline.result_url or run.accepted_count:
        return None
    retried = [(str(cut_text(step.name, 60)), step.tries) for step in outline.steps if step.tries > 1]
    last = next(step.last for step in reversed(outline.steps) if step.last)
    return {
        "steps": len(outline.steps),
        "retries": sum(count - 1 for _, count in retried),
        "retried": retried[:MAX_NAMED_STEPS],
        "more_retried": max(len(retried) - MAX_NAMED_STEPS, 0),
        "left": sum(count for _, count in _count_left(outline)),
        "in_result": sum(count for _, count in last.counts),
    }


def _count_left(outline: Outline) -> IssueCounts:
    """The issues of the attempts that count, by severity."""
    left: Counter[str] = Counter()
    for step in outline.steps:
        left.update({badge.tone: count for badge, count in (step.last.counts if step.last else ())})
    return list_counts(left)


def _count_fixed(step: OutlineStep) -> int:
    """Issues that a later attempt fixed; those of an accepted output are left nonetheless."""
    left = step.last.number if step.last and step.last.is_accepted else None
    return sum(one.number != left for issues in step.issues.fixed.values() for one in issues)


def view_waiting(run: Run, now: datetime) -> dict[str, Any] | None:
    """What a run waits for, until when, and when it gives up; None if it doesn't, or for nothing but a free worker."""
    if run.status != RunStatus.QUEUED:
        return None
    until = run.available_at if run.available_at > now else None
    if run.waiting_since is not None:
        gives_up_at = run.waiting_since + timedelta(seconds=settings.TOOLFLOW_PLUGIN_WAIT)
        return {"sentence": show_invisible(run.waiting_for), "until": until, "gives_up_at": gives_up_at}
    if until is None:
        return None
    sentence = show_invisible(run.waiting_for) or "Waits for the time that it was put off to."
    return {"sentence": sentence, "until": until}


def list_limits(run: Run) -> list[tuple[str, str, datetime | None]]:
    """Priority, budgets with what is used of them, and time limit: an icon, words, and a moment that ends them."""
    limits: list[tuple[str, str, datetime | None]] = []
    if run.priority != Priority.NORMAL:
        icon = "chevron-double-up" if run.priority == Priority.HIGH else "chevron-double-down"
        limits.append((icon, f"{Priority(run.priority).label} priority", None))
    if run.token_budget is not None:
        used, budget = formatting.format_count(run.total_tokens), formatting.format_count(run.token_budget)
        limits.append(("calculator", f"{used} of {budget} tokens", None))
    if run.cost_budget is not None:
        # Nothing used costs nothing; what was used at an unknown price stays unknown.
        cost = Decimal(0) if run.cost is None and not run.unpriced_count else run.cost
        used, budget = formatting.format_cost(cost, run.unpriced_count), formatting.format_budget(run.cost_budget)
        limits.append(("currency-dollar", f"{used} of {budget}", None))
    if run.time_limit is not None:
        length = formatting.format_duration(run.time_limit.total_seconds())
        words = f"Time limit {length.removesuffix(' 00 s').removesuffix(' 00 min').removesuffix(' 00 h')}"
        is_over = run.deadline_at is None or run.has_ended
        limits.append(("clock", words if is_over else f"{words}: until", None if is_over else run.deadline_at))
    return limits


def build_curl_command(address: str, flow_name: str, version: int, input: Any) -> str | None:
    """A shell command that starts a run of a version of ``flow_name`` with ``input``; None if it would be too long.

    ``address`` is where runs are posted to. The token is read from the environment. All of it is ASCII, without quotes,
    exclamation marks, line breaks or invisible characters in the input: every shell reads the input as one word.
    """
    body = json.dumps({"flow": flow_name, "version": version, "input": input}, ensure_ascii=True)
    # Only texts hold these, so that JSON's own escapes say the same.
    for character in "'!\x7f":
        body = body.replace(character, f"\\u{ord(character):04x}")
    command = (
        f"curl -X POST {shlex.quote(address)} \\\n"
        '  -H "Authorization: Bearer $TOOLFLOW_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  --data '{body}'"
    )
    return command if len(command) <= MAX_COMMAND_LENGTH else None
