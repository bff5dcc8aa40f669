"""What a backtest says: of one stored run, and the totals of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import add
from typing import Self

from flows.engine.history import NO_USAGE, TokenUsage, sum_usage
from flows.engine.planner import EndStatus
from flows.engine.result import FoundIssue


class BacktestKind(StrEnum):
    """What a candidate would have made of a stored run; the most severe of what happens in it."""

    SAME = "same"
    SOONER = "sooner"
    """A step ends at an earlier attempt than it did, or the run ends better. What follows that step may not be known:
    then ``ends`` is None."""
    REFUSED = "refused"
    """A step that passed fails, the run ends worse, or the step needs at least one more call."""
    BEYOND = "beyond"
    """From here the next model step would have had another input, or was never asked."""
    NOT_REPRODUCIBLE = "not_reproducible"
    """Judged again by its own definition the run does not come out as stored, so nothing is said of it."""
    REMOVED = "removed"
    """The outputs of the run were removed."""


class BacktestReason(StrEnum):
    """Why history does not answer, or answers only up to some attempt."""

    INPUT_DIFFERS = "input_differs"
    """The next model step would have had another input or other earlier results in its prompt."""
    NOT_REACHED = "not_reached"
    """The run never reached the step that would follow."""
    NEW_STEP = "new_step"
    """The candidate asks a model in a step that the run's definition doesn't have."""
    OTHER_MODEL = "other_model"
    """The next try would have asked the step's last model, or would not have."""
    IMPURE_PLUGIN = "impure_plugin"
    """An audit, a function or an output type that is registered with ``pure=False`` judges the run."""
    MISSING_PLUGIN = "missing_plugin"
    """The run does not come out as stored, and a plug-in that judged it is not registered here."""
    PLUGIN_CHANGED = "plugin_changed"
    """The run does not come out as stored, and a plug-in has changed since."""
    REDACTED = "redacted"
    """The run does not come out as stored, and parts of it were redacted."""
    DIFFERS = "differs"
    """The run does not come out as stored, for an unknown reason: a plug-in may read the clock."""
    OUTPUTS_REMOVED = "outputs_removed"


SENTENCES = {
    BacktestReason.INPUT_DIFFERS: "From step {step} on the model would have been given something else.",
    BacktestReason.NOT_REACHED: "The run would go on to step {step}, which it did not reach.",
    BacktestReason.NEW_STEP: "Step {step} would ask a model for what this run never asked.",
    BacktestReason.OTHER_MODEL: "The next try of step {step} would have asked another model.",
    BacktestReason.IMPURE_PLUGIN: "A plug-in of step {step} is registered as not pure, so it is not called again.",
    BacktestReason.MISSING_PLUGIN: "Attempt {number} of step {step} was judged by a plug-in that is not there now.",
    BacktestReason.PLUGIN_CHANGED: "Attempt {number} of step {step} comes out otherwise: a plug-in has changed.",
    BacktestReason.REDACTED: "Attempt {number} of step {step} comes out otherwise: parts of the run were redacted.",
    BacktestReason.DIFFERS: "Attempt {number} of step {step} comes out otherwise under the run's own definition.",
    BacktestReason.OUTPUTS_REMOVED: "The outputs of this run were removed.",
}


@dataclass(frozen=True, slots=True)
class AuditChange:
    """What becomes of one audit over the attempts that were judged again.

    ``step`` is its position in the candidate. What the engine itself finds in outputs has a code for a name.
    """

    step: int
    audit: str
    fired_before: int = 0
    """Attempts in which it raised an issue."""
    fired_after: int = 0
    gone: int = 0
    """Issues that it raised only then."""
    new: int = 0
    """Issues that it raises only now."""


@dataclass(frozen=True, slots=True)
class RunBacktest:
    """What a candidate would have made of one stored run. Steps are those of the run itself."""

    kind: BacktestKind
    step: int | None = None
    attempt: int | None = None
    """Step and attempt after which the candidate first decides otherwise; None where it never does."""
    blocking: tuple[int, int] | None = None
    """Step and attempt that a ``refused`` run would end or be tried again after."""
    reason: BacktestReason | None = None
    sentence: str = ""
    """Why history can't say more."""
    attempts_saved: int = 0
    """Attempts that a step which ends sooner would not have made. Of steps that the candidate doesn't make they are
    counted only where history says how the run would end."""
    retries_saved: int = 0
    """Those of them that are retries: they count as tries, and are not the first one of their step."""
    saved: TokenUsage = NO_USAGE
    """What those attempts used; ``unpriced`` of them at an unknown price."""
    further_calls: int = 0
    """How many more calls there would be at least."""
    further: TokenUsage = NO_USAGE
    """What those calls would use at least: as much as the cheapest call of the same step in this run."""
    ended: EndStatus | None = None
    """How the run ended by the planner's word; None if it was cancelled, out of time or is not over."""
    ends: EndStatus | None = None
    """How it would end; None where history can't say."""
    is_hypothetical: bool = False
    """Whether an attempt that was judged again answered another text than the candidate would have sent."""
    gone: tuple[FoundIssue, ...] = ()
    """Issues of the attempts judged again that were raised only then."""
    new: tuple[FoundIssue, ...] = ()
    """Issues of the attempts judged again that are raised only now."""
    audits: tuple[AuditChange, ...] = ()


def end_without_answer(kind: BacktestKind, reason: BacktestReason, step: int = 0, number: int = 0) -> RunBacktest:
    """What is said of a run of which history can't say how it would end."""
    sentence = SENTENCES[reason].format(step=step, number=number)
    return RunBacktest(kind, step or None, number or None, reason=reason, sentence=sentence)


@dataclass(frozen=True, slots=True)
class KindTotals:
    """What the runs of one kind add up to."""

    runs: int = 0
    attempts_saved: int = 0
    retries_saved: int = 0
    saved: TokenUsage = NO_USAGE
    further_calls: int = 0
    further: TokenUsage = NO_USAGE
    hypothetical: int = 0
    """Runs whose answers were answers to other texts."""
    open: int = 0
    """Runs of which history can't say how they would end."""
    failed: int = 0
    """Runs that would fail."""

    @classmethod
    def of(cls, runs: Sequence[RunBacktest]) -> Self:
        """Those of some runs."""
        return cls(
            runs=len(runs),
            attempts_saved=sum(run.attempts_saved for run in runs),
            retries_saved=sum(run.retries_saved for run in runs),
            saved=sum_usage(run.saved for run in runs),
            further_calls=sum(run.further_calls for run in runs),
            further=sum_usage(run.further for run in runs),
            hypothetical=sum(run.is_hypothetical for run in runs),
            open=sum(run.ends is None and (run.reason is not None or run.further_calls > 0) for run in runs),
            failed=sum(run.ends is EndStatus.FAILED for run in runs),
        )

    def __add__(self, other: KindTotals) -> KindTotals:
        return KindTotals(
            runs=self.runs + other.runs,
            attempts_saved=self.attempts_saved + other.attempts_saved,
            retries_saved=self.retries_saved + other.retries_saved,
            saved=sum_usage([self.saved, other.saved]),
            further_calls=self.further_calls + other.further_calls,
            further=sum_usage([self.further, other.further]),
            hypothetical=self.hypothetical + other.hypothetical,
            open=self.open + other.open,
            failed=self.failed + other.failed,
        )


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """The totals of a backtest; two of them added are those of all their runs."""

    kinds: Mapping[BacktestKind, KindTotals] = field(default_factory=dict)
    """Every kind that occurs."""
    reasons: Mapping[BacktestReason, int] = field(default_factory=dict)
    """How many runs history does not answer fully, by reason."""
    audits: tuple[AuditChange, ...] = ()
    """Changes of the audits that fired, by step and name."""

    @classmethod
    def of(cls, runs: Iterable[RunBacktest]) -> Self:
        """The totals of some runs."""
        kinds: dict[BacktestKind, list[RunBacktest]] = {}
        for run in runs:
            kinds.setdefault(run.kind, []).append(run)
        listed = [run for of_kind in kinds.values() for run in of_kind]
        return cls(
            {kind: KindTotals.of(of_kind) for kind, of_kind in kinds.items()},
            dict(Counter(run.reason for run in listed if run.reason is not None)),
            add_audits(change for run in listed for change in run.audits),
        )

    def __add__(self, other: BacktestResult) -> BacktestResult:
        kinds = {kind: self.find(kind) + other.find(kind) for kind in {**self.kinds, **other.kinds}}
        reasons = dict(Counter(self.reasons) + Counter(other.reasons))
        return BacktestResult(kinds, reasons, add_audits((*self.audits, *other.audits)))

    @property
    def runs(self) -> int:
        """All runs, also those of which nothing is said."""
        return sum(totals.runs for totals in self.kinds.values())

    def find(self, kind: BacktestKind) -> KindTotals:
        """The totals of one kind, zeros if it does not occur."""
        return self.kinds.get(kind, KindTotals())


def add_audits(changes: Iterable[AuditChange]) -> tuple[AuditChange, ...]:
    """One change for each audit that is the sum of its changes, by step and name."""
    sums: dict[tuple[int, str], list[int]] = {}
    for one in changes:
        figures = (one.fired_before, one.fired_after, one.gone, one.new)
        known = sums.setdefault((one.step, one.audit), [0, 0, 0, 0])
        known[:] = map(add, known, figures)
    return tuple(AuditChange(*key, *figures) for key, figures in sorted(sums.items()))
