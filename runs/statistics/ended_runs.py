"""What statistics read of runs that have ended: narrow rows, without inputs, outputs and requests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from flows.engine.history import COUNTED, Outcome
from runs.models import Attempt, Issue, Run
from runs.statistics.asked_models import find_asked_models


@dataclass(frozen=True, slots=True)
class EndedIssue:
    """One issue of an attempt."""

    audit: str
    code: str
    severity: str


@dataclass(slots=True)
class EndedAttempt:
    """One attempt of a run, with its usage and its issues."""

    step: int
    step_name: str
    outcome: str
    model: str
    prompt: int
    completion: int
    cached: int
    reasoning: int
    total: int
    cost: Decimal | None
    unpriced: int
    issues: list[EndedIssue] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        """Whether it used up one of the step's tries."""
        return self.outcome in COUNTED

    @property
    def has_passed(self) -> bool:
        return self.outcome == Outcome.PASSED


@dataclass(slots=True)
class EndedRun:
    """One run, with its attempts in the order of step and number."""

    run_id: int
    flow_id: int
    version_id: int
    is_simulated: bool
    status: str
    started_at: datetime | None
    ended_at: datetime
    model: str
    """The one that all of its steps ask; empty for several, and where none is asked."""
    has_several: bool
    """Its steps ask several models."""
    attempts: list[EndedAttempt] = field(default_factory=list)

    @property
    def day(self) -> date:
        """The day of its end, UTC."""
        return self.ended_at.astimezone(UTC).date()

    @property
    def duration(self) -> timedelta | None:
        """From its start to its end; None if it was never started."""
        if self.started_at is None:
            return None
        # Both are times of the database, whose clock may be set back.
        return max(self.ended_at - self.started_at, timedelta(0))


def read_ended_runs(run_ids: Collection[int]) -> list[EndedRun]:
    """Read those of the runs that have ended, in order of their numbers.

    Takes three queries, however many they are, and one more for versions that this process has not met yet.
    """
    rows = Run.objects.filter(pk__in=run_ids, ended_at__isnull=False).order_by("pk")
    found = list(
        rows.values_list(
            *("pk", "flow_id", "version_id", "version__digest", "is_simulated", "model_settings", "status"),
            *("started_at", "ended_at"),
        )
    )
    asked = find_asked_models({version_id: digest for _, _, version_id, digest, *_ in found})
    runs = {}
    for pk, flow_id, version_id, digest, is_simulated, settings, status, started_at, ended_at in found:
        model, has_several = asked[digest].choose(settings)
        runs[pk] = EndedRun(pk, flow_id, version_id, is_simulated, status, started_at, ended_at, model, has_several)
    attempts = _read_attempts(runs)
    _read_issues(runs, attempts)
    return list(runs.values())


def _read_attempts(runs: dict[int, EndedRun]) -> dict[int, EndedAttempt]:
    """Give the runs their attempts; gives these by row."""
    attempts = {}
    rows = (
        Attempt.objects.filter(step__run_id__in=runs)
        .order_by("step__run_id", "step__index", "number")
        .values_list(
            "pk",
            "step__run_id",
            "step__index",
            "step__name",
            "outcome",
            "model",
            "usage__prompt",
            "usage__completion",
            "usage__cached",
            "usage__reasoning",
            "usage__total",
            "usage__cost",
            "usage__unpriced",
        )
    )
    for pk, run_id, step, name, outcome, model, prompt, completion, cached, reasoning, total, cost, unpriced in rows:
        attempts[pk] = EndedAttempt(
            step=step,
            step_name=name,
            outcome=outcome,
            model=model,
            prompt=prompt or 0,
            completion=completion or 0,
            cached=cached or 0,
            reasoning=reasoning or 0,
            total=total or 0,
            cost=cost,
            unpriced=unpriced or 0,
        )
        runs[run_id].attempts.append(attempts[pk])
    return attempts


def _read_issues(runs: dict[int, EndedRun], attempts: dict[int, EndedAttempt]) -> None:
    rows = Issue.objects.filter(attempt__step__run_id__in=runs).order_by()
    for attempt_id, audit, code, severity in rows.values_list("attempt_id", "audit", "code", "severity"):
        attempts[attempt_id].issues.append(EndedIssue(audit, code, severity))
