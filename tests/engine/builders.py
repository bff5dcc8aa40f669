"""Specs and attempts with as little as the case at hand needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from flows.engine.errors import ModelErrorCode
from flows.engine.execution import Progress
from flows.engine.history import Attempt, AttemptError, History, Issue, Outcome, Severity, TokenUsage
from flows.engine.spec import FlowSpec, StepSpec

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


def closed(**properties: Any) -> dict[str, Any]:
    """A strict object with these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


INVOICE = closed(
    supplier={"type": "string"},
    total={"type": "number", "minimum": 0},
    lines={"type": "array", "items": closed(text={"type": "string"}, amount={"type": "number"}), "minItems": 1},
)


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


class FakeClock:
    """A clock that moves by ``advance``, and at once when a caller sleeps."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self.slept_until: list[datetime] = []

    def now(self) -> datetime:
        return self._now

    def advance(self, count: float) -> None:
        """Let this number of seconds pass."""
        self._now += seconds(count)

    async def sleep_until(self, moment: datetime) -> None:
        self.slept_until.append(moment)
        self._now = max(self._now, moment)


class MemoryRecorder:
    """Keeps what it is given, as a store would."""

    def __init__(self) -> None:
        self.records: list[Progress] = []

    async def record(self, progress: Progress) -> None:
        self.records.append(progress)

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts that were recorded as ended."""
        return [progress.ended for progress in self.records if progress.ended is not None]

    def describe(self) -> list[str]:
        """Each record in words: ``"1.1 failed, 1.2 begins"``."""
        return [", ".join(_describe(progress)) for progress in self.records]


def _describe(progress: Progress) -> Iterator[str]:
    if (ended := progress.ended) is not None:
        yield f"{ended.step}.{ended.number} {ended.outcome}"
    if (received := progress.received) is not None:
        yield f"{received.start.step}.{received.start.number} received"
    if (begun := progress.begun) is not None:
        yield f"{begun.step}.{begun.number} begins"
    if (finish := progress.finish) is not None:
        yield f"run {finish.status}"
