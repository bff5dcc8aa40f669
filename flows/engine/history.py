"""History: the only state of a run, with the issues and the usage of each attempt.

A ``History`` is a list of steps, each a list of attempts; step 0 is the initial input. Everything else that can be
said about the course of a run is derived from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from itertools import chain
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat

from flows.engine.errors import ModelErrorCode

MAX_CODE_LENGTH = 200
"""Characters."""
MARK = "[redacted]"
"""In the place of a redacted value; what a pattern found has the pattern's name in it."""
CLEANED_OUTPUT = "cleaned_output"
"""The code of a note that something was replaced in an output that can't be stored."""


class Severity(StrEnum):
    """How much an issue matters: low < medium < high < critical. The members are strings, but compare by rank."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def weight(self) -> int:
        """1, 2, 4, 8 for low to critical: the unit of weighted thresholds."""
        return _WEIGHTS[self]

    def __lt__(self, other: str) -> bool:
        return self.weight < Severity(other).weight

    def __le__(self, other: str) -> bool:
        return self.weight <= Severity(other).weight

    def __gt__(self, other: str) -> bool:
        return self.weight > Severity(other).weight

    def __ge__(self, other: str) -> bool:
        return self.weight >= Severity(other).weight


_WEIGHTS = {severity: 1 << rank for rank, severity in enumerate(Severity)}


class Issue(BaseModel):
    """One finding in one attempt's output. Fields that an audit adds are kept as they are, in ``added_fields``."""

    model_config = ConfigDict(frozen=True, extra="allow")

    code: str = Field(min_length=1, max_length=MAX_CODE_LENGTH)
    """Stable and machine-readable: what kind of finding this is (``hex_format``)."""
    severity: Severity
    description: str
    """One or two sentences for people and for the model that tries again."""
    audit: str = Field(default="", max_length=200)
    """The name of the audit that raised it; empty where the engine itself did."""
    path: str | None = None
    """JSON pointer (RFC 6901) into the output, where one place is the cause."""
    context: dict[str, Any] = Field(default_factory=dict)
    suggestions: tuple[str, ...] = ()

    @property
    def added_fields(self) -> dict[str, Any]:
        """The fields that an audit added to the standard ones."""
        return dict(self.model_extra or {})

    @property
    def fingerprint(self) -> tuple[str, str, str | None]:
        """What makes this the same finding in another attempt: audit, code and path."""
        return (self.audit, self.code, self.path)


def filter_issues(issues: Iterable[Issue], minimum: Severity) -> tuple[Issue, ...]:
    """The issues whose severity is ``minimum`` or above, in their order."""
    return tuple(issue for issue in issues if issue.severity >= minimum)


def subtract_issues(issues: Iterable[Issue], others: Iterable[Issue]) -> list[Issue]:
    """The ``issues`` without those that ``others`` have as well: by audit, code, path and severity.

    Notes of what was replaced before anything was judged are left out.
    """
    left = Counter((*issue.fingerprint, issue.severity) for issue in others)
    found = []
    for issue in issues:
        key = (*issue.fingerprint, issue.severity)
        if left[key]:
            left[key] -= 1
        elif issue.code != CLEANED_OUTPUT or issue.audit:
            found.append(issue)
    return found


def count_by_severity(issues: Iterable[Issue]) -> dict[Severity, int]:
    """How many issues there are of each severity; every severity is a key."""
    counts = Counter(issue.severity for issue in issues)
    return {severity: counts[severity] for severity in Severity}


class TokenUsage(BaseModel):
    """Tokens that one attempt, or a sum of attempts, was billed for.

    ``cached`` is the part of ``prompt`` that the provider had cached; ``reasoning`` the part of ``completion``
    that was thought and not shown. ``cost`` is in USD and None, never 0, where it is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: int = Field(default=0, ge=0)
    completion: int = Field(default=0, ge=0)
    total: int = Field(default=0, ge=0)
    cached: int = Field(default=0, ge=0)
    reasoning: int = Field(default=0, ge=0)
    reported: bool = True
    """False where a call was made and the provider reported no usage; of a sum: where that holds for any part."""
    cost: Decimal | None = None
    """USD. Of a sum: the known costs added up, None where none is known."""
    unpriced: int = Field(default=0, ge=0)
    """How many attempts used tokens at an unknown price, so that ``cost`` is only a lower bound."""


NO_USAGE = TokenUsage()
"""A local step, or step 0: nothing was called, nothing is billed."""

UNREPORTED_USAGE = TokenUsage(reported=False)
"""A call that brought no usage report."""


def sum_usage(usages: Iterable[TokenUsage]) -> TokenUsage:
    """Add up usages; unknown costs stay out of the sum and are counted in ``unpriced``."""
    parts = list(usages)
    names = ("prompt", "completion", "total", "cached", "reasoning", "unpriced")
    counts: dict[str, Any] = {name: sum(getattr(usage, name) for usage in parts) for name in names}
    costs = [usage.cost for usage in parts if usage.cost is not None]
    is_reported = all(usage.reported for usage in parts)
    return TokenUsage(**counts, reported=is_reported, cost=sum(costs, Decimal(0)) if costs else None)


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


@dataclass(frozen=True, slots=True)
class History:
    """All attempts of a run. Immutable: ``append`` gives a new one.

    ``run_id`` seeds what must be random and yet the same when asked twice (the jitter of waits).
    """

    run_id: str
    steps: tuple[tuple[Attempt, ...], ...]

    @classmethod
    def begin(cls, input: Any, *, run_id: str) -> History:
        """A history that holds the initial input and nothing else."""
        return cls(run_id, ((initial_attempt(input),),))

    @classmethod
    def from_attempts(cls, attempts: Iterable[Attempt], *, run_id: str) -> History:
        """Build a history from stored attempts, in the order of step and number, step 0 first."""
        history = cls(run_id, ())
        for attempt in attempts:
            history = history.append(attempt)
        return history

    def append(self, attempt: Attempt) -> History:
        """This history and one more attempt. Raises ``ValueError`` if it isn't the next of its step or step."""
        known, last = self.attempts(attempt.step), len(self.steps) - 1
        if attempt.step not in (last, last + 1) or attempt.number != len(known) + 1:
            raise ValueError(
                f"Attempt {attempt.number} of step {attempt.step} can't follow: "
                f"the history has {len(self.steps)} steps and {len(known)} attempts of that step."
            )
        return History(self.run_id, (*self.steps[: attempt.step], (*known, attempt)))

    def attempts(self, step: int) -> tuple[Attempt, ...]:
        """The attempts of a step, none if it has not begun."""
        return self.steps[step] if 0 <= step < len(self.steps) else ()

    def __iter__(self) -> Iterator[Attempt]:
        """All attempts, in order."""
        return chain.from_iterable(self.steps)

    @property
    def initial_input(self) -> Any:
        return self.steps[0][0].output


def find_final(attempts: Sequence[Attempt]) -> Attempt | None:
    """The last of a step's attempts that was not interrupted or cancelled; ``settling`` says which one counts."""
    return next((attempt for attempt in reversed(attempts) if attempt.outcome not in UNDECIDED), None)


def initial_attempt(input: Any) -> Attempt:
    """Step 0: the input as its own passed attempt, with zero usage."""
    return Attempt(step=0, number=1, outcome=Outcome.PASSED, input=input, output=input)
