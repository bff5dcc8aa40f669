"""History: the only state of a run.

A ``History`` is a list of steps, each a list of attempts; step 0 is the initial input. Everything else that can be
said about the course of a run is derived from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat

from flows.engine.errors import ModelErrorCode
from flows.engine.issues import Issue
from flows.engine.usage import NO_USAGE, TokenUsage


class Outcome(StrEnum):
    """How one attempt ended."""

    PASSED = "passed"
    FAILED = "failed"
    """The audits say no."""
    INVALID = "invalid"
    """No usable output: schema mismatch, malformed arguments, wrong tool, refusal, truncated."""
    ERRORED = "errored"
    """Transport or provider error."""
    INTERRUPTED = "interrupted"
    """Its worker died."""
    CANCELLED = "cancelled"


COUNTED = frozenset({Outcome.PASSED, Outcome.FAILED, Outcome.INVALID})
"""The outcomes of attempts that count as tries of a step: those with an answer that could be judged."""
UNDECIDED = frozenset({Outcome.INTERRUPTED, Outcome.CANCELLED})
"""The outcomes of attempts that were cut off, and decide nothing about their step."""


class AttemptError(BaseModel):
    """Why an attempt is ``errored``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: ModelErrorCode
    message: str
    status: int | None = None
    retry_after: FiniteFloat | None = None
    """Seconds that the provider asked to wait, counted from the end of the attempt."""


class Attempt(BaseModel):
    """One try of a step: its output beside its own issues and its own usage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = Field(ge=0)
    number: int = Field(ge=1)
    outcome: Outcome
    input: Any = None
    """The step's input, after ``input_expression`` and ``input_sanitizer``."""
    output: Any = None
    """The sanitized output, None where no object came back. An ``invalid`` one is kept beside its issues."""
    raw_output: Any = None
    """What came back before the sanitizer, where that differs from ``output``; text where it was no JSON object."""
    issues: tuple[Issue, ...] = ()
    usage: TokenUsage = NO_USAGE
    request: dict[str, Any] | None = None
    """The exact body that was sent; None for a local step."""
    model: str | None = None
    """The model that answered, as its provider named it; after the provider's name if that is not the default one."""
    response_id: str | None = None
    finish_reason: str | None = None
    error: AttemptError | None = None
    failure_reason: str | None = None
    plugins: dict[str, str] = Field(default_factory=dict)
    """Fingerprints of the plug-ins that this attempt used, by name."""
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def usable_output(self) -> Any:
        """The output that later steps may work with: None if it doesn't fit the step's schema."""
        return None if self.outcome is Outcome.INVALID else self.output

    @property
    def counts(self) -> bool:
        """Whether this attempt uses up one of the step's tries: errored calls are repeated instead."""
        return self.outcome in COUNTED


class History(BaseModel):
    """All attempts of a run. Immutable: ``append`` gives a new one.

    ``run_id`` seeds what must be random and yet the same when asked twice (the jitter of waits).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    steps: tuple[tuple[Attempt, ...], ...]

    @classmethod
    def begin(cls, input: Any, *, run_id: str) -> History:
        """A history that holds the initial input and nothing else."""
        return cls(run_id=run_id, steps=((initial_attempt(input),),))

    @classmethod
    def from_attempts(cls, attempts: Iterable[Attempt], *, run_id: str) -> History:
        """Build a history from stored attempts, in the order of step and number, step 0 first."""
        history = cls(run_id=run_id, steps=())
        for attempt in attempts:
            history = history.append(attempt)
        return history

    def append(self, attempt: Attempt) -> History:
        """This history and one more attempt. Raises ``ValueError`` if it isn't the next of its step or step."""
        known = len(self.attempts(attempt.step))
        if attempt.step > len(self.steps) or attempt.step < len(self.steps) - 1 or attempt.number != known + 1:
            raise ValueError(
                f"Attempt {attempt.number} of step {attempt.step} can't follow: "
                f"the history has {len(self.steps)} steps and {known} attempts of that step."
            )
        if known:
            steps = (*self.steps[:-1], (*self.steps[-1], attempt))
        else:
            steps = (*self.steps, (attempt,))
        # The parts are valid already: validating all attempts again would make a run quadratic.
        return History.model_construct(run_id=self.run_id, steps=steps)

    def attempts(self, step: int) -> tuple[Attempt, ...]:
        """The attempts of a step, none if it has not begun."""
        return self.steps[step] if 0 <= step < len(self.steps) else ()

    def final(self, step: int) -> Attempt | None:
        """The attempt that decides about a step: its last one that was not cut off."""
        return find_final(self.attempts(step))

    def __iter__(self) -> Iterator[Attempt]:  # type: ignore[override]  # pydantic iterates over fields; nobody wants that here
        """All attempts, in order."""
        for attempts in self.steps:
            yield from attempts

    @property
    def initial_input(self) -> Any:
        return self.steps[0][0].output


def find_final(attempts: Sequence[Attempt]) -> Attempt | None:
    """The last of a step's attempts that was not interrupted or cancelled: it decides about the step."""
    return next((attempt for attempt in reversed(attempts) if attempt.outcome not in UNDECIDED), None)


def initial_attempt(input: Any) -> Attempt:
    """Step 0: the input as its own passed attempt, with zero usage."""
    return Attempt(step=0, number=1, outcome=Outcome.PASSED, input=input, output=input)
