"""Attempts as JSON documents, each with its own issues and its own usage. All keys are there, whatever the outcome.

They are put together by hand: to have each value checked again that comes from the database takes ten times as long.
Fields that an audit added to an issue are never left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from flows.engine.history import Attempt, AttemptError, Issue, Severity, TokenUsage, filter_issues
from runs import models


def build_attempt_document(
    attempt: Attempt, *, minimum: Severity = Severity.LOW, has_usage: bool = True
) -> dict[str, Any]:
    """An attempt that has ended as JSON types, with its issues of at least ``minimum`` severity."""
    document = {
        "step": attempt.step,
        "number": attempt.number,
        "outcome": attempt.outcome.value,
        "input": attempt.input,
        "output": attempt.output,
        "raw_output": attempt.raw_output,
        "issues": [build_issue_document(issue) for issue in filter_issues(attempt.issues, minimum)],
        "usage": build_usage_document(attempt.usage),
        "request": attempt.request,
        "model": attempt.model,
        "response_id": attempt.response_id,
        "finish_reason": attempt.finish_reason,
        "error": _build_error(attempt.error),
        "failure_reason": attempt.failure_reason,
        "plugins": attempt.plugins,
        "started_at": write_time(attempt.started_at),
        "ended_at": write_time(attempt.ended_at),
        "duration": measure_seconds(attempt.started_at, attempt.ended_at),
    }
    if not has_usage:
        del document["usage"]
    return document


def build_running_document(row: models.Attempt, *, has_usage: bool = True) -> dict[str, Any]:
    """An attempt that still runs: its outcome is None, like all that is known only at its end."""
    document = {
        "step": row.step.index,
        "number": row.number,
        "outcome": None,
        "input": row.input,
        "output": None,
        "raw_output": None,
        "issues": [],
        "usage": None,
        "request": row.request,
        "model": None,
        "response_id": None,
        "finish_reason": None,
        "error": None,
        "failure_reason": None,
        "plugins": row.plugins,
        "started_at": write_time(row.started_at),
        "ended_at": None,
        "duration": None,
    }
    if not has_usage:
        del document["usage"]
    return document


def build_issue_document(issue: Issue) -> dict[str, Any]:
    """An issue as JSON types, with the fields that its audit added."""
    return {
        "code": issue.code,
        "severity": issue.severity.value,
        "description": issue.description,
        "audit": issue.audit,
        "path": issue.path,
        "context": issue.context,
        "suggestions": list(issue.suggestions),
        **issue.added_fields,
    }


def build_usage_document(usage: TokenUsage) -> dict[str, Any]:
    """A usage as JSON types: the cost is a decimal number as text, or None where it is unknown."""
    return {
        "prompt": usage.prompt,
        "completion": usage.completion,
        "total": usage.total,
        "cached": usage.cached,
        "reasoning": usage.reasoning,
        "reported": usage.reported,
        "cost": write_amount(usage.cost),
        "unpriced": usage.unpriced,
    }


def write_amount(amount: Decimal | None) -> str | None:
    """An amount of USD as text, without exponent."""
    return None if amount is None else f"{amount:f}"


def write_time(moment: datetime | None) -> str | None:
    """A moment as text: in UTC, to the microsecond."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def measure_seconds(begin: datetime | None, end: datetime | None) -> float | None:
    """Seconds from one moment to the other, None where one is missing."""
    return None if begin is None or end is None else (end - begin).total_seconds()


def _build_error(error: AttemptError | None) -> dict[str, Any] | None:
    return None if error is None else error.model_dump(mode="json")
