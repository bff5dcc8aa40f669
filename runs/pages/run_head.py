"""The head of a run's page: what happened, in one sentence a strip of figures, and what can be done with it."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from runs import formatting
from runs.history.issue_links import address_attempt, anchor_attempt
from runs.history.lifecycle import StepIssues
from runs.history.retry_cost import RetryBill, bill_run
from runs.history.texts import MAX_SENTENCE_LENGTH, CutText, cut_text, show_invisible
from runs.models import Priority, Run, RunStatus
from runs.pages.attempt_view import SeverityCount, list_counts
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.pages.outline import Outline
from runs.retention.policy import effective_policy

LONGEST_COMMAND = 20_000
"""Characters; a longer command is not offered."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run ended. ``linked`` leads to the blocking attempt ``anchor`` and stands between ``lead`` and ``rest``.

    The sentence may quote what a model wrote: what it ends with is cut where it is long.
    """

    lead: CutText
    linked: str
    rest: CutText
    anchor: str
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
    counts: tuple[SeverityCount, ...] = ()
    is_minor: bool = False
    """Left out where there is little room."""


@dataclass(frozen=True, slots=True)
class RunHead:
    """What stands above the outline of a run."""

    badge: Badge
    verdict: Verdict | None
    waiting: Waiting | None
    limits: tuple[Limit, ...]
    figures: tuple[Figure, ...]
    retry_cost: RetryBill | None
    interrupted: int
    """How many of its attempts were interrupted."""
    curl: str | None
    """The command that starts such a run over the API; None if it is too long, or the input was removed."""
    is_unattended: bool
    keeps_outputs: str
    can_cancel: bool
    can_rerun: bool

    def fingerprint(self, run: Run) -> str:
        """Another text as soon as the head may look different, but for its figures."""
        shown = (
            run.labels, run.started_at, run.ended_at, run.status, run.again_of, run.outputs_removed_at,
            run.flow.title, run.flow.is_archived, run.flow.live_version_id, self.badge, self.verdict, self.waiting,
            self.limits, self.interrupted, self.is_unattended, self.can_cancel, self.can_rerun,
        )  # fmt: skip
        return hashlib.blake2b(repr(shown).encode(), digest_size=6).hexdigest()


def build_head(
    run: Run,
    outline: Outline,
    request: HttpRequest,
    now: datetime,
    *,
    state: str,
    seconds: float | None,
    is_unattended: bool,
) -> RunHead:
    """What the head of a run's page shows to the user of ``request``; ``seconds`` is how long the run lasted so far."""
    is_removed = run.outputs_removed_at is not None
    days = effective_policy(run.flow).keep_outputs_days if is_removed else None
    address = request.build_absolute_uri(reverse("api:run-list"))
    may_rerun = run.has_ended and not is_removed and request.user.has_perm("runs.add_run")
    states = [attempt.state for attempt in outline.attempts]
    calls = [(one.step, one.state, one.usage) for step in outline.steps if not step.is_local for one in step.attempts]
    cost = bill_run(calls, {step.index for step in outline.steps if step.state in ("running", "retrying")})
    return RunHead(
        badge=STATES[state],
        verdict=read_verdict(run),
        waiting=view_waiting(run, now),
        limits=list_limits(run),
        figures=_list_figures(run, outline, cost, seconds),
        retry_cost=cost,
        interrupted=states.count("interrupted"),
        curl=None if is_removed else build_curl_command(address, run.flow.name, run.version.number, run.input),
        is_unattended=is_unattended,
        keeps_outputs="" if days is None else formatting.format_plural(days, "day"),
        can_cancel=not run.has_ended and state != "cancelling" and request.user.has_perm("runs.change_run"),
        can_rerun=may_rerun and not run.flow.is_archived,
    )


def _list_figures(run: Run, outline: Outline, cost: RetryBill | None, seconds: float | None) -> tuple[Figure, ...]:
    count = formatting.format_count
    is_ticking = seconds is not None and not run.has_ended
    retries = "1 retry" if run.retry_count == 1 else f"{count(run.retry_count)} retries"
    cached = f", {count(run.cached_tokens)} cached" if run.cached_tokens else ""
    reasoning = f", {count(run.reasoning_tokens)} reasoning" if run.reasoning_tokens else ""
    price_note = "simulated" if run.is_simulated else ""
    if run.unpriced_count and not run.is_simulated:
        price_note = f"{formatting.format_plural(run.unpriced_count, 'attempt')} unpriced"
    elif cost is not None and cost.is_by_cost:
        spent = sum((part.cost or Decimal(0) for name, part in cost.used.items() if name != "first"), Decimal(0))
        price_note = f"{formatting.format_cost(spent)} retries"
    left: dict[str, int] = {}
    fixed = 0
    for step in outline.steps:
        for entry in step.last.counts if step.last else ():
            left[entry.name] = left.get(entry.name, 0) + entry.count
        fixed += sum(map(len, step.issues.fixed.values()))
    shown = list_counts((name, left.get(name, 0)) for name in SEVERITIES)
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


_NOTHING = CutText("")
_CONTINUES = r" did not pass in \d| took longer than | would take longer than |, attempt \d+: "
"""How the planner's sentences continue after the step; names may hold quotation marks of their own."""


def read_verdict(run: Run, *, most: int = MAX_SENTENCE_LENGTH) -> Verdict | None:
    """The sentence that a run ended with, or its first ``most`` characters; None for one that hasn't ended."""
    cut = cut_text(run.end_sentence, most)
    sentence = cut.text
    if not sentence:
        return None
    if run.blocking_step is None or run.blocking_attempt is None:
        return Verdict(cut, "", _NOTHING, "")
    anchor = anchor_attempt(run.blocking_step, run.blocking_attempt)
    address = address_attempt(run.blocking_step, run.blocking_attempt)
    # The planner begins its sentences with the step: that is what the reader will want to click.
    begin = f"Step {run.blocking_step} “"
    opening = re.match(f"{begin}.*?”(?={_CONTINUES})", sentence, re.DOTALL) or re.match(f"{begin}[^”]*”", sentence)
    if opening:
        return Verdict(_NOTHING, opening[0], replace(cut, text=sentence[opening.end() :]), anchor, address)
    place = f"step {run.blocking_step}, attempt {run.blocking_attempt}"
    return Verdict(cut, place, CutText("."), anchor, address)


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
    return command if len(command) <= LONGEST_COMMAND else None


@dataclass(frozen=True, slots=True)
class LeftIssues:
    """What became of the issues of one step, for the list beside its attempts."""

    step: int
    parts: tuple[tuple[str, str, str], ...]
    """Words, what is linked in them, and where to."""


def list_issue_summaries(outline: Outline) -> tuple[LeftIssues, ...]:
    """What became of the issues of each step that had any."""
    return tuple(
        LeftIssues(step.index, _link_parts(step.issues, outline.run_url)) for step in outline.steps if step.issues.parts
    )


def _link_parts(issues: StepIssues, run_url: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((part.words, part.linked, f"{run_url}{part.address}" if part.address else "") for part in issues.parts)
