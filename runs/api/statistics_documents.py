"""Statistics as JSON documents: figures as numbers, costs as decimal strings, what is unknown as null."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from runs.attempt_rules import FIRST, USEFUL, WASTED
from runs.statistics.figures import AuditSums, IssueSums, Today, UsageGroup
from runs.statistics.sums import RunSums, Spent, StepSums, split_bill, use_of_runs

PART_NAMES = {FIRST: "first_attempts", USEFUL: "useful_retries", WASTED: "wasted_retries"}


class StatisticsWriter:
    """Writes documents of real runs, or of simulated ones, which cost nothing that could be told."""

    def __init__(self, *, is_simulated: bool) -> None:
        self._is_simulated = is_simulated

    def write_figures(self, runs: RunSums | None, steps: StepSums, *, is_of_model: bool = False) -> dict[str, Any]:
        """What runs and their steps came to; without ``runs`` only what is known of steps.

        ``is_of_model`` says that these are attempts by one model, of which only attempts can be judged.
        """
        return {
            "runs": None if runs is None else self.write_runs(runs),
            "steps": _write_steps(steps, is_of_model=is_of_model),
            "tokens": _write_tokens(runs, steps),
            "cost": self._write_costs(runs, steps),
            "retry_bill": None if runs is None else self._write_bill(runs),
        }

    def write_runs(self, sums: RunSums) -> dict[str, Any]:
        """Runs by status, their rates and durations."""
        return {
            "total": sums.runs,
            "succeeded": sums.succeeded,
            "failed": sums.failed,
            "errored": sums.errored,
            "cancelled": sums.cancelled,
            "pass_rate": sums.pass_rate,
            "first_attempt_pass_rate": sums.first_rate,
            "duration_p50": _round_seconds(sums.median),
            "duration_p95": _round_seconds(sums.p95),
        }

    def write_model_runs(self, model: str, has_several: bool, runs: RunSums) -> dict[str, Any]:
        """Runs that ask one model, several or none."""
        return {
            "model": model or None,
            "has_several": has_several,
            "runs": self.write_runs(runs),
            "steps": {
                "begun": runs.begun,
                "attempts": runs.attempts,
                "retries": runs.retries,
                "attempts_per_step": runs.attempts_per_step,
            },
            "tokens": {
                "total": runs.total_tokens,
                "per_run": runs.tokens_per_run,
                "per_accepted_output": runs.tokens_per_accepted,
            },
            "cost": {
                "total": self._write_cost(runs.known_cost),
                "per_run": self._write_cost(runs.cost_per_run),
                "per_accepted_output": self._write_cost(runs.cost_per_accepted),
                "unpriced": runs.unpriced,
            },
        }

    def write_audit(self, sums: AuditSums) -> dict[str, Any]:
        """What came of the findings of an audit."""
        return {
            "step": sums.step,
            "step_name": sums.step_name or None,
            "audit": sums.audit or None,
            "code": sums.code or None,
            "fired": sums.fired,
            "retried": sums.retried,
            "fixed": sums.fixed,
            "fixed_rate": sums.fixed_rate,
            "retry_tokens": sums.retry_tokens,
            "retry_cost": self._write_cost(sums.known_cost),
            "retry_unpriced": sums.retry_unpriced,
        }

    def write_usage(self, group: UsageGroup, by: frozenset[str]) -> dict[str, Any]:
        """What a group used, under the keys that it is grouped by."""
        keys = {"flow": group.flow, "version": group.version, "model": group.model or None, "day": group.day}
        sums = group.sums
        return {
            **{name: value for name, value in keys.items() if name in by},
            "runs": sums.runs,
            "attempts": sums.attempts,
            "usage": {
                "prompt": sums.prompt_tokens,
                "completion": sums.completion_tokens,
                "total": sums.total_tokens,
                "cached": sums.cached_tokens,
                "reasoning": sums.reasoning_tokens,
                "cost": self._write_cost(sums.known_cost),
                "unpriced": sums.unpriced,
            },
        }

    def write_today(self, today: Today) -> dict[str, Any]:
        """Today so far, and the median of the days before."""
        so_far, middle = today.so_far, today.median
        return {
            "today": {
                "day": today.day,
                "runs": self.write_runs(so_far),
                "tokens": so_far.total_tokens,
                "cost": self._write_cost(so_far.known_cost),
                "unpriced": so_far.unpriced,
            },
            "median": middle
            and {
                "days": middle.days,
                "runs": middle.runs,
                "pass_rate": middle.pass_rate,
                "first_attempt_pass_rate": middle.first_rate,
                "duration_p50": _round_seconds(middle.duration_p50),
                "duration_p95": _round_seconds(middle.duration_p95),
                "tokens": middle.total_tokens,
                "cost": self._write_cost(middle.cost),
                "unpriced": middle.unpriced,
            },
        }

    def _write_costs(self, runs: RunSums | None, steps: StepSums) -> dict[str, Any]:
        spent: Spent = steps if runs is None else runs
        attempts = steps.attempts if runs is None else runs.attempts
        return {
            "total": self._write_cost(spent.known_cost),
            "per_run": None if runs is None else self._write_cost(runs.cost_per_run),
            "per_accepted_output": None if runs is None else self._write_cost(runs.cost_per_accepted),
            "per_attempt": self._write_cost(spent.cost_for(attempts)),
            "per_passed_attempt": self._write_cost(steps.cost_per_passed),
            "unpriced": spent.unpriced,
        }

    def _write_bill(self, runs: RunSums) -> dict[str, Any]:
        return {
            PART_NAMES[part.kind]: {
                "tokens": part.tokens,
                "share": part.share,
                "cost": self._write_cost(part.cost),
                "unpriced": part.unpriced,
            }
            for part in split_bill(use_of_runs(runs))
        }

    def _write_cost(self, cost: Decimal | None) -> str | None:
        return None if cost is None or self._is_simulated else f"{cost:.8f}"


def write_issue(sums: IssueSums) -> dict[str, Any]:
    """How often a kind of issue was raised."""
    return {
        "code": sums.code,
        "audit": sums.audit or None,
        "severity": sums.severity,
        "issues": sums.issues,
        "runs": sums.runs,
    }


def _write_steps(steps: StepSums, *, is_of_model: bool) -> dict[str, Any]:
    return {
        "begun": steps.begun,
        "passed": steps.passed,
        "attempts": steps.attempts,
        "retries": steps.retries,
        "pass_rate": None if is_of_model else steps.pass_rate,
        "first_attempt_pass_rate": steps.first_rate,
        "attempt_pass_rate": steps.attempt_rate,
        "attempts_per_step": None if is_of_model else steps.attempts_per_step,
        "attempts_per_pass": steps.attempts_per_passed,
    }


def _write_tokens(runs: RunSums | None, steps: StepSums) -> dict[str, Any]:
    spent: Spent = steps if runs is None else runs
    attempts = steps.attempts if runs is None else runs.attempts
    return {
        "total": spent.total_tokens,
        "per_run": None if runs is None else runs.tokens_per_run,
        "per_accepted_output": None if runs is None else runs.tokens_per_accepted,
        "per_attempt": spent.tokens_for(attempts),
        "per_passed_attempt": steps.tokens_per_passed,
    }


def _round_seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
