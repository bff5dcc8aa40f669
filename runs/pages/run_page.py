"""What the run page shows, as plain values: built from rows by ``load_run_page``, laid out by templates.

The page costs three queries however many attempts and issues a run has. Columns that only fold-out parts show (the
request, a step's input, the raw output beside a usable one) are not read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from django.db.models import Case, Exists, F, JSONField, OuterRef, Q, When
from django.http import Http404
from django.utils import timezone

from flows.engine.spec import ModelSettings, StepSpec
from flows.engine.usage import TokenUsage, sum_usage
from runs import models
from runs.models import Run, RunStatus
from runs.pages.attempt_view import RUNNING, AttemptView, view_attempt
from runs.pages.badges import SEVERITIES
from runs.pages.charts import AttemptSpan, AttemptTokens, TokenColumns, Waterfall, plot_tokens, plot_waterfall
from runs.pages.issue_lifecycle import StepIssues, trace_issues
from runs.pages.json_lines import Listing, list_json, show_invisible
from runs.pages.retry_bill import RetryBill, split_bill
from runs.pages.run_limits import Limit, Waiting, list_limits, view_waiting
from runs.pages.told_feedback import find_told_feedback
from runs.queue_figures import unattended_runs


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of the flow with the attempts made so far; ``attempts`` is empty until it begins."""

    id: str
    index: int
    name: str
    tool_name: str
    model: str
    is_local: bool
    max_attempts: int
    state: str
    attempts: tuple[AttemptView, ...]
    usage: TokenUsage
    issues: StepIssues
    """What became of the issues of its attempts."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run ended. ``linked`` leads to the blocking attempt ``anchor`` and stands between ``lead`` and ``rest``."""

    lead: str
    linked: str
    rest: str
    anchor: str


@dataclass(frozen=True)
class RunPage:
    """Everything that the run page and its live updates show."""

    run: Run
    state: str
    steps: tuple[StepView, ...]
    input: Listing
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
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Issues of the run by severity, the gravest first."""
        return run_issue_counts(self.run)

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
        return split_bill(self.steps)

    @cached_property
    def waterfall(self) -> Waterfall | None:
        begun = [attempt for attempt in self.attempts if attempt.started_at]
        origin = min((attempt.started_at for attempt in begun if attempt.started_at), default=self.now)
        if self.run.started_at:
            origin = min(origin, self.run.started_at)
        spans = []
        for attempt in begun:
            begin = attempt.started_at or origin
            end = self.now if attempt.is_running else attempt.ended_at or begin
            spans.append(
                AttemptSpan(
                    step=attempt.step,
                    step_name=self.steps[attempt.step - 1].name,
                    number=attempt.number,
                    outcome=attempt.state,
                    begin=(begin - origin).total_seconds(),
                    end=max((end - origin).total_seconds(), (begin - origin).total_seconds()),
                )
            )
        return plot_waterfall(spans)

    @cached_property
    def token_columns(self) -> TokenColumns | None:
        return plot_tokens(
            [
                AttemptTokens(
                    step=attempt.step,
                    number=attempt.number,
                    prompt=attempt.usage.prompt,
                    cached=attempt.usage.cached,
                    completion=attempt.usage.completion,
                    reasoning=attempt.usage.reasoning,
                    is_known=attempt.usage.reported,
                )
                for attempt in self.attempts
                if attempt.usage is not None and not attempt.is_local
            ]
        )


def run_issue_counts(run: Run) -> tuple[tuple[str, int], ...]:
    """Issues of all attempts of a run by severity, the gravest first."""
    return tuple((name, getattr(run, f"issues_{name}")) for name in SEVERITIES)


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


def load_run_page(run_id: int, now: datetime) -> RunPage:
    """Read a run with all its attempts and issues. Raises ``Run.DoesNotExist``."""
    runs = Run.objects.select_related("flow", "version", "started_by")
    run = runs.annotate(is_unattended=is_unattended()).get(pk=run_id)
    rows = list(
        models.Attempt.objects.filter(step__run_id=run_id)
        .select_related("step", "usage")
        .defer("input", "request", "raw_output")
        .annotate(
            has_raw_output=Q(raw_output__isnull=False),
            has_request=Q(request__isnull=False),
            unusable_output=Case(When(output__isnull=True, then=F("raw_output")), output_field=JSONField(null=True)),
        )
        .order_by("step__index", "number")
    )
    issues: dict[int, list[models.Issue]] = {}
    for issue in models.Issue.objects.filter(attempt__step__run_id=run_id).order_by("attempt_id", "position"):
        issues.setdefault(issue.attempt_id, []).append(issue)
    spec = run.version.flow_spec.resolve(ModelSettings.model_validate(run.model_settings))
    steps = []
    for index, step in enumerate(spec.steps, start=1):
        own = [row for row in rows if row.step.index == index]
        is_last_begun = bool(own) and rows[-1].step.index == index
        traced = trace_issues([(row, issues.get(row.pk, [])) for row in own])
        told = find_told_feedback(spec, index, rows, issues)
        attempts = tuple(
            view_attempt(
                row,
                issues.get(row.pk, []),
                step,
                row is own[-1],
                run,
                lifecycles=traced.lifecycles,
                told=told.get(row.number),
            )
            for row in own
        )
        steps.append(
            StepView(
                id=f"s{index}",
                index=index,
                name=step.name,
                tool_name=step.tool_name or "",
                model=step.model or "",
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
        input=list_json(run.input),
        verdict=_read_verdict(run, spec.steps),
        duration=run_duration(run, now),
        waiting=view_waiting(run, now),
        limits=list_limits(run),
        is_unattended=run.is_unattended,  # type: ignore[attr-defined]  # annotated
        now=now,
    )


def find_run_page(run_id: int) -> RunPage:
    """The page of a run as it is now. Raises ``Http404`` if there is no such run."""
    try:
        return load_run_page(run_id, timezone.now())
    except Run.DoesNotExist as error:
        raise Http404 from error


def is_unattended() -> Exists:
    """Whether a run is ready and no worker is alive, as a column of a query of runs."""
    return Exists(unattended_runs().filter(pk=OuterRef("pk")))


def _step_state(attempts: Sequence[AttemptView], step: StepSpec, run: Run, *, is_last_begun: bool) -> str:
    if not attempts:
        return "waiting"
    if attempts[-1].is_running:
        return RUNNING
    counted = [attempt for attempt in attempts if attempt.state != "interrupted"]
    if counted and counted[-1].state == "passed":
        return "passed"
    # Only the step that was begun last can still be open.
    if is_last_begun and len(counted) < step.max_attempts:
        if not run.has_ended:
            return "retrying"
        if run.status == RunStatus.CANCELLED:
            return "cancelled"
    if not counted:
        return "interrupted"
    last = counted[-1].state
    return "failed" if last == "invalid" else last


def _read_verdict(run: Run, steps: Sequence[StepSpec]) -> Verdict | None:
    sentence = show_invisible(run.end_sentence)
    if not sentence:
        return None
    if run.blocking_step is None or run.blocking_attempt is None:
        return Verdict(sentence, "", "", "")
    anchor = f"s{run.blocking_step}a{run.blocking_attempt}"
    # The planner begins its sentences with the step: that is what the reader will want to click.
    name = steps[run.blocking_step - 1].name if 1 <= run.blocking_step <= len(steps) else ""
    opening = f"Step {run.blocking_step} “{name}”"
    if sentence.startswith(opening):
        return Verdict("", opening, sentence[len(opening) :], anchor)
    return Verdict(f"{sentence} See ", f"step {run.blocking_step}, attempt {run.blocking_attempt}", ".", anchor)
