"""Statistics counted the plain way, run by run from the rows: what the kept ones must come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC
from decimal import Decimal
from typing import Any

from flows.engine.model_calls import resolve_spec
from flows.engine.spec import ModelSettings
from runs.models import Attempt, DailyAudits, DailyIssues, DailyRuns, DailySteps, Run

HEAD = ("flow_id", "day", "version_id", "is_simulated")
ABOUT = {
    DailyRuns: (*HEAD, "model", "has_several"),
    DailySteps: (*HEAD, "step", "model"),
    DailyAudits: (*HEAD, "step", "audit", "code"),
    DailyIssues: (*HEAD, "step", "code", "audit", "severity"),
}
TRIES = ("passed", "failed", "invalid")
"""Outcomes of attempts that count as tries."""
Statistics = dict[type, dict[tuple[Any, ...], dict[str, Any]]]


def read_statistics() -> Statistics:
    """What is kept, without numbers that are zero."""
    found: Statistics = {}
    for model, names in ABOUT.items():
        found[model] = {}
        for values in model.objects.values():
            del values["id"]
            key = tuple(values.pop(name) for name in names)
            assert key not in found[model]
            found[model][key] = {name: value for name, value in values.items() if value}
    return found


def recount(runs: Iterable[Run]) -> Statistics:
    """What the statistics of ``runs`` are, without numbers that are zero."""
    sums: dict[type, Any] = {model: defaultdict(Sums) for model in ABOUT}
    for run in runs:
        _recount_run(run, sums)
    return {
        model: {key: {name: value for name, value in row.items() if value} for key, row in rows.items()}
        for model, rows in sums.items()
    }


class Sums(dict[str, Any]):
    """Numbers by name, which begin at none."""

    def add(self, **numbers: Any) -> None:
        """Add to some of them."""
        for name, number in numbers.items():
            self[name] = self[name] + number if name in self else number


def _recount_run(run: Run, sums: dict[type, Any]) -> None:
    assert run.ended_at is not None
    head = (run.flow_id, run.ended_at.astimezone(UTC).date(), run.version_id, run.is_simulated)
    history = list(Attempt.objects.filter(step__run=run).order_by("step__index", "number"))
    all_of_run = sums[DailyRuns][*head, *_name_model(run)]
    all_of_run.add(**{"runs": 1, run.status: 1})
    if run.started_at:
        seconds = max((run.ended_at - run.started_at).total_seconds(), 0)
        durations = all_of_run.setdefault("durations", {})
        bucket = _measure(seconds)
        durations[bucket] = durations.get(bucket, 0) + 1
    retries = begun = 0
    raised: set[tuple[Any, ...]] = set()
    for attempt in history:
        own = [other for other in history if other.step_id == attempt.step_id]
        kind = _name_kind(attempt, own)
        is_first = kind == "first" and attempt.outcome in TRIES
        is_retry = kind != "first" and attempt.outcome in TRIES
        usage = attempt.usage
        cost = usage.cost or Decimal(0)
        retries += is_retry
        begun += is_first
        tokens = {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
            "cost": cost,
            "unpriced": usage.unpriced,
        }
        all_of_run.add(attempts=1, retries=is_retry, cached_tokens=usage.cached, reasoning_tokens=usage.reasoning)
        all_of_run.add(**tokens)
        all_of_run.add(**{f"{kind}_tokens": usage.total, f"{kind}_cost": cost})
        step = sums[DailySteps][*head, attempt.step.index, attempt.model]
        step["name"] = attempt.step.name
        passed = attempt.outcome == "passed"
        step.add(attempts=1, retries=is_retry, passed=passed, begun=is_first, first_passed=is_first and passed)
        step.add(**tokens)
        _recount_audits(attempt, own, head, sums)
        for issue in attempt.issues.all():
            kind = (issue.code, issue.audit, issue.severity)
            row = sums[DailyIssues][*head, attempt.step.index, *kind]
            place = (attempt.step.index, *kind)
            row.add(issues=1, runs=kind not in raised, step_runs=place not in raised)
            row["first_run"] = min(row.get("first_run", run.pk), run.pk)
            row["last_run"] = max(row.get("last_run", run.pk), run.pk)
            raised |= {kind, place}
    all_of_run.add(first_time=run.status == "succeeded" and not retries)
    all_of_run.add(begun=begun)


def _name_model(run: Run) -> tuple[str, bool]:
    spec = resolve_spec(run.version.flow_spec, ModelSettings.model_validate(run.model_settings))
    models = {step.model for step in spec.steps if step.model is not None}
    return (models.pop() if len(models) == 1 else "", len(models) > 1)


def _name_kind(attempt: Attempt, own: list[Attempt]) -> str:
    if not any(other.number < attempt.number for other in own if other.outcome in TRIES):
        return "first"
    return "useful_retry" if any(other.outcome == "passed" for other in own) else "wasted_retry"


def _recount_audits(attempt: Attempt, own: list[Attempt], head: tuple[Any, ...], sums: dict[type, Any]) -> None:
    later = [other for other in own if other.number > attempt.number]
    for audit, code in _list_sources(attempt):
        row = sums[DailyAudits][*head, attempt.step.index, audit, code]
        row.add(fired=1)
        looked = [other for other in later if _has_looked(other, audit, code, fired_in=attempt)]
        if looked:
            row.add(retried=1, fixed=(audit, code) not in _list_sources(looked[0]))
            for usage in (other.usage for other in later if other.number <= looked[0].number):
                row.add(retry_tokens=usage.total, retry_cost=usage.cost or Decimal(0), retry_unpriced=usage.unpriced)


_ORDER = ("schema_mismatch", "type_mismatch")


def _has_looked(attempt: Attempt, audit: str, code: str, *, fired_in: Attempt) -> bool:
    """Whether an attempt was looked at for what an audit, or ToolFlow under this code, raises."""
    raised = {issue.code for issue in attempt.issues.all()}
    if attempt.outcome == fired_in.outcome == "invalid" and not audit:
        reached = max((_ORDER.index(one) for one in raised if one in _ORDER), default=-1)
        return reached >= (_ORDER.index(code) if code in _ORDER else -1)
    broken = {issue.audit for issue in attempt.issues.all() if issue.code == "audit_error"}
    return attempt.outcome in ("passed", "failed") and (not audit or audit not in broken)


def _list_sources(attempt: Attempt) -> set[tuple[str, str]]:
    return {(issue.audit, "" if issue.audit else issue.code) for issue in attempt.issues.all()}


def _measure(seconds: float) -> str:
    """The bucket of a duration: the first whose upper end, five per cent above that of the one before, holds it."""
    bucket, end = 0, 0.001
    while end < seconds:
        bucket, end = bucket + 1, end * 1.05
    return str(bucket)
