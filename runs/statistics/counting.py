"""What runs that have ended add to the rows of days. Nothing is read or stored here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from flows.engine.judging import AUDIT_ERROR
from runs.attempt_rules import FIRST, USEFUL, Check, classify_attempts, find_check, find_reached
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps, RunStatus
from runs.statistics.daily_rows import DailyRows, Key
from runs.statistics.durations import find_bucket
from runs.statistics.ended_runs import EndedAttempt, EndedIssue, EndedRun

Source = tuple[str, str]
"""Who raises an issue: an audit, by its name; or ToolFlow itself, by an empty name and the issue's code."""


@dataclass(slots=True)
class _RunTotals:
    """What the attempts of a run come to together."""

    begun: int = 0
    retries: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0


def add_runs(rows: DailyRows, runs: Iterable[EndedRun]) -> None:
    """Count ``runs`` in ``rows``."""
    for run in runs:
        head = (run.flow_id, run.day, run.version_id, run.is_simulated)
        parts = classify_attempts([(attempt.step, attempt.outcome) for attempt in run.attempts])
        row = rows.find(DailyRuns, *head, run.model, run.has_several)
        totals = _count_attempts(row, run, parts)
        row.begun += totals.begun
        row.retries += totals.retries
        _count_run(row, run, totals)
        if (duration := run.duration) is not None:
            row.timed += 1
            row.duration_total += duration
        _count_steps(rows, head, run, parts)
        _count_audits(rows, head, run)
        _count_issues(rows, head, run)


def _count_run(row: DailyRuns, run: EndedRun, totals: _RunTotals) -> None:
    """Count how a run ended, how long it took and what it used."""
    row.runs += 1
    match run.status:
        case RunStatus.SUCCEEDED:
            row.succeeded += 1
            row.first_time += not totals.retries
        case RunStatus.FAILED:
            row.failed += 1
        case RunStatus.ERRORED:
            row.errored += 1
        case RunStatus.CANCELLED:
            row.cancelled += 1
    row.total_tokens += totals.tokens
    row.cost += totals.cost
    row.unpriced += totals.unpriced
    if (duration := run.duration) is not None:
        bucket = str(find_bucket(duration.total_seconds()))
        row.durations[bucket] = row.durations.get(bucket, 0) + 1


def _count_attempts(row: DailyRuns, run: EndedRun, parts: list[str]) -> _RunTotals:
    """Count the attempts of a run; ``parts`` says of each what it was. Gives what they used."""
    totals = _RunTotals()
    for attempt, part in zip(run.attempts, parts, strict=True):
        cost = attempt.cost or 0
        row.attempts += 1
        row.prompt_tokens += attempt.prompt
        row.completion_tokens += attempt.completion
        row.cached_tokens += attempt.cached
        row.reasoning_tokens += attempt.reasoning
        totals.tokens += attempt.total
        totals.cost += cost
        totals.unpriced += attempt.unpriced
        if part == FIRST:
            row.first_tokens += attempt.total
            row.first_cost += cost
            totals.begun += attempt.counts
        elif part == USEFUL:
            row.useful_retry_tokens += attempt.total
            row.useful_retry_cost += cost
        else:
            row.wasted_retry_tokens += attempt.total
            row.wasted_retry_cost += cost
        totals.retries += _is_retry(attempt, part)
    return totals


def _is_retry(attempt: EndedAttempt, part: str) -> bool:
    return attempt.counts and part != FIRST


def _count_steps(rows: DailyRows, head: Key, run: EndedRun, parts: list[str]) -> None:
    for attempt, part in zip(run.attempts, parts, strict=True):
        row = rows.find(DailySteps, *head, attempt.step, attempt.model)
        has_passed = attempt.has_passed
        is_first = attempt.counts and part == FIRST
        row.name = attempt.step_name
        row.begun += is_first
        row.passed += has_passed
        row.first_passed += has_passed and is_first
        row.attempts += 1
        row.retries += _is_retry(attempt, part)
        row.prompt_tokens += attempt.prompt
        row.completion_tokens += attempt.completion
        row.total_tokens += attempt.total
        row.cost += attempt.cost or 0
        row.unpriced += attempt.unpriced


def _count_audits(rows: DailyRows, head: Key, run: EndedRun) -> None:
    following: dict[int, list[EndedAttempt]] = {}
    for attempt in reversed(run.attempts):
        later = following.setdefault(attempt.step, [])
        for source, check in _list_sources(attempt).items():
            row = rows.find(DailyAudits, *head, attempt.step, *source)
            row.fired += 1
            retries = _find_retries(later, source, check)
            if not retries:
                continue
            row.retried += 1
            row.fixed += source not in _list_sources(retries[-1])
            for retry in retries:
                row.retry_tokens += retry.total
                row.retry_cost += retry.cost or 0
                row.retry_unpriced += retry.unpriced
        later.insert(0, attempt)


def _find_retries(later: Sequence[EndedAttempt], source: Source, check: Check) -> Sequence[EndedAttempt]:
    """The ``later`` attempts of a step up to the first that was looked at for what ``source`` raises; none if none was.

    An audit that could not be evaluated has looked at nothing.
    """
    for count, attempt in enumerate(later, start=1):
        reached = find_reached(attempt.outcome, (issue.code for issue in attempt.issues))
        is_broken = any(issue.code == AUDIT_ERROR and _name_source(issue) == source for issue in attempt.issues)
        if reached is not None and reached >= check and not is_broken:
            return later[:count]
    return ()


def _list_sources(attempt: EndedAttempt) -> dict[Source, Check]:
    """Who raised issues of an attempt, and at which check."""
    return {
        _name_source(issue): Check.AUDITS if issue.audit else find_check(attempt.outcome, issue.code)
        for issue in attempt.issues
    }


def _name_source(issue: EndedIssue) -> Source:
    return (issue.audit, "") if issue.audit else ("", issue.code)


def _count_issues(rows: DailyRows, head: Key, run: EndedRun) -> None:
    raised = Counter(issue for attempt in run.attempts for issue in attempt.issues)
    for issue, count in raised.items():
        row = rows.find(DailyIssues, *head, issue.code, issue.audit, issue.severity)
        row.issues += count
        row.runs += 1
