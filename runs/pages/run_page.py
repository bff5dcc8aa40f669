"""What the run page shows, as plain values: built from rows by ``load_run_page``, laid out by templates.

The page costs four queries however many attempts and issues a run has, one more where issues may have moved with items
of lists, and one where there are so many that only those that are shown are read whole. Outputs are read of attempts
that come open with the page, as far as there is room for them; what only fold-out parts show (the request, a step's
input, the raw output beside a usable one) is not read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from django.http import Http404
from django.urls import reverse
from django.utils import timezone

from flows.engine.history import UNDECIDED, TokenUsage, sum_usage
from flows.engine.spec import FlowSpec
from runs import models
from runs.history.feedback import find_told_feedback
from runs.history.issue_links import MOST_ISSUES, anchor_attempt, list_page
from runs.history.json_lines import Listing, list_json
from runs.history.lifecycle import StepIssues
from runs.history.retry_cost import RetryBill, bill_run
from runs.models import Run, RunStatus
from runs.pages.attempt_rows import (
    complete_issues,
    find_bases,
    find_run,
    list_attempt_rows,
    list_issues,
    name_attempt,
    read_outputs,
    weigh_texts,
)
from runs.pages.attempt_view import RUNNING, AttemptView, view_attempt
from runs.pages.badges import SEVERITIES
from runs.pages.known_steps import KnownStep, list_steps, read_spec
from runs.pages.opened_attempts import Openable, OpenedAttempts, choose_open
from runs.pages.run_limits import Limit, Waiting, list_limits, view_waiting
from runs.pages.traced_issues import trace_steps
from runs.pages.verdict import Verdict, read_verdict
from runs.pages.wanted_attempts import Wanted
from runs.retention.policy import effective_policy
from runs.statistics.queue_state import runs_without_worker


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of the flow with the attempts made so far; ``attempts`` is empty until it begins."""

    id: str
    index: int
    name: str
    tool_name: str
    model: str
    is_local: bool
    max_attempts: int | None
    """None where it is not known."""
    state: str
    attempts: tuple[AttemptView, ...]
    usage: TokenUsage
    issues: StepIssues
    """What became of the issues of its attempts."""

    @property
    def counted(self) -> int:
        """How many of its attempts count towards ``max_attempts``."""
        return sum(attempt.is_try for attempt in self.attempts)

    @property
    def uncounted(self) -> Counter[str]:
        """How many of its other attempts there are by state: errored, interrupted or cancelled."""
        return Counter(attempt.state for attempt in self.attempts if not attempt.is_try)


@dataclass(frozen=True)
class RunPage:
    """Everything that the run page and its live updates show."""

    run: Run
    state: str
    steps: tuple[StepView, ...]
    is_readable: bool
    """Whether the version of the run can be read: else its steps are known as far as they have begun."""
    verdict: Verdict | None
    duration: float | None
    waiting: Waiting | None
    limits: tuple[Limit, ...]
    is_unattended: bool
    """The run is ready, and no worker is alive."""
    now: datetime

    @property
    def attempts(self) -> tuple[AttemptView, ...]:
        return tuple(attempt for step in self.steps for attempt in step.attempts)

    @property
    def interrupted(self) -> int:
        """How many of its attempts were interrupted."""
        return sum(step.uncounted["interrupted"] for step in self.steps)

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Issues of the run by severity, the gravest first."""
        return run_issue_counts(self.run)

    @cached_property
    def input(self) -> Listing:
        """The input of the run, as lines."""
        return list_json(self.run.input)

    @cached_property
    def keeps_outputs(self) -> str:
        """For how long runs of the flow keep their outputs, in words; empty if for as long as they are there."""
        days = effective_policy(self.run.flow).keep_outputs_days
        return "" if days is None else f"{days:,} day{'s' if days != 1 else ''}"

    @cached_property
    def address(self) -> str:
        return address_run(self.run)

    @property
    def document_address(self) -> str:
        """Of the whole run as JSON."""
        return f"{self.address.removesuffix('/')}.json"

    @cached_property
    def cursor(self) -> str:
        """The last attempt on the page, ``2.3``, with ``r`` while it runs: what a live update goes on from."""
        if not self.attempts:
            return "0.0"
        last = self.attempts[-1]
        return f"{last.step}.{last.number}{'r' if last.is_running else ''}"

    @cached_property
    def bill(self) -> RetryBill | None:
        """What retries cost, None for a run that had none."""
        return bill_run(self.steps)


def run_issue_counts(run: Run) -> tuple[tuple[str, int], ...]:
    """Issues of all attempts of a run by severity, the gravest first."""
    return tuple((name, getattr(run, f"issues_{name}")) for name in SEVERITIES)


def address_run(run: Run) -> str:
    """Where the page of a run is; those of its attempts are below."""
    return reverse("runs:page", args=[run.pk])


def run_state(run: Run) -> str:
    """The status of a run as pages show it: one that is being cancelled says so."""
    if run.status == RunStatus.RUNNING and run.cancel_requested:
        return "cancelling"
    return str(run.status)


def run_duration(run: Run, now: datetime) -> float | None:
    """Seconds from the start of a run to its end, or to now; None before it starts."""
    if run.started_at is None:
        return None
    return ((run.ended_at or now) - run.started_at).total_seconds()


def load_run_page(run_id: int, now: datetime, wanted: Wanted | None = None) -> RunPage:
    """Read a run with all its attempts and issues, or with what is ``wanted``. Raises ``Run.DoesNotExist``."""
    wanted = wanted or Wanted()
    run = find_run(run_id)
    rows = list_attempt_rows(run_id)
    spec = read_spec(run)
    told_of = wanted.list_steps(rows)
    issues = list_issues(
        run_id,
        steps=None if told_of is None else _find_needed(spec, told_of),
        is_brief=sum(count for _, count in run_issue_counts(run)) > MOST_ISSUES,
    )
    opened = _open_attempts(run, rows, issues, wanted)
    loaded = [row for row in rows if name_attempt(row) in opened.loaded]
    pages = {row.pk: wanted.issue_page if name_attempt(row) == wanted.only else 1 for row in loaded}
    complete_issues(issue for row in loaded for issue in list_page(issues.get(row.pk, ()), pages[row.pk]))
    bases = find_bases(rows)
    compared = {row.pk for row in loaded if name_attempt(row) in wanted.compared}
    read_outputs({*loaded, *(bases[key] for key in compared if key in bases)})
    address = address_run(run)
    told_rows = [row for row in rows if told_of is None or row.step.index in told_of]
    all_traced = trace_steps(told_rows, issues, has_texts=run.outputs_removed_at is None)
    steps = []
    for step in list_steps(run, spec, rows):
        own = [row for row in rows if row.step.index == step.index]
        is_last_begun = bool(own) and rows[-1].step.index == step.index
        traced = all_traced.get(step.index, StepIssues())
        is_told = run.outputs_removed_at is None and any(row.pk in pages for row in own)
        told = find_told_feedback(spec, step.index, rows, issues) if is_told and spec is not None else {}
        attempts = tuple(
            view_attempt(
                row,
                issues.get(row.pk, []),
                step,
                name_attempt(row) in opened.open,
                run,
                address=f"{address}steps/{step.index}/attempts/{row.number}/",
                traced=traced,
                told=told.get(row.number),
                is_loaded=row.pk in pages,
                base=bases.get(row.pk),
                is_compared=name_attempt(row) in wanted.compared,
                issue_page=pages.get(row.pk, 1),
            )
            for row in own
        )
        steps.append(
            StepView(
                id=f"s{step.index}",
                index=step.index,
                name=step.name,
                tool_name=step.tool_name,
                model=step.model,
                is_local=step.is_local,
                max_attempts=step.max_attempts,
                state=_step_state(attempts, step, run, is_last_begun=is_last_begun),
                attempts=attempts,
                usage=sum_usage(attempt.usage for attempt in attempts if attempt.usage),
                issues=traced,
            )
        )
    return RunPage(
        run=run,
        state=run_state(run),
        steps=tuple(steps),
        is_readable=spec is not None,
        verdict=read_verdict(run),
        duration=run_duration(run, now),
        waiting=view_waiting(run, now),
        limits=list_limits(run),
        is_unattended=_is_unattended(run),
        now=now,
    )


def find_run_page(run_id: int, wanted: Wanted | None = None) -> RunPage:
    """The page of a run as it is now; see ``load_run_page``. Raises ``Http404`` if there is no such run."""
    try:
        return load_run_page(run_id, timezone.now(), wanted)
    except Run.DoesNotExist as error:
        raise Http404 from error


def _find_needed(spec: FlowSpec | None, steps: Collection[int]) -> Collection[int]:
    """These steps, and those that their models are told of."""
    known = [spec.step(index) for index in steps if index <= len(spec.steps)] if spec is not None else []
    return {*steps, *(index for step in known for index in step.include_results if index < max(steps))}


def _is_unattended(run: Run) -> bool:
    # Only a run in the queue waits for anybody.
    return run.status == RunStatus.QUEUED and runs_without_worker().filter(pk=run.pk).exists()


def _open_attempts(
    run: Run, rows: Sequence[models.Attempt], issues: Mapping[int, Sequence[models.Issue]], wanted: Wanted
) -> OpenedAttempts:
    if wanted.only is not None:
        return OpenedAttempts.just(wanted.only)
    latest = {row.step_id: row.pk for row in rows}.values()
    candidates = [
        Openable(
            id=name_attempt(row),
            is_latest=row.pk in latest,
            issues=min(len(issues.get(row.pk, ())), MOST_ISSUES),
            issue_bytes=sum(weigh_texts(issue) for issue in list_page(issues.get(row.pk, ()))),
            stored_bytes=row.stored_bytes,  # type: ignore[attr-defined]  # annotated
        )
        for row in rows
        if wanted.includes(row)
    ]
    blocking = anchor_attempt(run.blocking_step or 0, run.blocking_attempt or 0)
    return choose_open(candidates, blocking=blocking, asked=wanted.compared)


def _step_state(attempts: Sequence[AttemptView], step: KnownStep, run: Run, *, is_last_begun: bool) -> str:
    if not attempts:
        return "waiting"
    if attempts[-1].is_running:
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
