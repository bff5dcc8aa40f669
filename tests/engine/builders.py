"""Specs and attempts with as little as the case at hand needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flows.engine.errors import ModelErrorCode
from flows.engine.history import Attempt, AttemptError, History, Outcome
from flows.engine.issues import Issue, Severity
from flows.engine.spec import FlowSpec, StepSpec
from flows.engine.usage import TokenUsage

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

TEXT_SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


def make_step(number: int = 1, **fields: Any) -> StepSpec:
    """A model step that gives ``{"text": …}``; with ``compute`` a local one."""
    if "compute" not in fields:
        fields = {"tool_name": f"tool_{number}", "output_schema": TEXT_SCHEMA, "model": "gpt-4.1", **fields}
    return StepSpec(**{"name": f"Step {number}", **fields})


def make_flow(*steps: StepSpec, **fields: Any) -> FlowSpec:
    return FlowSpec(name="example", steps=steps or (make_step(),), **fields)


def make_issue(severity: Severity | str = "critical", description: str = "Too short.", **fields: Any) -> Issue:
    return Issue(code=fields.pop("code", "too_short"), severity=Severity(severity), description=description, **fields)


def make_attempt(step: int = 1, number: int = 1, outcome: Outcome | str = "passed", **fields: Any) -> Attempt:
    """An attempt that ended at noon; its output is ``{"text": "s<step>a<number>"}`` unless given."""
    outcome = Outcome(outcome)
    if outcome in (Outcome.PASSED, Outcome.FAILED):
        fields.setdefault("output", {"text": f"s{step}a{number}"})
    if outcome is Outcome.FAILED:
        fields.setdefault("issues", (make_issue(),))
    if outcome is Outcome.ERRORED:
        fields.setdefault("error", make_error())
    return Attempt(step=step, number=number, outcome=outcome, ended_at=fields.pop("ended_at", NOON), **fields)


def make_error(
    code: ModelErrorCode = ModelErrorCode.SERVER_ERROR, message: str = "The provider failed (500).", **fields: Any
) -> AttemptError:
    return AttemptError(code=code, message=message, **fields)


def make_history(*attempts: Attempt, input: Any = None, run_id: str = "run-1") -> History:
    """A history with these attempts after the input."""
    history = History.begin(input if input is not None else {"topic": "tea"}, run_id=run_id)
    for attempt in attempts:
        history = history.append(attempt)
    return history


def make_usage(total: int = 30, **fields: Any) -> TokenUsage:
    return TokenUsage(prompt=total * 2 // 3, completion=total - total * 2 // 3, total=total, **fields)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)
