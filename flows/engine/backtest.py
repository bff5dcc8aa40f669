"""What another definition of a flow would have decided over stored runs, at zero tokens.

Each run is first judged again by its own definition: what does not come out as stored is left out and counted. Then the
candidate decides attempt by attempt over the same outputs, until it ends or history can't answer any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from flows.engine.errors import Problem
from flows.engine.history import NO_USAGE, History, TokenUsage
from flows.engine.planner import EndStatus
from flows.engine.plugins import Registry
from flows.engine.plugins import registry as default_registry
from flows.engine.result import FoundIssue
from flows.engine.spec import FlowSpec


class BacktestKind(StrEnum):
    """What a candidate would have made of a stored run; the most severe of what happens in it."""

    SAME = "same"
    SOONER = "sooner"
    """A step ends at an earlier attempt than it did, or gets over an attempt that it failed at. What follows the step
    may not be known: then ``ends`` is None."""
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
    """The run never came to the step that would follow."""
    NEW_STEP = "new_step"
    """The candidate asks a model in a step that the run's definition doesn't have."""
    IMPURE_PLUGIN = "impure_plugin"
    """An audit that is registered with ``pure=False`` judges the run."""
    MISSING_PLUGIN = "missing_plugin"
    """A plug-in that judged the run is not registered here."""
    PLUGIN_CHANGED = "plugin_changed"
    """The run does not come out as stored, and a plug-in has changed since."""
    REDACTED = "redacted"
    """The run does not come out as stored, and parts of it were redacted."""
    DIFFERS = "differs"
    """The run does not come out as stored, for an unknown reason: a plug-in may read the clock."""
    OUTPUTS_REMOVED = "outputs_removed"


@dataclass(frozen=True, slots=True)
class AuditChange:
    """What becomes of one audit over the attempts that were judged again.

    ``step`` is its position in the candidate; of an audit that only the runs' definitions have, that of its step there.
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
    """Step and attempt at which the candidate first decides otherwise; None where it never does."""
    blocking: tuple[int, int] | None = None
    """Step and attempt that a ``refused`` run would end or be tried again after."""
    reason: BacktestReason | None = None
    sentence: str = ""
    """Why history can't say more."""
    attempts_saved: int = 0
    """Attempts that a step which ends sooner would not have made; nothing of later steps is counted."""
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


@dataclass(frozen=True, slots=True)
class KindTotals:
    """What the runs of one kind add up to."""

    runs: int = 0
    attempts_saved: int = 0
    saved: TokenUsage = NO_USAGE
    further_calls: int = 0
    further: TokenUsage = NO_USAGE
    hypothetical: int = 0
    """Runs whose answers were answers to other texts."""
    open: int = 0
    """Runs of which history can't say how they would end."""

    def __add__(self, other: KindTotals) -> KindTotals:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """The totals of a backtest; two of them added are those of all their runs."""

    kinds: Mapping[BacktestKind, KindTotals] = field(default_factory=dict)
    """Every kind that occurs."""
    reasons: Mapping[BacktestReason, int] = field(default_factory=dict)
    """How many runs history does not answer fully, by reason."""
    audits: tuple[AuditChange, ...] = ()
    """By step and name."""

    @classmethod
    def of(cls, runs: Iterable[RunBacktest]) -> Self:
        """The totals of some runs."""
        raise NotImplementedError

    def __add__(self, other: BacktestResult) -> BacktestResult:
        raise NotImplementedError

    @property
    def runs(self) -> int:
        """All runs, also those of which nothing is said."""
        return sum(totals.runs for totals in self.kinds.values())

    def to_document(self) -> dict[str, Any]:
        """The totals as JSON types; ``from_document`` reads them back."""
        raise NotImplementedError

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read what ``to_document`` made."""
        raise NotImplementedError


PastRun = tuple[FlowSpec, History]
"""A stored run: the executable spec that it ran under, with its own limits, and its history."""


async def backtest_run(
    spec: FlowSpec,
    candidate: FlowSpec,
    history: History,
    *,
    registry: Registry = default_registry,
    is_removed: bool = False,
) -> RunBacktest:
    """What ``candidate`` would have made of a run under ``spec`` with that ``history``.

    Both specs are prepared (``prepare_spec``) and have the limits that hold for the run (``with_limits``). What the
    candidate asks of a model otherwise is not taken into account: see ``find_untestable``. ``is_removed`` says that
    outputs were removed from the history. Never raises for what a rule or a plug-in does.
    """
    raise NotImplementedError


async def backtest(
    candidate: FlowSpec,
    runs: Iterable[PastRun] | AsyncIterable[PastRun],
    *,
    registry: Registry = default_registry,
) -> BacktestResult:
    """The totals of ``backtest_run`` over many runs, which are taken one by one."""
    raise NotImplementedError


def backtest_sync(candidate: FlowSpec, runs: Iterable[PastRun], **options: Any) -> BacktestResult:
    """``backtest`` for scripts without an event loop; takes the same options."""
    return asyncio.run(backtest(candidate, runs, **options))


async def leave_one_out(
    spec: FlowSpec, runs: Iterable[PastRun], *, registry: Registry = default_registry
) -> dict[tuple[int, str], BacktestResult]:
    """What each audit of ``spec`` does, by step and name: a backtest without it. The figures don't add up.

    ``spec`` is prepared. The runs may be those of other versions, too.
    """
    raise NotImplementedError


def find_untestable(spec: FlowSpec, candidate: FlowSpec) -> list[Problem]:
    """What history can't say anything about, by JSON pointers into the candidate: changed prompts, models and inputs.

    Only a trial can: other words bring other outputs.
    """
    raise NotImplementedError
