"""The head of a run's page: what happened, in one sentence and a strip of figures, and what can be done with it."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from runs import formatting
from runs.history.issue_links import address_attempt
from runs.history.lifecycle import StepIssues
from runs.history.retry_cost import RetryBill, bill_run
from runs.history.texts import MAX_SENTENCE_LENGTH, CutText, cut_text, show_invisible
from runs.models import Priority, Run, RunStatus
from runs.pages.badges import SEVERITIES, STATES, Badge, IssueCounts, list_counts
from runs.pages.outline import Outline
from runs.retention.policy import effective_policy

MAX_COMMAND_LENGTH = 20_000
"""Characters; a longer command is not offered."""
MAX_NAMED_STEPS = 3
"""Retried steps that the sentence of a succeeded run names."""


def find_run_state(run: Run) -> str:
    """The status of a run as pages show it: one that is being cancelled says so."""
    return "cancelling" if run.status == RunStatus.RUNNING and run.cancel_requested else str(run.status)


def measure_run(run: Run, now: datetime) -> float | None:
    """Seconds from the start of a run to its end, or to now; None before it starts."""
    return None if run.started_at is None else ((run.ended_at or now) - run.started_at).total_seconds()


def count_run_issues(run: Run) -> IssueCounts:
    """Issues of all attempts of a run by severity."""
    return list_counts({name: getattr(run, f"issues_{name}") for name in SEVERITIES})


@dataclass(frozen=True, slots=True)
class Success:
    """What happened in a run that succeeded."""

    steps: int
    retries: int
    retried: tuple[tuple[str, int], ...]
    """The names of steps that were retried, with how many attempts they needed."""
    more_retried: int
    """Steps that were retried and are not named."""
    left: str
    """A sentence about issues that are left; empty if none is."""


_NOTHING = CutText("")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run ended. ``linked`` leads to the blocking attempt and stands between ``lead`` and ``rest``.

    The sentence may quote what a model wrote: what it ends with is cut where it is long.
    """

    lead: CutText
    linked: str = ""
    rest: CutText = _NOTHING
    address: str = ""
    """Of the blocking attempt, relative to the page of the run."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a queued run waits for."""

    sentence: str
    until: datetime | None
    """When it continues, or is checked again."""
    gives_up_at: datetime | None
    """When it ends as errored if nothing comes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a run. ``icon`` is the name of a solid heroicon; ``moment`` ends the words, if there is one."""

    icon: str
    words: str
    moment: datetime | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the strip; ``seconds`` of what goes on are counted on by a script."""

    term: str
    value: str
    note: str = ""
    seconds: str = ""
    counts: IssueCounts = ()
    is_minor: bool = False
    """Left out where there is little room."""


@dataclass(frozen=True, slots=True)
class RunHead:
    """What stands above the outline of a run."""

    badge: Badge
    success: Success | None
    verdict: Verdict | None
    """The sentence that the run ended with, where ``success`` says nothing."""
    waiting: Waiting | None
    limits: tuple[Limit, ...]
    figures: tuple[Figure, ...]
    retry_cost: RetryBill | None
    interrupted: int
    """How many of its attempts were interrupted."""
    curl: str | None
    """The command that starts such a run over the API; None if it is too long, or the input was removed."""
    has_no_worker: bool
    keeps_outputs: str
    """How long outputs are kept, where those of the run were removed: “30 days”."""
    can_cancel: bool
    can_rerun: bool

    def fingerprint(self, run: Run) -> str:
        """Another text as soon as the head may look different, but for its figures."""
        shown = (
            run.labels, run.started_at, run.ended_at, run.status, run.again_of, run.outputs_removed_at,
            run.flow.title, run.flow.is_archived, run.flow.live_version_id, self.badge, self.verdict, self.waiting,
            self.limits, self.interrupted, self.has_no_worker, self.can_cancel, self.can_rerun,
        )  # fmt: skip
        return hashlib.blake2b(repr(shown).encode(), digest_size=6).hexdigest()


def build_head(run: Run, outline: Outline, request: HttpRequest, now: datetime, *, has_no_worker: bool) -> RunHead:
    """What the head of a run's page shows to the user of ``request``."""
    is_removed = run.outputs_removed_at is not None
    days = effective_policy(run.flow).keep_outputs_days if is_removed else None
    address = request.build_absolute_uri(reverse("api:run-list"))
    can_rerun = run.has_ended and not is_removed and not run.flow.is_archived
    state = find_run_state(run)
    calls = [(one.step, one.state, one.usage) for step in outline.steps if not step.is_local for one in step.attempts]
    cost = bill_run(calls, {step.index for step in outline.steps if step.state in ("running", "retrying")})
    success = _describe_success(run, outline)
    return RunHead(
        badge=STATES[state],
        success=success,
        verdict=None if success else read_verdict(run),
        waiting=view_waiting(run, now),
        limits=list_limits(run),
        figures=_list_figures(run, outline, cost, measure_run(run, now)),
        retry_cost=cost,
        interrupted=sum(attempt.state == "interrupted" for attempt in outline.attempts),
        curl=None if is_removed else build_curl_command(address, run.flow.name, run.version.number, run.input),
        has_no_worker=has_no_worker,
        keeps_outputs="" if days is None else formatting.format_plural(days, "day"),
        can_cancel=not run.has_ended and state != "cancelling" and request.user.has_perm("runs.change_run"),
        can_rerun=can_rerun and request.user.has_perm("runs.add_run"),
    )


def _describe_success(run: Run, outline: Outline) -> Success | None:
    """What happened in a run that succeeded, as far as its rows say it; None for other runs."""
    if not outline.result_url:
        return None
    retried = [(str(cut_text(step.name, 60)), step.tries) for step in outline.steps if step.tries > 1]
    last = [step.last for step in outline.steps if step.last]
    whole = sum(count for attempt in last for _, count in attempt.counts)
    of_result = last[-1].counts
    in_result = sum(count for _, count in of_result)
    verb = "is" if whole == 1 else "are"
    left = ""
    if in_result and in_result == whole:
        how_many = "One" if whole == 1 else formatting.format_count(whole)
        severity = f" {of_result[0][0].tone}" if len(of_result) == 1 else ""
        left = f"{how_many}{severity} issue{'s'[: whole - 1]} {verb} left in the result."
    elif whole:
        of_them = f", {formatting.format_count(in_result)} of them in the result" if in_result else ""
        left = f"{formatting.format_plural(whole, 'issue')} {verb} left{of_them or ' in earlier steps'}."
    return Success(
        steps=len(outline.steps),
        retries=sum(count - 1 for _, count in retried),
        retried=tuple(retried[:MAX_NAMED_STEPS]),
        more_retried=max(len(retried) - MAX_NAMED_STEPS, 0),
        left=left,
    )


def _list_figures(run: Run, outline: Outline, cost: RetryBill | None, seconds: float | None) -> tuple[Figure, ...]:
    count = formatting.format_count
    is_ticking = seconds is not None and not run.has_ended
    retries = f"{count(run.retry_count)} {'retry' if run.retry_count == 1 else 'retries'}"
    cached = f", {count(run.cached_tokens)} cached" if run.cached_tokens else ""
    reasoning = f", {count(run.reasoning_tokens)} reasoning" if run.reasoning_tokens else ""
    price_note = "simulated" if run.is_simulated else ""
    if run.unpriced_count and not run.is_simulated:
        price_note = f"{formatting.format_plural(run.unpriced_count, 'attempt')} unpriced"
    elif cost is not None and cost.is_by_cost:
        spent = sum((part.cost or Decimal(0) for name, part in cost.used.items() if name != "first"), Decimal(0))
        price_note = f"{formatting.format_cost(spent)} retries"
    left: Counter[str] = Counter()
    for step in outline.steps:
        left.update({badge.tone: count for badge, count in (step.last.counts if step.last else ())})
    fixed = sum(len(issues) for step in outline.steps for issues in step.issues.fixed.values())
    shown = list_counts(left)
    return (
        Figure("Steps", str(run.steps_passed), f"of {run.step_count} passed", is_minor=True),
        Figure("Attempts", count(run.attempt_count), retries if run.retry_count else ""),
        Figure(
            "Duration",
            formatting.format_elapsed(seconds or 0.0) if is_ticking else formatting.format_duration(seconds),
            f"{outline.queued} queued" if outline.queued else "",
            seconds=f"{seconds:.2f}" if is_ticking else "",
        ),
        Figure(
            "Tokens",
            count(run.prompt_tokens),
            f"in{cached} · {count(run.completion_tokens)} out{reasoning}",
            is_minor=True,
        ),
        Figure("Cost", formatting.format_cost(run.cost, run.unpriced_count), price_note),
        Figure("Issues left", "" if shown else "None", f"{count(fixed)} fixed" if fixed else "", counts=shown),
    )


_CONTINUES = r" did not pass in \d| took longer than | would take longer than |, attempt \d+: "
"""How the planner's sentences continue after the step; names may hold quotation marks of their own."""


def read_verdict(run: Run) -> Verdict | None:
    """The sentence that a run ended with, or the beginning of a long one; None for one that hasn't ended."""
    cut = cut_text(run.end_sentence, MAX_SENTENCE_LENGTH)
    sentence = cut.text
    if not sentence:
        return None
    if run.blocking_step is None or run.blocking_attempt is None:
        return Verdict(cut)
    address = address_attempt(run.blocking_step, run.blocking_attempt)
    # The planner begins its sentences with the step: that is what the reader will want to click.
    begin = f"Step {run.blocking_step} “"
    opening = re.match(f"{begin}.*?”(?={_CONTINUES})", sentence, re.DOTALL) or re.match(f"{begin}[^”]*”", sentence)
    if opening:
        return Verdict(_NOTHING, opening[0], replace(cut, text=sentence[opening.end() :]), address)
    place = f"step {run.blocking_step}, attempt {run.blocking_attempt}"
    return Verdict(cut, place, CutText("."), address)


def view_waiting(run: Run, now: datetime) -> Waiting | None:
    """What a run waits for; None if it doesn't, or for nothing but a free worker."""
    if run.status != RunStatus.QUEUED:
        return None
    until = run.available_at if run.available_at > now else None
    if run.waiting_since is not None:
        gives_up_at = run.waiting_since + timedelta(seconds=settings.TOOLFLOW_PLUGIN_WAIT)
        return Waiting(show_invisible(run.waiting_for), until, gives_up_at)
    if until is None:
        return None
    return Waiting(show_invisible(run.waiting_for) or "Waits for the time that it was put off to.", until, None)


def list_limits(run: Run) -> tuple[Limit, ...]:
    """Priority, budgets with what is used of them, and time limit, as far as the run has them."""
    limits = []
    if run.priority != Priority.NORMAL:
        icon = "chevron-double-up" if run.priority == Priority.HIGH else "chevron-double-down"
        limits.append(Limit(icon, f"{Priority(run.priority).label} priority"))
    if run.token_budget is not None:
        used, budget = formatting.format_count(run.total_tokens), formatting.format_count(run.token_budget)
        limits.append(Limit("calculator", f"{used} of {budget} tokens"))
    if run.cost_budget is not None:
        # Nothing used costs nothing; what was used at an unknown price stays unknown.
        cost = Decimal(0) if run.cost is None and not run.unpriced_count else run.cost
        used, budget = formatting.format_cost(cost, run.unpriced_count), formatting.format_budget(run.cost_budget)
        limits.append(Limit("currency-dollar", f"{used} of {budget}"))
    if run.time_limit is not None:
        length = formatting.format_duration(run.time_limit.total_seconds())
        words = f"Time limit {length.removesuffix(' 00 s').removesuffix(' 00 min').removesuffix(' 00 h')}"
        if run.deadline_at is None or run.has_ended:
            limits.append(Limit("clock", words))
        else:
            limits.append(Limit("clock", f"{words}: until", run.deadline_at))
    return tuple(limits)


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


def list_issue_summaries(outline: Outline, run_url: str) -> list[tuple[int, list[tuple[str, str, str]]]]:
    """What became of the issues of each step that had any: words, what is linked in them, and where to."""
    return [(step.index, _link_parts(step.issues, run_url)) for step in outline.steps if step.issues.parts]


def _link_parts(issues: StepIssues, run_url: str) -> list[tuple[str, str, str]]:
    return [(part.words, part.linked, f"{run_url}{part.address}" if part.address else "") for part in issues.parts]
