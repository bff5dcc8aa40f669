"""Counting runs that have ended into daily rows, from their stored history without inputs, outputs and requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from flows.engine.audits import AUDIT_ERROR
from flows.engine.history import COUNTED, Outcome
from flows.models import FlowVersion
from runs.attempt_rules import FIRST, USEFUL, WASTED, Check, classify_attempts, find_check, find_reached
from runs.models import Attempt, DailyAudits, DailyIssues, DailyRuns, DailySteps, Issue, Run, RunStatus
from runs.statistics.daily_rows import DailyRows, Key
from runs.statistics.sums import find_bucket

MAX_MODEL_LENGTH = 200

Source = tuple[str, str]
"""What raises an issue: an audit, by its name; or ToolFlow itself, by an empty name and the issue's code."""

_PART_COLUMNS = {
    FIRST: ("first_tokens", "first_cost"),
    USEFUL: ("useful_retry_tokens", "useful_retry_cost"),
    WASTED: ("wasted_retry_tokens", "wasted_retry_cost"),
}


@dataclass(frozen=True, slots=True)
class AskedModels:
    """The models that a version names; steps that name none ask that of the run's settings (``uses_settings``).

    They are known before the first attempt, so that a run counts for the same model wherever it ends.
    """

    named: frozenset[str]
    uses_settings: bool

    def list_models(self, settings: Any) -> list[str]:
        """The models that a run with these settings asks."""
        model = settings.get("model") if self.uses_settings else None
        return sorted(self.named | {model} if model else self.named)


class EndedIssue(NamedTuple):
    audit: str
    code: str
    severity: str

    @property
    def source(self) -> Source:
        return (self.audit, "") if self.audit else ("", self.code)


@dataclass(slots=True)
class EndedAttempt:
    """One attempt with what it used, zeros if that is unknown, and its issues."""

    step: int
    step_name: str
    outcome: str
    model: str
    prompt: int
    completion: int
    cached: int
    reasoning: int
    total: int
    cost: Decimal
    unpriced: int
    issues: list[EndedIssue] = field(default_factory=list)

    def list_sources(self) -> dict[Source, Check]:
        """What raised the issues, and at which check."""
        return {
            issue.source: Check.AUDITS if issue.audit else find_check(self.outcome, issue.code) for issue in self.issues
        }


EndedRun = tuple[Any, list[EndedAttempt]]
"""A row of ``Run``, and its attempts in the order of step and number."""


def count_runs(run_ids: Collection[int]) -> None:
    """Count runs that have ended, within the transaction that marks them as counted and holds ``locks.STATISTICS``."""
    rows = DailyRows()
    add_runs(rows, load_ended_runs(run_ids))
    rows.add_to_stored()


def load_ended_runs(run_ids: Collection[int]) -> list[EndedRun]:
    """Those of the runs that have ended, in order of their numbers. Three queries."""
    columns = ("flow_id", "version_id", "version__digest", "model_settings", "is_simulated", "status", "accepted_count")
    ended = Run.objects.filter(pk__in=run_ids, ended_at__isnull=False).order_by("pk")
    rows = ended.values_list("pk", *columns, "started_at", "ended_at", named=True)
    runs: dict[int, EndedRun] = {row.pk: (row, []) for row in rows}
    attempts = {}
    usage = ("prompt", "completion", "cached", "reasoning", "total", "cost", "unpriced")
    found = Attempt.objects.filter(step__run_id__in=runs).order_by("step__run_id", "step__index", "number")
    about = ("step__index", "step__name", "outcome", "model", *(f"usage__{name}" for name in usage))
    for pk, run_id, step, name, outcome, model, *used in found.values_list("pk", "step__run_id", *about):
        known: list[Any] = [value or 0 for value in used]
        attempts[pk] = EndedAttempt(step, name, outcome, model, *known)
        runs[run_id][1].append(attempts[pk])
    issues = Issue.objects.filter(attempt__step__run_id__in=runs).order_by()
    for attempt_id, *issue in issues.values_list("attempt_id", "audit", "code", "severity"):
        attempts[attempt_id].issues.append(EndedIssue(*issue))
    return list(runs.values())


@lru_cache(maxsize=1_000)
def fetch_asked_models(version_id: int, digest: str) -> AskedModels:
    """The models that a version asks; its digest is there for the cache, which outlives a database.

    A definition that a later ToolFlow wrote in another shape asks none.
    """
    spec: Any = FlowVersion.objects.values_list("spec", flat=True).get(pk=version_id)
    # Only this is read: an older definition may have what is refused now.
    try:
        steps = [step for step in spec["steps"] if step.get("compute") is None]
        asked = [step.get("model") or spec.get("model") for step in steps]
        named = [*asked, *(step.get("last_model") for step in steps)]
    except (AttributeError, KeyError, TypeError):
        return AskedModels(frozenset(), False)
    return AskedModels(frozenset(model for model in named if model and isinstance(model, str)), not all(asked))


def add_runs(rows: DailyRows, runs: Iterable[EndedRun]) -> None:
    """Count ``runs`` in ``rows``. A query for each version that this process has not met yet."""
    for run, attempts in runs:
        head = (run.flow_id, run.ended_at.astimezone(UTC).date(), run.version_id, run.is_simulated)
        models = fetch_asked_models(run.version_id, run.version__digest).list_models(run.model_settings)
        model = models[0][:MAX_MODEL_LENGTH] if len(models) == 1 else ""
        row = rows.get(DailyRuns, *head, model, len(models) > 1)
        parts = classify_attempts([(attempt.step, attempt.outcome) for attempt in attempts])
        has_retries = False
        for attempt, part in zip(attempts, parts, strict=True):
            _count_usage(row, attempt, part)
            has_retries |= _count_attempt(row, attempt, part)
            step = rows.get(DailySteps, *head, attempt.step, attempt.model)
            _count_attempt(step, attempt, part)
            _count_step(step, attempt, part)
        _count_run(row, run, has_retries=has_retries)
        _count_audits(rows, head, attempts)
        _count_issues(rows, head, run.pk, attempts)


def _count_run(row: DailyRuns, run: Any, *, has_retries: bool) -> None:
    row.runs += 1
    match run.status:
        case RunStatus.SUCCEEDED:
            row.succeeded += 1
            row.accepted += run.accepted_count > 0
            row.first_time += not has_retries and not run.accepted_count
        case RunStatus.FAILED:
            row.failed += 1
        case RunStatus.ERRORED:
            row.errored += 1
        case RunStatus.CANCELLED:
            row.cancelled += 1
    if run.started_at is not None:
        bucket = str(find_bucket((run.ended_at - run.started_at).total_seconds()))
        row.durations[bucket] = row.durations.get(bucket, 0) + 1


def _count_usage(row: DailyRuns, attempt: EndedAttempt, part: str) -> None:
    """Count what only rows of runs have."""
    row.cached_tokens += attempt.cached
    row.reasoning_tokens += attempt.reasoning
    tokens, cost = _PART_COLUMNS[part]
    setattr(row, tokens, getattr(row, tokens) + attempt.total)
    setattr(row, cost, getattr(row, cost) + attempt.cost)


def _count_attempt(row: DailyRuns | DailySteps, attempt: EndedAttempt, part: str) -> bool:
    """Count what rows of runs and of steps have in common; gives whether the attempt is a retry."""
    has_output = attempt.outcome in COUNTED
    is_retry = has_output and part != FIRST
    row.begun += has_output and part == FIRST
    row.attempts += 1
    row.retries += is_retry
    row.prompt_tokens += attempt.prompt
    row.completion_tokens += attempt.completion
    row.total_tokens += attempt.total
    row.cost += attempt.cost
    row.unpriced += attempt.unpriced
    return is_retry


def _count_step(row: DailySteps, attempt: EndedAttempt, part: str) -> None:
    has_passed = attempt.outcome == Outcome.PASSED
    row.name = attempt.step_name
    row.passed += has_passed
    row.first_passed += has_passed and part == FIRST


def _count_audits(rows: DailyRows, head: Key, attempts: Sequence[EndedAttempt]) -> None:
    following: dict[int, list[EndedAttempt]] = {}
    for attempt in reversed(attempts):
        later = following.setdefault(attempt.step, [])
        for source, check in attempt.list_sources().items():
            row = rows.get(DailyAudits, *head, attempt.step, *source)
            row.fired += 1
            retries = _find_retries(later, source, check)
            if not retries:
                continue
            row.retried += 1
            row.fixed += source not in retries[-1].list_sources()
            for retry in retries:
                row.retry_tokens += retry.total
                row.retry_cost += retry.cost
                row.retry_unpriced += retry.unpriced
        later.insert(0, attempt)


def _find_retries(later: Sequence[EndedAttempt], source: Source, check: Check) -> Sequence[EndedAttempt]:
    """The ``later`` attempts of a step up to the first that was checked for what ``source`` raises; none if none was.

    An audit that could not be evaluated has checked nothing.
    """
    for count, attempt in enumerate(later, start=1):
        reached = find_reached(attempt.outcome, (issue.code for issue in attempt.issues))
        is_broken = any(issue.code == AUDIT_ERROR and issue.source == source for issue in attempt.issues)
        if reached is not None and reached >= check and not is_broken:
            return later[:count]
    return ()


def _count_issues(rows: DailyRows, head: Key, run_id: int, attempts: Sequence[EndedAttempt]) -> None:
    raised = Counter((attempt.step, issue) for attempt in attempts for issue in attempt.issues)
    seen: set[EndedIssue] = set()
    # Attempts are in the order of their steps: a run counts at the first step that raised an issue.
    for (step, issue), count in raised.items():
        row = rows.get(DailyIssues, *head, step, issue.code, issue.audit, issue.severity)
        row.issues += count
        row.runs += issue not in seen
        row.step_runs += 1
        row.first_run = min(run_id, row.first_run or run_id)
        row.last_run = max(run_id, row.last_run or run_id)
        seen.add(issue)
